// The panel of curves: how good the model is along time, versions or bytes.

/** @type {[value: Axis, text: string][]} */
const AXES = [
  ["time", "time"],
  ["updates", "global updates"],
  ["bytes", "bytes sent"],
];

/** @type {PanelSpec} */
const curvesPanel = {
  id: "curves",
  title: "Accuracy and loss",
  wide: true,
  caption: (state) =>
    "How good the model is on test data nobody trained on. Further up and to the left is better; of a loss, further down. " +
    (state.groups.some((group) => group.runs.length > 1) ? "Lines are means over seeds, bands one standard deviation up and down; a value holds until the next evaluation, and a line ends where its first seed ends. " : "") +
    "Drag over a stretch to zoom in, double-click to see all; click a name to hide its line.",
  missing: (state) =>
    firstMeasured(state) ? null : "Nothing was measured: this run has no evaluations (yet).",
  draw(panel, state) {
    const first = firstMeasured(state);
    if (!first) return;
    const names = [...new Set(state.runs.flatMap((run) => run.metricNames()))];
    const metric = state.metric !== null && names.includes(state.metric) ? state.metric
      : names.includes(first.metric) ? first.metric : names[0];
    state.metric = metric;
    const zoomTo = (/** @type {Interval | null} */ range) => {
      state.zoom = range;
      panel.refresh(state);
    };
    panel.controls.replaceChildren(
      switcher("Metric", names.map((name) => [name, inWords(name)]), metric, (value) => {
        state.metric = value;
        panel.refresh(state);
      }),
      switcher("Along", AXES, state.axis, (value) => {
        state.axis = value;
        zoomTo(null);
      }),
      ...(state.zoom ? [button("show all", () => zoomTo(null))] : []),
    );
    const shown = state.groups.filter((group) => !state.hidden.has(group.label));
    const series = shown.map((group) => ({ ...lookOf(group), ...group.curve(metric, state.axis) }));
    const target = metric === first.metric ? first.target : null;
    panel.legend.replaceChildren(...curvesLegend(panel, state, target));
    lineChart(panel.chart, {
      ...curveScales(state, first), series, target, zoom: state.zoom, zoomTo,
      height: state.groups.length > 1 ? 420 : 320,
      yText: (value) => metricText(metric, value),
      tickText: (value) => metricText(metric, value, 0),
      yLabel: inWords(metric),
      share: isShare(metric),
      reached: target === null ? [] : shown.flatMap((group) => reachedAt(group, state.axis)),
      label: `${metric} over ${state.axis}: ${endsOf(series, metric)}`,
    });
    panel.notes.replaceChildren(...targetNotes(state, target));
  },
  rows(state) {
    const runs = state.runs.filter((run) => run.rows.length);
    const scale = commonScale(runs);
    const names = runs[0].metricNames();
    const run = state.detail.rows.length ? state.detail : runs[0];
    const rows = thinned(run.rows, 200).map((row) => [
      scale.text(row.time), row.version, sentText(run, row), ...names.map((name) => metricText(name, measured(row, name))),
    ]);
    return table(["time", "version", "sent", ...names], rows, `Evaluations of ${runLabel(state, run)}`);
  },
};

/** @param {PageState} state */
function firstMeasured(state) {
  return state.runs.find((run) => run.metricNames().length);
}

/** Where each line ends, in words. @param {LineSeries[]} series @param {string} metric */
function endsOf(series, metric) {
  const ends = series.flatMap(({ name, points }) => {
    const last = points.at(-1);
    return last ? [`${name} ends at ${metricText(metric, last[1])}`] : [];
  });
  return ends.join(", ");
}

/** @param {RunModel} run @param {Evaluation} row */
function sentText(run, row) {
  const transfers = run.transfersBefore(row.time);
  return run.modelBytes === null ? counted(transfers, "model") : bytes(transfers * run.modelBytes);
}

/**
 * @param {PageState} state @param {RunModel} first
 * @returns {{ xTicks: Ticks, xText: NumberText, xLabel: string }}
 */
function curveScales(state, first) {
  if (state.axis === "time") {
    const scale = new TimeScale(first.unit, largest(state.runs.map((run) => run.end)));
    return timeAxis(scale, first.facts.kind === "deployment" ? "time" : "virtual time");
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

/** @param {Group} group */
function lookOf({ label, colour, dash }) {
  return { name: label, colour, dash };
}

/** Every line, which a click hides or shows again, and what else is drawn. @param {Panel} panel @param {PageState} state @param {number | null} target */
function curvesLegend(panel, state, target) {
  const toggle = (/** @type {string} */ name) => {
    if (!state.hidden.delete(name)) state.hidden.add(name);
    panel.refresh(state);
  };
  const lines = state.groups.map((group) => toggleOf(lookOf(group), !state.hidden.has(group.label), () => toggle(group.label)));
  const seeds = state.groups.some((group) => group.runs.length > 1);
  const { soft, ink } = theme.colours;
  return [
    ...lines,
    ...legendOf([
      ...(seeds ? [{ name: "± one standard deviation over seeds", colour: soft, pale: true }] : []),
      ...(target === null ? [] : [
        { name: "target", colour: ink, dash: "2 4" },
        { name: seeds ? "target first reached, mean ± standard deviation" : "target first reached", colour: soft, dot: true },
      ]),
    ]),
  ];
}

/**
 * Where a group's runs first reach its target along an axis: their mean, and how far they are from it.
 * @param {Group} group @param {Axis} axis @returns {LineChartOptions["reached"]}
 */
function reachedAt({ runs, colour }, axis) {
  const { metric, target } = runs[0];
  if (target === null) return [];
  const found = runs.flatMap((run) => {
    const row = run.reached(target, metric);
    return row ? [run.place(row, axis)] : [];
  });
  return 2 * found.length >= runs.length ? [{ x: mean(found), off: spread(found) ?? 0, colour }] : [];
}

/** @param {PageState} state @param {number | null} target */
function targetNotes(state, target) {
  if (target === null) return [];
  const items = state.groups.map((group) => {
    const found = group.timeToTarget();
    const { scale } = group.runs[0];
    const goal = metricText(group.runs[0].metric, target);
    if (!found) return `${group.label}: not measured`;
    const seeds = found.runs > 1 ? ` (${found.reached} of ${found.runs} seeds)` : "";
    if (!found.reached) return group.over ? `${group.label}: did not reach ${goal}` : `${group.label}: has not reached ${goal} yet`;
    if (found.time === null) return `${group.label}: ${goal} in ${found.reached} of ${found.runs} seeds only`;
    return `${group.label}: ${goal} after ${scale.text(found.time)}${seeds}`;
  });
  const several = state.groups.some((group) => group.runs.length > 1);
  const whose = several ? "Time to target, mean of the seeds that reached it." : "Time to target.";
  return [el("p", { class: "caption" }, `${whose} ${items.join("; ")}.`)];
}
