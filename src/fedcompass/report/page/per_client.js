// Panels about the clients of one run: the one chosen at the top where there are several.

/** @param {PageState} state */
function oneOf(state) {
  return state.runs.length > 1 ? ` Shown: ${runLabel(state, state.detail)}.` : "";
}

/** @param {PageState} state */
function nobody(state) {
  return state.detail.lanes.length ? null : "No client has joined yet.";
}

/** A bar or more for each client. @param {Panel} panel @param {RunModel} run @param {Omit<BarChartOptions, "categories" | "xLabel">} options */
function clientBars(panel, run, options) {
  barChart(panel, { categories: run.lanes.map((lane) => lane.client), xLabel: "client", ...options });
}

/** Each client's number, for those who cannot see the chart. @param {RunModel} run @param {(lane: Lane, i: number) => string} text */
function told(run, text) {
  return run.lanes.map((lane, i) => `${lane.name}: ${text(lane, i)}`).join(", ");
}

/** @type {PanelSpec} */
const idlePanel = {
  id: "idle",
  title: "Training and waiting",
  caption: (state) =>
    "How each client spent its time: solid is training, pale is waiting by plan, because the client is ahead of its " +
    `${state.detail.together}, hatched is waiting for others.${oneOf(state)}`,
  missing: nobody,
  draw(panel, state) {
    const run = state.detail;
    const spent = timeSpent(run);
    /** @type {BarSeries[]} */
    const series = [
      { name: "training", colour: theme.of(0), values: spent.map((s) => s.busy) },
      { name: `waiting by plan, ahead of its ${run.together}`, colour: theme.colours.line, values: spent.map((s) => s.ahead) },
      { name: "waiting for others", hatched: true, values: spent.map((s) => s.waiting - s.ahead) },
    ];
    if (spent.some((s) => s.quarantined > 0)) {
      series.push({ name: "quarantined", colour: theme.colours.bad, values: spent.map((s) => s.quarantined) });
    }
    clientBars(panel, run, {
      series, stacked: true, highest: 1, yText: percent, yLabel: "share of the run",
      label: `Clients waited ${percent(run.idleShare(), 1)} of their time`,
    });
    panel.note(`Idle share of all client time. ${state.groups.map((g) => `${g.label}: ${idleText(g)}`).join("; ")}.`);
  },
  rows(state) {
    const spent = timeSpent(state.detail);
    const rows = state.detail.lanes.map((lane, i) => {
      const { busy, waiting, ahead, quarantined, away } = spent[i];
      return [lane.name, ...[busy, ahead, waiting - ahead, quarantined, away].map((share) => percent(share, 1))];
    });
    const header = ["client", "training", "waiting by plan", "waiting for others", "quarantined", "away"];
    return table(header, rows, "How clients spent their time");
  },
};

/** How much of their time clients waited, and why. @param {Group} group */
function idleText(group) {
  const [idle, ahead] = [mean(group.runs.map((r) => r.idleShare())), mean(group.runs.map((r) => r.aheadShare()))];
  const why = ahead > 1e-6 ? ` (${percent(ahead, 1)} by plan, ${percent(idle - ahead, 1)} for others)` : "";
  return `${percent(idle, 1)}${why}`;
}

/** What each client did in which share of the run. @param {RunModel} run */
function timeSpent(run) {
  const whole = run.end || 1;
  return run.lanes.map((lane) => {
    const { busy, waiting, ahead, quarantined } = lane.until(run.end);
    const away = Math.max(0, 1 - (busy + waiting + quarantined) / whole);
    return { busy: busy / whole, waiting: waiting / whole, ahead: ahead / whole, quarantined: quarantined / whole, away };
  });
}

/** @type {PanelSpec} */
const stepsPanel = {
  id: "steps",
  title: "Steps per client",
  caption: (state) => `How many training steps of each client reached the server: fast clients can do more in the same time.${oneOf(state)}`,
  missing: nobody,
  draw(panel, state) {
    const run = state.detail;
    clientBars(panel, run, {
      series: [{ name: "steps", colour: theme.of(1), values: run.lanes.map((lane) => lane.steps) }],
      yText: short, yLabel: "local steps", label: told(run, (lane) => `${lane.steps} steps`),
    });
  },
  rows(state) {
    const rows = state.detail.lanes.map((lane) => [
      lane.name, lane.steps, lane.updates, lane.updates ? short(lane.steps / lane.updates) : "–", lane.late, lane.refused,
    ]);
    return table(["client", "steps", "updates", "steps per update", "late", "refused"], rows, "Steps and updates per client");
  },
};

