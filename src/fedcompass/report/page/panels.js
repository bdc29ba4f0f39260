// Panels about whole runs: staleness, strategies side by side, settings.

/** @type {PanelSpec} */
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
    barChart(panel, {
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

/** @param {PageState} state */
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

/** @type {PanelSpec} */
const strategiesPanel = {
  id: "strategies",
  title: "Strategies side by side",
  wide: true,
  hidden: (state) => state.groups.length < 2,
  caption: () => "One line per strategy, means ± standard deviation over its seeds; no time to target where fewer than half reached it. Waiting is the share of client time spent idle; by plan, the part of it in which a client was ahead of its group or beat.",
  draw(panel, state) {
    const metric = state.runs[0].metric;
    const rows = state.groups.map((group) => strategyRow(group, metric));
    const header = ["strategy", "runs", "time to target", `${state.runs[0].falls(metric) ? "best" : "top"} ${inWords(metric)}`, "versions", "client updates", "waiting", "by plan", "staleness"];
    panel.chart.replaceChildren(table(header, rows, "Strategies side by side"));
  },
};

/** @param {Group} group @param {string} metric */
function strategyRow(group, metric) {
  const average = (/** @type {(run: RunModel) => number} */ of) => mean(group.runs.map(of));
  const found = group.timeToTarget();
  const { scale } = group.runs[0];
  const off = group.runs.filter((run) => run.brokeOff).length;
  const when = !found ? "–" : found.reached ? withSpread(found.time, found.spread, (t) => scale.text(t)) : group.over ? "not reached" : "not yet";
  const tops = group.runs.map((run) => run.top(metric)).filter((value) => value !== null);
  return [
    group.label,
    off ? `${group.runs.length}, ${off} broke off` : group.runs.length,
    found && found.runs > 1 && found.reached ? `${when} (${found.reached}/${found.runs})` : when,
    withSpread(mean(tops), spread(tops), (value) => metricText(metric, value)),
    short(average((run) => run.merges.length)),
    short(average((run) => run.updates())),
    percent(average((run) => run.idleShare()), 1),
    percent(average((run) => run.aheadShare()), 1),
    short(average((run) => run.meanStaleness())),
  ];
}

/**
 * A mean and how far the seeds are from it, if there are several.
 * @param {number | null} middle @param {number | null} off @param {(value: number | null) => string} text
 */
function withSpread(middle, off, text) {
  return off === null || middle === null ? text(middle) : `${text(middle)} ± ${text(off)}`;
}

/** @type {PanelSpec} */
const settingsPanel = {
  id: "settings",
  title: "Settings",
  wide: true,
  caption: (state) =>
    state.groups.length > 1 ? "Everything that decided these runs; rows that differ come first, in bold." : "Everything that decided this run.",
  missing: (state) =>
    state.groups.some((g) => g.runs[0].facts.settings || g.runs[0].header.strategy) ? null : "No settings are recorded.",
  draw(panel, state) {
    const columns = state.groups.map((group) => flat(settingsOf(group)));
    const keys = [...new Set(columns.flatMap((column) => [...column.keys()]))];
    const rows = keys.map((key) => [key, ...columns.map((column) => column.get(key) ?? "–")]);
    const differs = (/** @type {string[]} */ row) => new Set(row.slice(1)).size > 1;
    rows.sort((a, b) => Number(differs(b)) - Number(differs(a)));
    const made = table(["setting", ...state.groups.map((g) => g.label)], rows, "Settings");
    made.classList.add("settings");
    made.querySelectorAll("tbody tr").forEach((tr, i) => tr.classList.toggle("differs", differs(rows[i])));
    panel.chart.replaceChildren(made);
  },
};

/** @param {Group} group */
function settingsOf(group) {
  const first = group.runs[0];
  const seeds = group.runs.map((run) => run.seed);
  const settings = first.facts.settings ?? { strategy: first.header.strategy };
  return group.runs.length > 1 ? { ...settings, seed: seeds.join(", ") } : settings;
}

/**
 * Nested tables as dotted keys, values as text.
 * @param {object} settings @param {Map<string, string>} found
 */
function flat(settings, prefix = "", found = new Map()) {
  for (const [key, value] of Object.entries(settings)) {
    if (value === undefined) continue;
    if (value && typeof value === "object" && !Array.isArray(value)) flat(value, `${prefix}${key}.`, found);
    else found.set(prefix + key, Array.isArray(value) ? JSON.stringify(value) : String(value));
  }
  return found;
}
