// The page's panels about whole runs. A panel is a chart with a caption and the same as a table.

class Panel {
  constructor({ id, title, wide, caption, draw, rows, missing }) {
    Object.assign(this, { id, caption, draw, rows, missing });
    this.heading = el("h2", { id: `${id}-title` }, title);
    this.words = el("p", { class: "caption" });
    this.controls = el("div", { class: "controls" });
    this.chart = el("div", { class: "chart" });
    this.legend = el("div", { class: "legend" });
    this.notes = el("div", { class: "notes" });
    this.details = el("details", null, el("summary", null, "Show as a table"));
    this.details.addEventListener("toggle", () => this.fillTable());
    this.element = el(
      "section",
      { id, class: wide ? "panel wide" : "panel", "aria-labelledby": `${id}-title` },
      [this.heading, this.words, this.controls, this.legend, this.chart, this.notes, this.details],
    );
  }

  refresh(state) {
    this.state = state;
    this.words.textContent = this.caption(state);
    const missing = this.missing?.(state);
    this.element.classList.toggle("empty", Boolean(missing));
    this.details.hidden = Boolean(missing);
    this.controls.hidden = this.legend.hidden = this.notes.hidden = Boolean(missing);
    if (missing) this.chart.replaceChildren(el("p", { class: "missing" }, missing));
    else this.draw(this, state);
    this.fillTable();
  }

  fillTable() {
    this.details.querySelector(".table")?.remove();
    if (!this.details.open || !this.state || this.missing?.(this.state)) return;
    const content = this.rows(this.state, () => this.fillTable());
    this.details.append(el("div", { class: "table" }, content));
  }
}

function legendOf(entries) {
  return entries.map(({ name, colour, dash, kind, pale }) => {
    const key = svg("svg", { width: dash === undefined ? 24 : 40, height: 12, "aria-hidden": "true" });
    if (kind === "hatched") key.append(svg("rect", { width: 24, height: 12, fill: "url(#legend-hatch)", class: "outlined" }));
    else if (dash === undefined) key.append(svg("rect", { y: 1, width: 16, height: 10, rx: 2, fill: colour, ...(pale ? { "fill-opacity": 0.3, stroke: colour } : {}) }));
    else key.append(svg("line", { x2: 40, y1: 6, y2: 6, stroke: colour, "stroke-width": LINE_WIDTH, "stroke-dasharray": dash || null }));
    return el("span", { class: "key" }, key, ` ${name}`);
  });
}

const timelinePanel = {
  id: "timeline",
  title: "Timeline",
  wide: true,
  caption: (state) =>
    "Time runs to the right; each lane is one client and each bar one round of local training, " +
    "labelled with its number of steps. Bars of one colour were planned to arrive together. " +
    "Each vertical line with a diamond is a merge: the model becomes a new version. " +
    (state.groups.length > 1 ? "All strategies share one time axis, so lines below each other happen at the same moment." : ""),
  missing: (state) => (state.runs.some((run) => run.lanes.length) ? null : "No client has joined yet."),
  draw(panel, state) {
    const shown = state.groups.map((group) => group.run(state.seed)).filter((run) => run.lanes.length);
    const view = state.view;
    const signature = shown.map((run) => `${state.all.indexOf(run)}:${run.lanes.length}:${run.unit}`).join();
    const extent = largest(shown.map((run) => run.end));
    const scale = new TimeScale(shown[0].unit, extent);
    if (panel.signature !== signature || panel.theme !== state.theme) {
      panel.signature = signature;
      panel.theme = state.theme;
      view.tallest = shown.length > 1 ? 330 : 560;
      view.timelines = shown.map((run) => new Timeline(run, view, scale));
      panel.chart.replaceChildren(
        ...view.timelines.map((timeline, i) => timelineBox(timeline, state, shown[i])),
      );
      for (const timeline of view.timelines) view.attach(timeline);
      panel.controls.replaceChildren(...timelineControls(view));
      view.layout();
      panel.legend.replaceChildren(...timelineLegend(shown));
    }
    for (const timeline of view.timelines) timeline.scale = scale;
    view.reach(extent, state.live ? extent : readableTime(shown));
  },
  rows: taskTable,
};

