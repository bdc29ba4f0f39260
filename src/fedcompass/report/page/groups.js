// Runs that differ in their seed only are one group: one line with a band, one row of a table.

class Group {
  constructor(label, runs, number) {
    this.label = label;
    this.runs = runs;
    this.number = number;
  }

  get colour() {
    return theme.of(this.number);
  }

  get dash() {
    return DASHES[this.number % DASHES.length];
  }

  run(seed) {
    return this.runs[Math.min(seed, this.runs.length - 1)];
  }

  /**
   * Mean time to the target over the runs that reached it, and how many did; `rank` counts those
   * that missed it at their horizon, so that failing never looks fast.
   */
  timeToTarget() {
    const first = this.runs[0];
    if (first.target === null || !first.rows.length) return null;
    const times = this.runs.map((run) => run.timeTo(first.target, first.metric));
    const reached = times.filter((time) => time !== null);
    const ranked = this.runs.map((run, i) => times[i] ?? run.horizon);
    return { time: mean(reached), reached: reached.length, runs: times.length, rank: mean(ranked) };
  }

  /** Mean, lowest and highest value of a metric over the runs, as points along an axis. */
  curve(metric, axis) {
    const curves = this.runs
      .map((run) => pointsOf(run, metric, axis))
      .filter((points) => points.length > 0);
    if (curves.length < 2) return { points: curves[0] ?? [], band: [] };
    const ends = curves.map((points) => points.at(-1)[0]);
    const grid = Array.from({ length: 201 }, (_, i) => (i / 200) * Math.max(...ends));
    const [points, band] = [[], []];
    for (const x of grid) {
      // a run that ended before the others counts no more, unless only it is left
      const values = curves.filter((_, i) => ends[i] >= x - 1e-9).map((c) => valueAt(c, x));
      points.push([x, mean(values)]);
      band.push([x, Math.min(...values), Math.max(...values)]);
    }
    return { points, band };
  }
}

function pointsOf(run, metric, axis) {
  const place = {
    time: (row) => row.time,
    updates: (row) => row.version,
    bytes: (row) => run.transfersBefore(row.time) * (run.modelBytes ?? 1),
  }[axis];
  return run.rows
    .filter((row) => typeof row[metric] === "number")
    .map((row) => [place(row), row[metric]]);
}

/** The latest value measured up to a place. */
function valueAt(points, x) {
  const after = firstFrom(points, x + 1e-9, (point) => point[0]);
  return points[Math.max(0, after - 1)][1];
}

/** Runs by what can be compared, the most runs first; labels say what tells the sets apart. */
function comparableSets(runs) {
  const byKey = new Map();
  for (const run of runs) {
    const { settings = {}, label = "" } = run.facts.common ?? {};
    const clients = run.facts.kind === "schedule" ? run.lanes.length : null; // not in any setting
    const key = JSON.stringify([settings, clients]);
    if (!byKey.has(key)) byKey.set(key, { settings: { ...settings, clients }, label, runs: [] });
    byKey.get(key).runs.push(run);
  }
  const sets = [...byKey.values()].sort((a, b) => b.runs.length - a.runs.length);
  return sets.map((set) => ({ ...set, label: setLabel(set, sets) }));
}

function setLabel(set, sets) {
  const twins = sets.filter((other) => other.label === set.label);
  if (twins.length === 1) return set.label;
  const keys = [...new Set(twins.flatMap((twin) => Object.keys(twin.settings)))];
  const apart = keys.filter((key) => new Set(twins.map((twin) => twin.settings[key])).size > 1);
  const marks = apart.slice(0, 3).map((key) => `${key.split(".").at(-1)} ${set.settings[key] ?? "unset"}`);
  return `${set.label}, ${marks.join(", ")}`;
}

/** Runs as groups, in the order given; labels say what tells groups apart. */
function grouped(runs) {
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
