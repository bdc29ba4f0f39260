// The panel of timelines, and the same as a table of one client's rounds.

/** The run of each group that has a timeline. @param {PageState} state */
function timelineRuns(state) {
  return state.groups.map((group) => group.run(state.seed)).filter((run) => run.lanes.length);
}

/** @type {PanelSpec} */
const timelinePanel = {
  id: "timeline",
  title: "Timeline",
  wide: true,
  caption: (state) =>
    "Time runs to the right; each lane is one client and each bar one round of local training, " +
    "labelled with its number of steps. Bars of one colour were planned to arrive together; a pale stretch " +
    "is a client that is ahead and waits for that moment by plan, a hatched one waits for others. " +
    "Each vertical line with a diamond is a merge: the model becomes a new version. " +
    (state.groups.length > 1 ? "All strategies share one time axis, so lines below each other happen at the same moment." : ""),
  missing: (state) => (timelineRuns(state).length ? null : "No client has joined yet."),
  draw(panel, state) {
    const shown = timelineRuns(state);
    const { view } = state;
    const scale = commonScale(shown);
    const runs = shown.map((run) => `${state.all.indexOf(run)}:${run.lanes.length}:${run.unit}`);
    const signature = [state.theme, ...runs].join();
    if (panel.signature !== signature) {
      panel.signature = signature;
      view.tallest = shown.length > 1 ? 330 : 560;
      view.timelines = shown.map((run) => new Timeline(run, view, scale));
      panel.chart.replaceChildren(...view.timelines.map((timeline) => timelineBox(timeline, state)));
      for (const timeline of view.timelines) view.attach(timeline);
      panel.controls.replaceChildren(...timelineControls(view));
      view.layout();
    }
    panel.legend.replaceChildren(...timelineLegend(shown));
    for (const timeline of view.timelines) timeline.scale = scale;
    const extent = largest(shown.map((run) => run.end));
    view.reach(extent, state.live ? extent : readableTime(shown));
  },
  rows: taskTable,
};

const ROUNDS = 40; // bars in a lane that can still be read

/**
 * How much time to show at first: all, or as much as the busiest client needs for some rounds.
 * @param {RunModel[]} runs
 */
function readableTime(runs) {
  return smallest(runs.flatMap((run) =>
    run.lanes.map((lane) => (lane.tasks.length > 2 * ROUNDS ? lane.tasks[ROUNDS].start : run.end)),
  ));
}

/** @param {Timeline} timeline @param {PageState} state */
function timelineBox(timeline, state) {
  const label = runLabel(state, timeline.run);
  const alone = state.groups.length === 1 && label === state.groups[0].label;
  return el("div", { class: "lane-box" }, alone ? null : el("h3", null, label), timeline.element);
}

/** @param {TimeView} view */
function timelineControls(view) {
  return [
    button("+", () => view.zoom(0.6), named("Zoom in")),
    button("−", () => view.zoom(1 / 0.6), named("Zoom out")),
    button("◀", () => view.pan(-0.3), named("Earlier")),
    button("▶", () => view.pan(0.3), named("Later")),
    button("all", () => view.all(), named("Show everything")),
    view.slider,
    el("span", { class: "hint" }, "Drag to move, Ctrl + wheel to zoom; keys: ← → + − 0, Shift + arrows from bar to bar."),
  ];
}

/** @param {RunModel[]} runs */
function timelineLegend(runs) {
  const tasks = runs.flatMap((run) => [...run.tasks.values()]);
  const timed = runs.some((run) => run.deadlines.length);
  const grouped = timed || tasks.some((task) => task.group !== null);
  const states = new Set(tasks.map((task) => task.state));
  const word = togetherIn(runs);
  const colours = runs.find((run) => run.groupColours.size)?.groupColours ?? new Map();
  const groups = [...colours].slice(0, 3).map(([n, i], at) => ({ name: `${word} ${n}${at === 2 ? " …" : ""}`, colour: theme.of(i) }));
  const ungrouped = grouped ? `no ${word}: warm-up, or a strategy without ${word}s` : "local training";
  const ahead = runs.some((run) => run.aheadShare() > 1e-6);
  return [
    ...legendOf([
      ...(grouped ? groups : []),
      { name: ungrouped, colour: theme.colours.warmUp },
      ...(states.has("open") ? [{ name: "still training", colour: theme.of(0), pale: true }] : []),
      ...(ahead ? [{ name: `waiting by plan: its ${word} is not due`, colour: theme.colours.line }] : []),
      { name: ahead ? "waiting for others" : "waiting", hatched: true },
    ]),
    ...lineKeys(runs),
    lineKey("merge", null, "merge"),
    ...(timed ? [lineKey("deadline", "2 3", `latest time a ${word} is waited for`)] : []),
    ...(states.has("late") ? [markKey("late", "came late")] : []),
    ...(states.has("refused") ? [markKey("refused", "update refused")] : []),
    ...(states.has("lost") || states.has("gone") ? [markKey("lost", "task lost")] : []),
  ];
}