const ROUNDS = 40; // bars in a lane that can still be read

/** How much time to show at first: all, or as much as the busiest client needs for some rounds. */
function readableTime(runs) {
  const ends = runs.flatMap((run) =>
    run.lanes.map((lane) => (lane.tasks.length > 2 * ROUNDS ? lane.tasks[ROUNDS].start : run.end)),
  );
  return ends.reduce((a, b) => Math.min(a, b), Infinity);
}

function timelineBox(timeline, state, run) {
  const group = state.groups.find((one) => one.runs.includes(run));
  const name = state.groups.length > 1 || group.runs.length > 1 ? el("h3", null, runLabel(state, run)) : null;
  return el("div", { class: "lane-box" }, name, timeline.element);
}

function runLabel(state, run) {
  const group = state.groups.find((one) => one.runs.includes(run));
  return group.runs.length > 1 ? `${group.label}, seed ${run.seed}` : group.label;
}

function timelineControls(view) {
  const button = (label, text, act) =>
    el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  return [
    button("Zoom in", "+", () => view.zoom(0.6)),
    button("Zoom out", "−", () => view.zoom(1 / 0.6)),
    button("Earlier", "◀", () => view.pan(-0.3)),
    button("Later", "▶", () => view.pan(0.3)),
    button("Show everything", "all", () => view.all()),
    view.slider(),
    el("span", { class: "hint" }, "Drag to move, Ctrl + wheel to zoom; keys: ← → + − 0, Shift + arrows from bar to bar."),
  ];
}

function timelineLegend(runs) {
  const grouped = runs.some((run) => run.deadlines.length || run.lanes.some((l) => l.tasks.some((t) => t.group !== null)));
  const states = new Set(runs.flatMap((run) => run.lanes.flatMap((lane) => lane.tasks.map((task) => task.state))));
  const mark = (state, text) => {
    const key = el("canvas", { width: 16, height: 16, "aria-hidden": "true" });
    drawMark(key.getContext("2d"), state, 8, 8);
    return el("span", { class: "key" }, key, ` ${text}`);
  };
  const line = (name, dash, text) =>
    el(
      "span",
      { class: "key" },
      svg("svg", { width: 14, height: 14, "aria-hidden": "true" },
        svg("line", { x1: 7, x2: 7, y2: 14, class: name, "stroke-dasharray": dash }),
        name === "merge" ? svg("path", { d: "M7 1l4 4l-4 4l-4-4z", class: "diamond" }) : null),
      ` ${text}`,
    );
  return [
    ...legendOf([
      ...(grouped ? [0, 1, 2].map((n) => ({ name: ["group 1", "group 2", "group 3 …"][n], colour: theme.of(n) })) : []),
      { name: grouped ? "no group: warm-up, or a strategy without groups" : "local training", colour: theme.colours["warm-up"] },
      { name: "waiting", kind: "hatched" },
    ]),
    line("merge", null, "merge"),
    runs.some((run) => run.deadlines.length) ? line("deadline", "2 3", "latest time a group is waited for") : null,
    states.has("late") ? mark("late", "came late") : null,
    states.has("refused") ? mark("refused", "update refused") : null,
    states.has("lost") || states.has("gone") ? mark("lost", "task lost") : null,
  ].filter(Boolean);
}

const PAGE = 50;