const MOST_POINTS = 600;

/** @type {PanelSpec} */
const pacePanel = {
  id: "pace",
  title: "Pace: estimate and truth",
  caption: (state) =>
    "Each dot is one round: to the right the time per step the server expected, upwards what it took. " +
    `On the dotted line the guess was exact; above it the client was slower than expected.${oneOf(state)}`,
  missing: (state) => (foreseen(state.detail.lanes).length ? null : "No client has answered twice yet, so no guess can be checked."),
  draw(panel, state) {
    const run = state.detail;
    const tasks = foreseen(run.lanes);
    const scale = new TimeScale(run.unit, 0);
    const points = thinned(tasks, MOST_POINTS).map((task) => ({
      x: task.expected,
      y: took(task),
      colour: theme.of(run.lanes.indexOf(task.lane)),
      name: task.lane.name,
      lines: [
        `expected ${short(task.expected)} per step, took ${short(took(task))}`,
        `${task.done} steps, answered at ${scale.text(task.end)}`,
      ],
    }));
    panel.legend.replaceChildren(...paceLegend(run));
    const unit = run.unit ? ` (${run.unit} per step)` : " (per step)";
    scatterChart(panel.chart, {
      points, text: short, xLabel: `expected${unit}`, yLabel: `took${unit}`,
      label: `Expected and real time per step of ${tasks.length} rounds; off by ${percent(paceError(tasks), 1)} on average`,
    });
    const fewer = tasks.length > MOST_POINTS ? ` ${MOST_POINTS} of ${counted(tasks.length, "round")} are drawn.` : "";
    panel.note(`Off by ${percent(paceError(tasks), 1)} on average.${fewer}`);
  },
  rows(state) {
    const rows = state.detail.lanes.map((lane) => {
      const tasks = foreseen([lane]);
      const [guess, real] = [mean(tasks.map((t) => t.expected)), mean(tasks.map(took))];
      return [lane.name, tasks.length, short(guess), short(real), tasks.length ? percent(paceError(tasks), 1) : "–"];
    });
    return table(["client", "rounds", "expected", "took", "mean error"], rows, "Time per step per client: estimate and truth");
  },
};

const MOST_KEYS = 14;

/** @param {RunModel} run */
function paceLegend({ lanes }) {
  const clients = lanes.slice(0, MOST_KEYS).map((lane, i) => ({ name: lane.name, colour: theme.of(i), dot: true }));
  const more = lanes.length > MOST_KEYS ? [{ name: `and ${lanes.length - MOST_KEYS} more`, colour: theme.colours.soft, dot: true }] : [];
  return legendOf([...clients, ...more, { name: "expected as it was", colour: theme.colours.ink, dash: "2 4" }]);
}

/** @param {ForeseenTask} task */
function took(task) {
  return (task.end - task.start) / task.done;
}

/** @param {Lane[]} lanes */
function foreseen(lanes) {
  return lanes.flatMap((lane) => lane.tasks.filter(wasForeseen));
}

/** @param {Task} task @returns {task is ForeseenTask} */
function wasForeseen(task) {
  return task.expected !== null && task.end !== null && task.done !== null && task.done > 0;
}

/** @param {ForeseenTask[]} tasks */
function paceError(tasks) {
  return mean(tasks.map((task) => Math.abs(task.expected - took(task)) / took(task)));
}

/** @type {PanelSpec} */
const contributionPanel = {
  id: "contribution",
  title: "Contribution to the model",
  caption: (state) =>
    "How much each client's updates weighed in all merges together, as a share. The short line is its share of the data: " +
    `a bar above it means that the client had more say than its data.${oneOf(state)}`,
  missing: (state) =>
    state.detail.weighed ? null : "The journal has no weights: only the schedule was made, nothing was trained.",
  draw(panel, state) {
    const run = state.detail;
    const { weights, samples } = contributions(run);
    clientBars(panel, run, {
      series: [{ name: "share of all weights", colour: theme.of(2), values: weights }],
      marks: samples, mark: "share of the data",
      yText: percent, yLabel: "share of all weights", label: told(run, (_, i) => percent(weights[i], 1)),
    });
  },
  rows(state) {
    const { weights, samples } = contributions(state.detail);
    const rows = state.detail.lanes.map((lane, i) => [
      lane.name, short(lane.weight), percent(weights[i], 1), percent(samples[i], 1), lane.updates,
    ]);
    return table(["client", "sum of weights", "share", "share of data", "updates"], rows, "Contribution of each client");
  },
};