/** Of clients that are not there. @param {RunModel[]} runs */
function lineKeys(runs) {
  const some = (/** @type {"away" | "quarantined"} */ what) => runs.some((run) => run.lanes.some((lane) => lane.spans[what].length));
  return legendOf([
    ...(some("away") ? [{ name: "away", colour: theme.colours.soft, dash: "1 4" }] : []),
    ...(some("quarantined") ? [{ name: "in quarantine", colour: theme.colours.bad, dash: "" }] : []),
  ]);
}

/** What clients that answer together are called, in one run or in all of several. @param {RunModel[]} runs */
function togetherIn(runs) {
  const words = new Set(runs.filter((run) => run.groupColours.size).map((run) => run.together));
  return words.size > 1 ? "group or beat" : words.has("beat") ? "beat" : "group";
}

/** @param {TaskState} state @param {string} text */
function markKey(state, text) {
  const key = el("canvas", { width: 16, height: 16, "aria-hidden": "true" });
  drawMark(penOf(key), state, 8, 8);
  return el("span", { class: "key" }, key, ` ${text}`);
}

/** @param {"merge" | "deadline"} name @param {string | null} dash @param {string} text */
function lineKey(name, dash, text) {
  const key = svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
    svg("line", { x1: 7, x2: 7, y2: 14, class: name, "stroke-dasharray": dash }),
    name === "merge" ? svg("path", { d: "M7 1l4 4l-4 4l-4-4z", class: "diamond" }) : null);
  return el("span", { class: "key" }, key, ` ${text}`);
}

const PAGE = 50;

/** The timeline as a table: one client's rounds, some at a time. @param {PageState} state @param {() => void} again */
function taskTable(state, again) {
  const run = state.detail;
  if (!run.lanes.length) return el("p", { class: "missing" }, "No client has joined yet.");
  const choice = state.rounds;
  const lane = run.lanes[Math.min(choice.client, run.lanes.length - 1)];
  const from = choice.from < lane.tasks.length ? choice.from : 0; // another run may have fewer
  const last = Math.min(from + PAGE, lane.tasks.length);
  const turn = (/** @type {number} */ to) => {
    choice.from = to;
    again();
  };
  return [
    el(
      "div",
      { class: "controls" },
      chooser("Client", run.lanes.map((one) => one.name), run.lanes.indexOf(lane), (client) => {
        choice.client = client;
        turn(0);
      }),
      button("earlier", () => turn(Math.max(0, from - PAGE)), { disabled: from === 0 }),
      el("span", null, ` rounds ${from + 1} to ${last} of ${lane.tasks.length} `),
      button("later", () => turn(from + PAGE), { disabled: last >= lane.tasks.length }),
    ),
    table(
      ["start", "end", "steps", run.together, "from version", "staleness", "weight", "then waited", "outcome"],
      lane.tasks.slice(from, last).map((task) => taskRow(task, run.scale)),
      `Rounds of ${lane.name}, ${runLabel(state, run)}`,
    ),
  ];
}

/** @param {Task} task @param {TimeScale} scale */
function taskRow(task, scale) {
  const { end, waitedUntil, reason } = task;
  const outcome = STATES[task.state].split(":")[0];
  return [
    scale.text(task.start),
    scale.text(end),
    task.asked,
    task.group ?? "–",
    task.version,
    task.staleness ?? "–",
    short(task.weight),
    end === null || waitedUntil === null ? "–" : scale.text(waitedUntil - end),
    task.state === "done" ? "merged or waiting to be" : `${outcome}${reason ? `: ${reason}` : ""}`,
  ];
}