/** The timeline as a table: one client's rounds, some at a time. */
function taskTable(state, again) {
  const run = state.detail;
  const choice = (state.tasks ??= { client: 0, from: 0 });
  const lane = run.lanes[Math.min(choice.client, run.lanes.length - 1)];
  const scale = new TimeScale(run.unit, run.end);
  const tasks = lane.tasks.slice(choice.from, choice.from + PAGE);
  const rows = tasks.map((task) => [
    scale.text(task.start),
    task.end === null ? "–" : scale.text(task.end),
    task.asked,
    task.group ?? "–",
    task.version,
    task.staleness ?? "–",
    task.weight === null ? "–" : short(task.weight),
    task.waitedUntil === null ? "–" : scale.text(task.waitedUntil - task.end),
    task.state === "done" ? "merged or waiting to be" : `${STATES[task.state].split(":")[0]}${task.reason ? `: ${task.reason}` : ""}`,
  ]);
  const turn = (from) => {
    choice.from = from;
    again();
  };
  const last = Math.min(choice.from + PAGE, lane.tasks.length);
  return [
    el(
      "div",
      { class: "controls" },
      chooser("Client", run.lanes.map((one) => one.name), run.lanes.indexOf(lane), (client) => {
        choice.client = client;
        turn(0);
      }),
      el("button", { type: "button", disabled: choice.from === 0, onclick: () => turn(Math.max(0, choice.from - PAGE)) }, "earlier"),
      el("span", null, ` rounds ${choice.from + 1} to ${last} of ${lane.tasks.length} `),
      el("button", { type: "button", disabled: last >= lane.tasks.length, onclick: () => turn(choice.from + PAGE) }, "later"),
    ),
    table(
      ["start", "end", "steps", "group", "from version", "staleness", "weight", "then waited", "outcome"],
      rows,
      `Rounds of ${lane.name}, ${runLabel(state, run)}`,
    ),
  ];
}

const AXES = [
  ["time", "time"],
  ["updates", "global updates"],
  ["bytes", "bytes sent"],
];

const curvesPanel = {
  id: "curves",
  title: "Accuracy and loss",
  wide: true,
  caption: (state) =>
    "How good the model is on test data nobody trained on. Further up and to the left is better; of a loss, further down. " +
    (state.groups.some((group) => group.runs.length > 1) ? "Lines are means over seeds, bands one standard deviation up and down; a value holds until the next evaluation, and a line ends where its first seed ends. " : "") +
    "The dotted line is the target; a dot marks where it was first reached.",
  missing: (state) =>
    state.runs.some((run) => run.rows.length) ? null : "Nothing was measured: this run has no evaluations (yet).",
  draw(panel, state) {
    const names = [...new Set(state.runs.flatMap((run) => run.metricNames()))];
    const first = state.runs.find((run) => run.rows.length);
    if (!names.includes(state.metric)) state.metric = names.includes(first.metric) ? first.metric : names[0];
    panel.controls.replaceChildren(
      switcher("Metric", names.map((name) => [name, name.replaceAll("_", " ")]), state.metric, (value) => {
        state.metric = value;
        panel.refresh(state);
      }),
      switcher("Along", AXES, state.axis, (value) => {
        state.axis = value;
        panel.refresh(state);
      }),
    );
    const series = state.groups.map((group) => ({
      name: group.label, colour: group.colour, dash: group.dash, ...group.curve(state.metric, state.axis),
    }));
    const target = state.metric === first.metric ? first.target : null;
    panel.legend.replaceChildren(...(series.length > 1 ? legendOf(series) : []));
    lineChart(panel.chart, {
      ...curveScales(state, first), series, target,
      yText: (value) => metricText(state.metric, value),
      tickText: (value) => (SHARES.includes(state.metric) ? percent(value) : short(value)),
      yLabel: state.metric.replaceAll("_", " "),
      share: SHARES.includes(state.metric),
      reached: target === null ? [] : reachedAt(state),
      label: `${state.metric} over ${state.axis}: ` + series.filter((one) => one.points.length)
        .map((one) => `${one.name} ends at ${metricText(state.metric, one.points.at(-1)[1])}`).join(", "),
    });
    panel.notes.replaceChildren(...targetNotes(state, target));
  },
  rows(state) {
    const runs = state.runs.filter((run) => run.rows.length);
    const scale = new TimeScale(runs[0].unit, largest(runs.map((run) => run.end)));
    const names = runs[0].metricNames();
    const run = state.detail.rows.length ? state.detail : runs[0];
    const rows = thinned(run.rows, 200).map((row) => [
      scale.text(row.time), row.version, sentText(run, row), ...names.map((name) => metricText(name, row[name])),
    ]);
    return table(["time", "version", "sent", ...names], rows, `Evaluations of ${runLabel(state, run)}`);
  },
};

