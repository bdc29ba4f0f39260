// Runs that differ in their seed only are one group: one line with a band, one row of a table.

class Group {
  /** @param {string} label @param {RunModel[]} runs @param {number} number */
  constructor(label, runs, number) {
    this.label = label;
    this.runs = runs;
    this.number = number;
  }

  get colour() {
    return theme.of(this.number);
  }

  get dash() {
    return dashOf(this.number);
  }

  /** Whether its bars are pale with an edge, to be told from those of the same colour. */
  get pale() {
    return theme.isPale(this.number);
  }

  /** Whether nothing more comes of its runs. */
  get over() {
    return this.runs.every((run) => run.facts.finished);
  }

  /** @param {number} seed */
  run(seed) {
    return this.runs[Math.min(seed, this.runs.length - 1)];
  }

  /**
   * Mean time to the target over the runs that reached it, none if fewer than half did, and how many
   * did; `rank` counts those that missed it at their horizon, so that failing never looks fast. As
   * fedcompass.sweeps.over_seeds.
   * @returns {TimeToTarget | null}
   */
  timeToTarget() {
    const { target, metric, rows } = this.runs[0];
    if (target === null || !rows.length) return null;
    const times = this.runs.map((run) => run.reached(target, metric)?.time ?? null);
    const reached = times.filter((time) => time !== null);
    const ranked = this.runs.map((run, i) => times[i] ?? run.horizon);
    const time = 2 * reached.length >= times.length ? mean(reached) : null;
    const counts = { reached: reached.length, runs: times.length };
    return { time, spread: time === null ? null : spread(reached), ...counts, rank: mean(ranked) };
  }

  /**
   * Mean of a metric over the runs, and a band of one standard deviation around it, along an axis:
   * as fedcompass.report.figures.curves. A run's value holds until its next evaluation; the curve ends
   * where the shortest run ends, so that no seed drops out of the mean on the way.
   * @param {string} metric @param {Axis} axis @returns {Curve}
   */
  curve(metric, axis) {
    const measured = this.runs
      .map((run) => ({ run, points: pointsOf(run, metric, axis) }))
      .filter(({ points }) => points.length > 0);
    if (!measured.length) return { points: [], band: [] };
    const ends = measured.map(({ run, points }) => (axis === "time" ? run.knownUntil : points[points.length - 1][0]));
    const [end, begin] = [Math.min(...ends), Math.max(...measured.map(({ points }) => points[0][0]))];
    const every = new Set([...measured.flatMap(({ points }) => points.map(([x]) => x)), end]);
    const places = [...every].filter((x) => x >= begin && x <= end).sort((a, b) => a - b);
    const values = measured.map(({ points }) => heldAt(points, places));
    /** @type {Curve} */
    const curve = { points: [], band: [] };
    places.forEach((x, i) => {
      const here = values.map((run) => run[i]);
      const [middle, off] = [mean(here), spread(here)];
      curve.points.push([x, middle]);
      if (off !== null) curve.band.push([x, middle - off, middle + off]);
    });
    return curve;
  }
}

/** The latest value known at each place; of several at one place, the last. @param {Point[]} points @param {number[]} places */
function heldAt(points, places) {
  let at = 0;
  return places.map((x) => {
    while (at + 1 < points.length && points[at + 1][0] <= x) at += 1;
    return points[at][1];
  });
}

/** @param {RunModel} run @param {string} metric @param {Axis} axis @returns {Point[]} */
function pointsOf(run, metric, axis) {
  return run.rows.flatMap((row) => {
    const value = measured(row, metric);
    return value === null ? [] : [[run.place(row, axis), value]];
  });
}

/** Runs by what can be compared, the most runs first; labels say what tells the sets apart. @param {RunModel[]} runs */
function comparableSets(runs) {
  /** @type {Map<string, RunSet>} */
  const byKey = new Map();
  for (const run of runs) {
    const { settings = {}, label = "" } = run.facts.common ?? {};
    const clients = run.facts.kind === "schedule" ? run.lanes.length : null; // not in any setting
    const key = JSON.stringify([settings, clients]);
    const set = byKey.get(key) ?? { settings: { ...settings, clients }, label, runs: [] };
    set.runs.push(run);
    byKey.set(key, set);
  }
  const sets = [...byKey.values()].sort((a, b) => b.runs.length - a.runs.length);
  return sets.map((set) => ({ ...set, label: setLabel(set, sets) }));
}

/** @param {RunSet} set @param {RunSet[]} sets */
function setLabel(set, sets) {
  const twins = sets.filter((other) => other.label === set.label);
  if (twins.length === 1) return set.label;
  const keys = [...new Set(twins.flatMap((twin) => Object.keys(twin.settings)))];
  const apart = keys.filter((key) => new Set(twins.map((twin) => twin.settings[key])).size > 1);
  const marks = apart.slice(0, 3).map((key) => `${key.split(".").at(-1)} ${set.settings[key] ?? "unset"}`);
  return `${set.label}, ${marks.join(", ")}`;
}

/** Runs as groups, in the order given; labels say what tells groups apart. @param {RunModel[]} runs */
function grouped(runs) {
  /** @type {Map<string, RunModel[]>} */
  const byKey = new Map();
  for (const run of runs) {
    const { seed: _, fingerprint: __, ...others } = run.facts.settings ?? {};
    const key = JSON.stringify([run.facts.kind, run.strategy, run.facts.settings ? others : run.facts.name]);
    byKey.set(key, [...(byKey.get(key) ?? []), run]);
  }
  const names = [...byKey.values()].map((members) => members[0].strategy);
  return [...byKey.values()].map((members, number) => {
    const alone = names.filter((name) => name === names[number]).length === 1;
    const label = alone ? names[number] : `${names[number]} (${members[0].facts.name ?? number})`;
    return new Group(label, members, number);
  });
}
