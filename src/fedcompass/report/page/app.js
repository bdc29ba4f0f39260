// Puts the page together, keeps it up to date, and says in two sentences what it shows.

const PANELS = [
  strategiesPanel, timelinePanel, curvesPanel, stalenessPanel, idlePanel, stepsPanel,
  contributionPanel, pacePanel, clientAccuracyPanel, budgetPanel, settingsPanel,
];

/** @type {PageState} */
const state = {
  all: [],
  leftOut: [],
  sets: [],
  set: 0,
  runs: [],
  groups: [],
  seed: 0,
  group: null,
  metric: null,
  axis: "time",
  zoom: null,
  hidden: new Set(),
  rounds: { client: 0, from: 0 },
  view: new TimeView(),
  theme: 0,
  live: false,
  get detail() {
    return this.groups[Math.min(this.group ?? 0, this.groups.length - 1)].run(this.seed);
  },
};

function title() {
  const { settings, kind, name } = state.runs[0].facts;
  const what = state.groups.length > 1 ? counted(state.groups.length, "strategy", "strategies") : state.groups[0].label;
  if (!settings?.data?.name && state.groups.length > 1) return `${what} compared`;
  const where = settings?.data?.name ?? (kind === "schedule" ? "the schedule alone" : name);
  return `${what} on ${where}`.replace(" on the", ": the");
}

/** Two sentences for someone who has never seen such a page. */
function summary() {
  const run = state.detail;
  if (!run.lanes.length) return ["Waiting for the first clients to join.", ""];
  const { scale } = run;
  const ratio = run.speedRatio() ?? 1;
  const unequal = ratio > 1.2 ? `; the slowest needs ${short(ratio)} times as long for a step as the fastest` : "";
  const who = counted(run.lanes.length, "client");
  const time = run.facts.kind === "deployment" ? "" : " of simulated time";
  const together = state.groups.length > 1 ? `under ${state.groups.length} strategies, one after another,` : `with ${state.groups[0].label}`;
  const doing = run.facts.kind === "schedule" ? "are scheduled" : "train one model together, without sharing their data,";
  const first = `${who} ${doing} ${together} for ${scale.text(run.end)}${time}${unequal}.`;
  const told = [first, state.groups.length > 1 ? ranking() : outcome(run, scale)];
  const wrong = troubles();
  return wrong ? [wrong, ...told] : told;
}

/** What went wrong: runs that broke off, updates that were no numbers, sums that were not opened. */
function troubles() {
  const many = state.runs.length > 1;
  const off = state.runs.filter((run) => run.brokeOff);
  const refused = state.runs.filter((run) => run.notFinite);
  const words = off.map((run) => {
    const scale = new TimeScale(run.unit, run.horizon);
    const excluded = run.lanes.filter((lane) => lane.doing === "quarantined").length;
    const why = excluded ? ` (${excluded} of ${counted(run.lanes.length, "client")} in quarantine)` : "";
    const who = many ? runLabel(state, run) : "This run";
    return `${who} broke off at ${scale.text(run.end)} of ${scale.text(run.horizon)}: nobody was left to train${why}.`;
  });
  if (refused.length) {
    const count = refused.reduce((sum, run) => sum + run.notFinite, 0);
    const who = many ? ` (${refused.map((run) => runLabel(state, run)).join("; ")})` : "";
    words.push(`${counted(count, "update")} refused for NaN or infinity${who}.`);
  }
  for (const run of state.runs.filter((one) => one.failures.length)) {
    const lost = run.failures.reduce((sum, failure) => sum + failure.lost, 0);
    const { at, members } = run.failures[run.failures.length - 1];
    const took = members.length ? ` of ${members.join(", ")}` : "";
    const label = many ? `${runLabel(state, run)}: ` : "";
    words.push(`${label}${counted(run.failures.length, "sum")} could not be opened, ${counted(lost, "update")} lost; the last${took} at ${run.scale.text(at)}.`);
  }
  return words.join(" ");
}

/** @param {RunModel} run @param {TimeScale} scale */
function outcome(run, scale) {
  const [idle, ahead, stale] = [run.idleShare(), run.aheadShare(), short(run.meanStaleness())];
  const why = ahead < 0.005 ? "for others" : `(${percent(ahead)} by plan, ahead of their ${run.together}, ${percent(idle - ahead)} waiting for others)`;
  const waited = `clients spent ${percent(idle)} of their time waiting ${why}`;
  const best = run.top(run.metric);
  if (best === null) return `Nothing was measured; ${waited}, and an update was ${stale} versions behind on average when it arrived.`;
  const group = state.groups[0];
  const found = group.timeToTarget();
  const name = inWords(run.metric);
  const goal = found && metricText(run.metric, run.target);
  const sofar = run.facts.finished ? "" : " so far";
  const reached = !found ? "" : found.reached
    ? `reached the target of ${goal} ${name} after ${scale.text(found.time)} and `
    : `${sofar ? "has not reached" : "did not reach"} the target of ${goal} ${name}${sofar && " yet"}; it `;
  return `The model ${reached}got to ${metricText(run.metric, best)} at best${sofar}, while ${waited}.`;
}