function sentText(run, row) {
  const transfers = run.transfersBefore(row.time);
  return run.modelBytes === null ? counted(transfers, "model") : bytes(transfers * run.modelBytes);
}

function curveScales(state, first) {
  if (state.axis === "time") {
    const scale = new TimeScale(first.unit, largest(state.runs.map((run) => run.end)));
    const words = first.facts.kind === "deployment" ? "time" : "virtual time";
    return {
      xTicks: (low, high, about) => scale.ticks(low, high, about),
      xText: (x) => scale.text(x),
      xLabel: scale.axis ? `${words} (${scale.axis})` : words,
    };
  }
  const known = state.runs.every((run) => run.modelBytes !== null);
  const text = state.axis === "bytes" && known ? bytes : short;
  return {
    xTicks: (low, high, about) => ticks(low, high, about).map((at) => ({ at, label: text(at) })),
    xText: state.axis === "bytes" ? (x) => `${text(x)} sent` : (x) => `after ${short(x)} updates`,
    xLabel: state.axis === "updates" ? "global updates (versions of the model)"
      : known ? "bytes sent to and from clients" : "models sent to and from clients",
  };
}

/** Where each group's curve first reaches the target, along the axis in use. */
function reachedAt(state) {
  const found = [];
  for (const group of state.groups) {
    const { metric, target } = group.runs[0];
    for (const run of group.runs) {
      const time = run.timeTo(target, metric);
      const row = time === null ? null : run.rows.find((one) => one.time === time && one[metric] !== null);
      if (!row) continue;
      const x = { time, updates: row.version, bytes: run.transfersBefore(time) * (run.modelBytes ?? 1) }[state.axis];
      found.push({ x, colour: group.colour });
    }
  }
  return found;
}

function targetNotes(state, target) {
  if (target === null) return [];
  const items = state.groups.map((group) => {
    const found = group.timeToTarget();
    const scale = new TimeScale(group.runs[0].unit, group.runs[0].end);
    const goal = metricText(group.runs[0].metric, target);
    if (!found) return `${group.label}: not measured`;
    const seeds = found.runs > 1 ? ` (${found.reached} of ${found.runs} seeds)` : "";
    if (!found.reached) return `${group.label}: did not reach ${goal}`;
    if (found.time === null) return `${group.label}: ${goal} in ${found.reached} of ${found.runs} seeds only`;
    return `${group.label}: ${goal} after ${scale.text(found.time)}${seeds}`;
  });
  return [el("p", { class: "caption" }, `Time to target. ${items.join("; ")}.`)];
}

const stalenessPanel = {
  id: "staleness",
  title: "Staleness",
  caption: () =>
    "How many versions behind the model a client started from was when its update arrived. " +
    "Far to the left is better: old updates pull the model back.",
  missing: (state) => (state.runs.some((run) => run.staleness.length) ? null : "No update has arrived yet."),
  draw(panel, state) {
    const { categories, shares } = stalenessShares(state);
    const series = state.groups.map((group, i) => ({ name: group.label, colour: group.colour, pale: group.pale, values: shares[i] }));
    panel.legend.replaceChildren(...(series.length > 1 ? legendOf(series) : []));
    barChart(panel.chart, {
      categories, series, yText: percent, xLabel: "versions behind", yLabel: "share of updates",
      label: state.groups.map((g) => `${g.label}: ${short(mean(g.runs.map((r) => r.meanStaleness())))} versions behind on average`).join(", "),
    });
  },
  rows(state) {
    const { categories, shares } = stalenessShares(state);
    const rows = categories.map((name, i) => [name, ...shares.map((values) => percent(values[i], 1))]);
    return table(["versions behind", ...state.groups.map((g) => g.label)], rows, "Share of updates by staleness");
  },
};