/** @param {RunModel} run */
function contributions(run) {
  const total = (/** @type {(lane: Lane) => number} */ of) => run.lanes.reduce((sum, lane) => sum + of(lane), 0) || 1;
  const [weight, samples] = [total((lane) => lane.weight), total((lane) => lane.samples ?? 0)];
  return {
    weights: run.lanes.map((lane) => lane.weight / weight),
    samples: run.lanes.map((lane) => (lane.samples ?? 0) / samples),
  };
}

/** @type {PanelSpec} */
const clientAccuracyPanel = {
  id: "client-accuracy",
  title: "Accuracy per client",
  caption: (state) =>
    `How well the latest measured model does on each client's own data; the short line is its best so far.${oneOf(state)}`,
  missing: (state) =>
    clientRows(state.detail).length
      ? null
      : `Not measured in this run.${state.detail.facts.kind === "simulation" ? " Switch it on with --set evaluation.per_client=true." : ""}`,
  draw(panel, state) {
    const run = state.detail;
    const { last, best } = clientScores(run);
    panel.heading.textContent = `${inWords(run.metric).replace(/^./, (c) => c.toUpperCase())} per client`;
    clientBars(panel, run, {
      series: [{ name: `${inWords(run.metric)}, latest`, colour: theme.of(3), values: last }],
      marks: best, mark: "best so far",
      highest: isShare(run.metric) ? 1 : undefined,
      yText: (value) => metricText(run.metric, value, 0), yLabel: inWords(run.metric),
      label: told(run, (_, i) => metricText(run.metric, last[i])),
    });
  },
  rows(state) {
    const { last, best } = clientScores(state.detail);
    const metric = state.detail.metric;
    const rows = state.detail.lanes.map((lane, i) => [lane.name, metricText(metric, last[i]), metricText(metric, best[i])]);
    return table(["client", "latest", "best"], rows, `${metric} per client`);
  },
};

/** The evaluations of single clients. @param {RunModel} run */
function clientRows(run) {
  return run.rows.flatMap((row) => (row.clients ? [row.clients] : []));
}

/** @param {RunModel} run */
function clientScores(run) {
  const rows = clientRows(run);
  /** @param {ClientValues} row @param {Lane} lane @param {number} i */
  const value = (row, lane, i) => (Array.isArray(row) ? row[i] : row[lane.client]) ?? null;
  return {
    last: run.lanes.map((lane, i) => value(rows[rows.length - 1], lane, i)),
    best: run.lanes.map((lane, i) => bestOf(rows.map((row) => value(row, lane, i)), run.falls(run.metric))),
  };
}

/** @type {PanelSpec} */
const budgetPanel = {
  id: "budget",
  title: "Privacy spent",
  hidden: (state) => state.runs.every((run) => run.lanes.every((lane) => !lane.spent.length)),
  caption: (state) =>
    "What each client had spent of its privacy budget (ε) when an update of its came. A line that ends early is a client that " +
    `left: its budget allowed no further step.${oneOf(state)}`,
  missing: (state) => (state.detail.lanes.some((lane) => lane.spent.length) ? null : "This run was not private."),
  draw(panel, state) {
    const run = state.detail;
    /** @type {LineSeries[]} */
    const series = run.lanes.map((lane, i) => ({ name: lane.name, colour: theme.of(i), points: lane.spent, band: [] }));
    panel.legend.replaceChildren(...legendOf(series));
    lineChart(panel.chart, {
      ...timeAxis(run.scale, "time"), series, target: null, reached: [], share: false,
      yText: short, tickText: short, yLabel: "ε spent",
      label: told(run, (lane) => short(lane.spent.at(-1)?.[1])),
    });
  },
  rows(state) {
    const { scale } = state.detail;
    const rows = state.detail.lanes.map((lane) => {
      const last = lane.spent.at(-1);
      return [lane.name, last ? short(last[1]) : "–", lane.steps, last ? scale.text(last[0]) : "–"];
    });
    return table(["client", "ε spent", "steps", "last update"], rows, "Privacy spent per client");
  },
};