function ranking() {
  const scale = commonScale(state.runs);
  const nothing = { reached: 0, runs: 0, rank: Infinity };
  const found = state.groups.map((group) => ({ label: group.label, ...(group.timeToTarget() ?? nothing) }));
  const reached = found.filter((one) => one.reached).sort((a, b) => a.rank - b.rank);
  if (!found.some((one) => one.runs)) return "Nothing was measured: the timelines show who trains and who waits.";
  const goal = metricText(state.runs[0].metric, state.runs[0].target);
  const open = state.runs.some((run) => !run.facts.finished);
  if (!reached.length) return open ? `None has reached the target of ${goal} yet.` : `None reached the target of ${goal}.`;
  /** @param {{ reached: number, runs: number }} one */
  const seeds = (one) => (one.reached < one.runs ? ` (${one.reached} of ${one.runs} seeds)` : "");
  const [first, ...others] = reached.map((one) => `${one.label} after ${scale.text(one.rank)}${seeds(one)}`);
  const counts = reached.some((one) => one.reached < one.runs) ? " Seeds that missed it count with the time the run had." : "";
  const missed = found.filter((one) => !one.reached).map((one) => one.label);
  const then = others.length ? `, then ${others.join(", ")}` : "";
  return `The target of ${goal} was reached first by ${first}${then}${missed.length ? `; not${open ? " yet" : ""} by ${missed.join(", ")}` : ""}.${counts}`;
}

/** When the runs were made, by which command and how long that took. */
function showOrigin() {
  const known = state.runs.flatMap((run) => run.facts.origin ?? []);
  byId("origin").hidden = !known.length;
  if (!known.length) return;
  const begins = known.map((one) => Date.parse(one.started) / 1000);
  const [first, last] = [Math.min(...begins), Math.max(...known.map((one, i) => begins[i] + one.wall_seconds))];
  const commands = [...new Set(known.map((one) => one.command))];
  const others = commands.length > 1 ? ` and ${counted(commands.length - 1, "other command")}` : "";
  const when = new Date(first * 1000).toISOString().replace("T", " ").slice(0, 16);
  const over = state.runs.every((run) => run.facts.finished);
  const took = over ? `, took ${duration(known.length > 1 ? last - first : known[0].wall_seconds)}` : "";
  byId("origin").replaceChildren(`Begun ${when} UTC${took}: `, el("code", null, commands[0]), others);
}

/** How far the runs were, and when, once the page had read of any progress. @type {{ at: number, share: number } | null} */
let seen = null;

/** Percent and time left of runs that go on. */
function showProgress() {
  const shares = state.runs.flatMap((run) => run.share ?? []);
  const share = shares.length ? mean(shares) : 1;
  byId("progress").hidden = !state.live || share >= 1;
  const left = timeLeft(share);
  byId("progress").textContent = `${percent(share)} done${left === null ? "" : `, about ${duration(left)} left`}`;
}

/**
 * Seconds until the runs are over. A federation's own time says it, whenever the page was opened; simulated time
 * does not: there it is how fast the page sees it pass. @param {number} share
 */
function timeLeft(share) {
  const open = state.runs.filter((run) => !run.facts.finished);
  if (open.every((run) => run.facts.kind === "deployment")) {
    const known = open.flatMap((run) => run.secondsLeft() ?? []);
    return known.length ? largest(known) : null;
  }
  const at = performance.now() / 1000;
  if (share > 0) seen ??= { at, share };
  const done = seen ? share - seen.share : 0;
  return seen && done > 0 ? ((at - seen.at) * (1 - share)) / done : null;
}

function notices() {
  /** @type {string[]} */
  const words = [];
  const cut = state.runs.filter((run) => run.facts.left_out);
  if (cut.length) words.push(`The journal is too long for one page: the timeline and the sums show the time up to ${short(largest(cut.map((run) => run.now)))}; curves are whole.`);
  const damaged = state.runs.reduce((sum, run) => sum + run.damaged, 0);
  if (damaged) words.push(`${counted(damaged, "line")} of the record could not be read.`);
  for (const run of state.runs.filter((one) => one.facts.cut_short)) {
    words.push(`${run.facts.name}: ${run.facts.cut_short}; what is shown of it ends at ${run.scale.text(run.end)}.`);
  }
  const others = state.all.length - state.runs.length;
  if (others) words.push(`${counted(others, "run")} of other data, fleets or targets cannot be compared with these; choose them below.`);
  if (state.leftOut.length) words.push(`Left out: ${state.leftOut.map(([name, why]) => `${name} (${why})`).join("; ")}.`);
  byId("notice").textContent = words.join(" ");
  byId("notice").hidden = !words.length;
}