function stalenessShares(state) {
  const most = largest(state.runs.map((run) => run.staleness.length));
  const bins = Math.min(most, 16);
  const categories = Array.from({ length: bins }, (_, i) => (i === 15 && most > 16 ? "15+" : String(i)));
  const shares = state.groups.map((group) => {
    const values = new Array(bins).fill(0);
    let total = 0;
    for (const run of group.runs) {
      run.staleness.forEach((count, u) => {
        values[Math.min(u, bins - 1)] += count;
        total += count;
      });
    }
    return values.map((count) => (total ? count / total : 0));
  });
  return { categories, shares };
}

const strategiesPanel = {
  id: "strategies",
  title: "Strategies side by side",
  wide: true,
  caption: () => "One line per strategy, means ± standard deviation over its seeds; no time to target where fewer than half reached it. Waiting is the share of client time spent idle.",
  missing: () => null,
  draw(panel, state) {
    panel.details.hidden = true;
    const metric = state.runs[0].metric;
    const rows = state.groups.map((group) => strategyRow(group, metric));
    const header = ["strategy", "runs", "time to target", `top ${metric.replaceAll("_", " ")}`, "versions", "client updates", "waiting", "staleness"];
    panel.chart.replaceChildren(table(header, rows, "Strategies side by side"));
  },
  rows: () => null,
};

function strategyRow(group, metric) {
  const average = (of) => mean(group.runs.map(of).filter((value) => value !== null));
  const found = group.timeToTarget();
  const scale = new TimeScale(group.runs[0].unit, group.runs[0].end);
  const off = group.runs.filter((run) => run.brokeOff).length;
  const when = !found ? "–" : found.reached ? withSpread(found.time, found.spread, (t) => scale.text(t)) : "not reached";
  const tops = group.runs.map((run) => run.top(metric)?.[metric] ?? null).filter((value) => value !== null);
  return [
    group.label,
    off ? `${group.runs.length}, ${off} broke off` : group.runs.length,
    found && found.runs > 1 && found.reached ? `${when} (${found.reached}/${found.runs})` : when,
    withSpread(mean(tops), spread(tops), (value) => metricText(metric, value)),
    short(average((run) => run.merges.length)),
    short(average((run) => run.updates())),
    percent(average((run) => run.idleShare()), 1),
    short(average((run) => run.meanStaleness())),
  ];
}

/** A mean and how far the seeds are from it, if there are several. */
function withSpread(middle, off, text) {
  return off === null || middle === null ? text(middle) : `${text(middle)} ± ${text(off)}`;
}

const settingsPanel = {
  id: "settings",
  title: "Settings",
  wide: true,
  caption: (state) =>
    state.groups.length > 1 ? "Everything that decided these runs; rows that differ come first, in bold." : "Everything that decided this run.",
  missing: (state) =>
    state.groups.some((g) => g.runs[0].facts.settings || g.runs[0].header.strategy) ? null : "No settings are recorded.",
  draw(panel, state) {
    panel.details.hidden = true;
    const columns = state.groups.map((group) => flat(settingsOf(group)));
    const keys = [...new Set(columns.flatMap((column) => [...column.keys()]))];
    const rows = keys.map((key) => [key, ...columns.map((column) => column.get(key) ?? "–")]);
    const differs = (row) => new Set(row.slice(1)).size > 1;
    rows.sort((a, b) => differs(b) - differs(a));
    const made = table(["setting", ...state.groups.map((g) => g.label)], rows, "Settings");
    made.classList.add("settings");
    made.querySelectorAll("tbody tr").forEach((tr, i) => tr.classList.toggle("differs", differs(rows[i])));
    panel.chart.replaceChildren(made);
  },
  rows: () => null,
};

function settingsOf(group) {
  const first = group.runs[0];
  const seeds = group.runs.map((run) => run.seed);
  const settings = first.facts.settings ?? { strategy: first.header.strategy };
  return group.runs.length > 1 ? { ...settings, seed: seeds.join(", ") } : settings;
}

/** Nested tables as dotted keys. */
function flat(settings, prefix = "", found = new Map()) {
  for (const [key, value] of Object.entries(settings ?? {})) {
    if (value && typeof value === "object" && !Array.isArray(value)) flat(value, `${prefix}${key}.`, found);
    else found.set(prefix + key, Array.isArray(value) ? JSON.stringify(value) : String(value));
  }
  return found;
}