/** Show another set of runs from its beginning. @param {number} number */
function showSet(number) {
  Object.assign(state, { set: number, seed: 0, group: null, metric: null, zoom: null, hidden: new Set(), rounds: { client: 0, from: 0 }, view: new TimeView() });
  refresh();
}

function choices() {
  /** @type {HTMLElement[]} */
  const items = [];
  if (state.sets.length > 1) {
    const labels = state.sets.map((set) => `${set.label}: ${counted(set.runs.length, "run")}`);
    items.push(chooser("Runs on", labels, state.set, showSet));
  }
  if (state.groups.length > 1) {
    items.push(chooser("Per-client panels:", state.groups.map((g) => g.label), state.group ?? 0, (value) => {
      state.group = value;
      refresh();
    }));
  }
  const seeds = state.groups.map((g) => g.runs).reduce((most, runs) => (runs.length > most.length ? runs : most));
  if (seeds.length > 1) {
    items.push(chooser("Timelines and per-client panels of seed", seeds.map((run) => String(run.seed)), state.seed, (value) => {
      state.seed = value;
      refresh();
    }));
  }
  byId("choices").replaceChildren(...items);
}

function usualGroup() {
  const known = state.runs.every((run) => run.header.strategy);
  const labels = state.groups.map((group) => group.label);
  const found = labels.includes("fedcompass") ? labels.indexOf("fedcompass") : labels.findIndex((label) => label.startsWith("fedcompass"));
  return known ? Math.max(0, found) : null;
}

/** @type {Panel[]} */
let panels = [];
/** The refresh that is going on. @type {Promise<void> | null} */
let refreshing = null;
let stale = false; // whether another has to follow it
let planned = false; // whether one is to come

/** Bring everything up to date, one panel at a time, so that no single step takes long. */
function refresh() {
  stale = true;
  refreshing ??= refreshAll().finally(() => {
    refreshing = null;
  });
  return refreshing;
}

async function refreshAll() {
  while (stale) {
    stale = false;
    arrange();
    document.title = `${title()} – fedcompass`;
    byId("title").textContent = title();
    byId("summary").textContent = summary().join(" ");
    showOrigin();
    showProgress();
    notices();
    choices();
    byId("main").classList.toggle("compare", state.groups.length > 1);
    for (const panel of panels) {
      panel.element.hidden = panel.spec.hidden?.(state) ?? false;
      if (!panel.element.hidden) panel.refresh(state);
      await pause();
    }
  }
}

/** Sort the runs into sets and groups anew. */
function arrange() {
  state.sets = comparableSets(state.all);
  state.set = Math.min(state.set, state.sets.length - 1);
  state.runs = state.sets[state.set].runs;
  if (!state.live) showStatus(state.runs.every((run) => run.facts.finished) ? "finished" : "not finished");
  state.groups = grouped(state.runs);
  state.group ??= usualGroup();
}

/** @param {string} words */
function showStatus(words) {
  const box = byId("status");
  const off = words === "finished" && state.runs.some((run) => run.brokeOff);
  box.textContent = off ? "broke off" : words;
  box.className = `status ${off ? "bad" : words === "live" ? "live" : ""}`;
}

function repaint() {
  theme.read();
  state.theme += 1;
  refresh();
}

function listen() {
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    repaint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  let width = innerWidth;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let waiting;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's bars come and go
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      state.view.layout();
      refresh();
    }, 120);
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") tip.hide();
  });
}

/** Redraw at most about once a second while news keep coming. @param {() => Promise<void>} act */
function unhurried(act) {
  let due = 0;
  return () => {
    if (planned) return;
    planned = true;
    const wait = Math.max(0, due - performance.now());
    setTimeout(async () => {
      planned = false;
      await act();
      due = performance.now() + 900;
    }, wait);
  };
}

async function main() {
  /** @type {PageContent} */
  const content = JSON.parse(byId("facts").textContent);
  theme.read();
  state.all = state.runs = content.runs.map((facts) => new RunModel(facts));
  state.leftOut = content.left_out ?? [];
  document.body.append(svg("svg", { width: 0, height: 0, "aria-hidden": "true" }, hatchedFill("legend-hatch")));
  panels = PANELS.map((panel) => new Panel(panel));
  byId("main").append(...panels.map((panel) => panel.element));
  listen();
  state.live = content.live;
  if (content.live) {
    followServer(state.all, { changed: unhurried(refresh), status: showStatus });
    return;
  }
  await loadPacked(state.all, (share) => showStatus(`reading ${percent(share)}`));
  await refresh();
}

// For tests and curious people: the models behind the pictures, and whether all is drawn.
globalThis.fedcompass = {
  state,
  settled: () => !refreshing && !planned && !state.view.asked,
  ready: main().catch((error) => {
    byId("summary").textContent = `The page cannot show this run: ${error.message}`;
    throw error;
  }),
};
