// One run, built from its journal line by line: lanes of local rounds, merges, deadlines, sums.
// What is counted, and how, says fedcompass.runs.tally; a test compares every number.

const clientOrder = new Intl.Collator("en", { numeric: true });

class Lane {
  constructor(client) {
    this.client = client;
    this.samples = null;
    this.tasks = []; // in the order of their start
    this.marks = []; // refusals of answers to no live task
    this.doing = "away"; // or busy, waiting, quarantined
    this.since = null; // when it began that; null: does not count (yet)
    this.spans = { waiting: [], quarantined: [], away: [] }; // [from, until]; null while it lasts
    this.open = null; // the task it is training
    this.last = null; // the answered task after which it waits
    this.took = []; // seconds per step of each answer, without overhead where that is known
    this.pace = null; // what the scheduler believes: {perStep, overhead}
    this.updates = 0;
    this.refused = 0;
    this.notFinite = 0; // of the refused: they held NaN or infinity
    this.late = 0;
    this.steps = 0;
    this.weight = 0;
    this.busy = 0;
    this.waiting = 0;
    this.quarantined = 0;
  }

  get name() {
    return /^\d+$/.test(this.client) ? `client ${this.client}` : this.client;
  }

  /** Its seconds with what is under way counted up to now. */
  until(now) {
    const sums = { busy: this.busy, waiting: this.waiting, quarantined: this.quarantined };
    if (this.doing !== "away" && this.since !== null) sums[this.doing] += Math.max(0, now - this.since);
    return sums;
  }

  /** Do something else from now on. */
  switchTo(doing, at) {
    const sums = this.until(at);
    [this.busy, this.waiting, this.quarantined] = [sums.busy, sums.waiting, sums.quarantined];
    const spans = this.spans[this.doing];
    const span = spans?.at(-1);
    if (span && span[1] === null) {
      span[1] = at;
      if (span[0] >= at) spans.pop();
    }
    if (this.last) this.last.waitedUntil = at;
    [this.doing, this.since, this.last] = [doing, at, null];
    this.spans[doing]?.push([at, null]);
  }
}

class RunModel {
  constructor(facts) {
    this.facts = facts;
    this.clear();
  }

  clear() {
    this.header = {};
    this.lanes = [];
    this.byClient = new Map();
    this.tasks = new Map();
    this.merges = [];
    this.deadlines = [];
    this.members = new Map(); // the lanes of each group's tasks
    this.staleness = []; // how many updates had each staleness
    this.weighed = false; // whether the journal knows weights
    this.dispatched = []; // times of transfers to clients
    this.arrived = []; // and back
    this.rows = []; // evaluations
    this.begun = false; // it has given its first task
    this.now = 0;
    this.damaged = 0;
  }

  get strategy() {
    const named = this.facts.settings?.strategy?.name ?? this.facts.settings?.strategy;
    return (typeof named === "string" && named) || this.header.strategy?.name || "schedule";
  }

  get seed() {
    return this.facts.settings?.seed ?? this.header.seed ?? null;
  }

  get end() {
    if (this.facts.cut_short) return this.now; // what came after is not known
    const { virtual_seconds: simulated, seconds } = this.facts.summary ?? {};
    return Math.max(this.now, simulated ?? seconds ?? 0);
  }

  get unit() {
    return this.header.unit ?? "s";
  }

  get metric() {
    const { summary, settings } = this.facts;
    return (
      summary?.target_metric ?? settings?.evaluation?.target_metric ?? settings?.target_metric ?? "accuracy"
    );
  }

  get target() {
    const value = this.facts.summary?.target ?? this.facts.settings?.target;
    return typeof value === "number" ? value : null;
  }

  /** Whether it ended because nobody was left to train; records of old do not say so themselves. */
  get brokeOff() {
    const { summary, kind } = this.facts;
    if (!summary || kind !== "simulation") return false;
    if (summary.ended !== undefined) return summary.ended === "nobody left";
    const left = this.lanes.some((lane) => lane.doing === "busy" || lane.doing === "waiting");
    return this.lanes.length > 0 && !left && this.end < this.horizon;
  }

  /** Updates that were refused because they held NaN or infinity. */
  get notFinite() {
    return this.lanes.reduce((sum, lane) => sum + lane.notFinite, 0);
  }

  /** When the run had to end, as far as anybody said. */
  get horizon() {
    return this.facts.settings?.horizon ?? this.facts.settings?.max_seconds ?? this.end;
  }

  /** Up to when its curve is known: the last value holds to the horizon of a run that went so far. */
  get knownUntil() {
    const { settings, summary } = this.facts;
    const last = this.rows.at(-1)?.time ?? 0;
    if (!summary) return last;
    const atLimit = settings?.max_updates != null && (summary.global_updates ?? 0) >= settings.max_updates;
    const atTarget = summary.time_to_target != null && Boolean(settings?.stop_at_target);
    const horizon = atLimit || atTarget ? 0 : settings?.horizon ?? 0;
    return Math.max(last, settings?.run_at_least ?? 0, horizon);
  }

  get modelBytes() {
    return this.header.model_bytes ?? this.facts.model_bytes ?? null;
  }

  metricNames() {
    const row = this.rows[0] || {};
    return Object.keys(row).filter((key) => !["time", "version", "clients"].includes(key));
  }

  addLine(file, line) {
    try {
      const record = JSON.parse(line);
      if (file === "metrics") this.rows.push(record);
      else if (record.event) this.takeEvent(record);
      else if (record.command) this.takeCommand(record);
      else if (record.journal) this.header = record;
    } catch {
      this.damaged += 1; // shown on the page
    }
  }

  lane(client) {
    let lane = this.byClient.get(client);
    if (!lane) {
      lane = new Lane(client);
      this.byClient.set(client, lane);
      let place = this.lanes.length;
      while (place > 0 && clientOrder.compare(this.lanes[place - 1].client, client) > 0) place -= 1;
      this.lanes.splice(place, 0, lane);
    }
    return lane;
  }

  takeEvent(record) {
    if (record.at > this.now) this.now = record.at;
    if (record.client === undefined) return;
    const lane = this.lane(record.client);
    switch (record.event) {
      case "ClientJoined":
        lane.samples = record.samples;
        lane.pace = null; // it warms up again
        this.drop(lane, record.at);
        this.wait(lane, record.at);
        break;
      case "UpdateArrived":
        this.answer(lane, record, record.steps_done > 0 ? "done" : "lost");
        this.arrived.push(record.at);
        break;
      case "UpdateRefused":
        lane.refused += 1;
        if (record.reason === "not-finite") lane.notFinite += 1;
        this.arrived.push(record.at);
        if (lane.open?.id === record.task) this.answer(lane, record, "refused");
        else lane.marks.push({ at: record.at, reason: record.reason });
        break;
      case "TaskLost":
        this.answer(lane, record, "lost");
        break;
      case "ClientLost":
        this.drop(lane, record.at);
        lane.switchTo("away", record.at);
        break;
      case "QuarantineLifted":
        if (lane.doing === "quarantined") this.wait(lane, record.at);
        break;
    }
  }

  takeCommand(record) {
    switch (record.command) {
      case "StartTraining":
        this.start(this.lane(record.client), record);
        break;
      case "Fold":
        this.fold(this.lane(record.client), record);
        break;
      case "Commit":
        this.merges.push({
          at: record.at,
          version: record.version,
          group: record.buffers.find((buffer) => buffer > 0) ?? null,
          contributions: record.contributions,
        });
        break;
      case "SetDeadline":
        this.deadlines.push({ at: record.at, group: record.group });
        break;
      case "Quarantine": {
        const lane = this.lane(record.client);
        this.drop(lane, record.at);
        lane.switchTo("quarantined", record.at);
        break;
      }
    }
  }

  start(lane, record) {
    const pace = lane.pace;
    const expected = pace ? pace.overhead / record.steps + pace.perStep : null;
    const task = {
      id: record.task,
      lane,
      start: record.at,
      end: null,
      asked: record.steps,
      done: null,
      group: record.group,
      version: record.version,
      state: "open",
      expected, // seconds per step, as the scheduler believed when it gave the task
      staleness: null,
      weight: null,
      reason: null,
      waitedUntil: null,
    };
    if (!this.begun) this.begin(record.at);
    lane.switchTo("busy", record.at);
    lane.tasks.push(task);
    if (task.group !== null) {
      if (!this.members.has(task.group)) this.members.set(task.group, new Set());
      this.members.get(task.group).add(lane);
    }
    this.tasks.set(task.id, task);
    this.dispatched.push(record.at);
    lane.open = task;
  }

  /** Nobody waits before the run's first task. */
  begin(at) {
    this.begun = true;
    for (const lane of this.lanes.filter((one) => one.doing === "waiting")) {
      lane.since = at;
      lane.spans.waiting.push([at, null]);
    }
  }

  wait(lane, at) {
    lane.switchTo("waiting", at);
    if (this.begun) return;
    lane.since = null;
    lane.spans.waiting.pop();
  }

  answer(lane, record, state) {
    const task = lane.open;
    if (task?.id !== record.task) return; // a stray answer, which changes nothing
    task.end = record.at;
    task.state = state;
    task.reason = record.reason ?? null;
    task.done = record.steps_done ?? null;
    this.wait(lane, record.at);
    [lane.open, lane.last] = [null, task];
    if (state === "done") this.learnPace(lane, task, record.compute_seconds);
  }

  /** As fedcompass.scheduling.pace.observed. */
  learnPace(lane, task, compute) {
    const settings = this.header.strategy?.scheduling?.pace ?? {};
    const elapsed = task.end - task.start;
    const apart = settings.overhead_aware && compute >= 0 && compute <= elapsed && compute !== null;
    const seen = apart
      ? { perStep: compute / task.done, overhead: elapsed - compute }
      : { perStep: elapsed / task.done, overhead: 0 };
    const known = compute >= 0 && compute <= elapsed && compute !== null;
    lane.took.push((known ? compute : elapsed) / task.done);
    const newest = settings.newest_weight ?? 1;
    const before = lane.pace ?? seen;
    lane.pace = {
      perStep: newest * seen.perStep + (1 - newest) * before.perStep,
      overhead: newest * seen.overhead + (1 - newest) * before.overhead,
    };
  }

  fold(lane, record) {
    lane.updates += 1;
    lane.steps += record.steps;
    this.staleness[record.staleness] = (this.staleness[record.staleness] ?? 0) + 1;
    if (record.weight !== undefined) {
      lane.weight += record.weight;
      this.weighed = true;
    }
    const task = this.tasks.get(record.task);
    if (!task) return;
    task.staleness = record.staleness;
    task.weight = record.weight ?? null;
    if (record.buffer === 0 && task.group !== null && !record.direct) {
      task.state = "late"; // its group had merged: it waits in the general buffer
      lane.late += 1;
    }
  }

  /** The task it is at is lost. */
  drop(lane, at) {
    if (lane.open) [lane.open.end, lane.open.state] = [at, "gone"];
    lane.open = null;
  }

  idleShare() {
    let [busy, waiting] = [0, 0];
    for (const lane of this.lanes) {
      const sums = lane.until(this.end);
      busy += sums.busy;
      waiting += sums.waiting;
    }
    return busy + waiting > 0 ? waiting / (busy + waiting) : 0;
  }

  meanStaleness() {
    let [total, sum] = [0, 0];
    this.staleness.forEach((count, u) => {
      total += count;
      sum += u * count;
    });
    return total ? sum / total : 0;
  }

  updates() {
    return this.lanes.reduce((sum, lane) => sum + lane.updates, 0);
  }

  /**
   * The slowest client's time per step over the fastest one's: of the fleet's paces where they are
   * recorded, else of each client's median round, which a few odd ones do not move.
   */
  speedRatio() {
    const known = this.header.seconds_per_step;
    const paces = Array.isArray(known)
      ? known
      : this.lanes.filter((lane) => lane.took.length).map((lane) => median(lane.took));
    return paces.length > 1 ? largest(paces) / paces.reduce((a, b) => Math.min(a, b)) : null;
  }

  /** How often the model had travelled, down or up, before an evaluation. */
  transfersBefore(time) {
    const down = firstFrom(this.dispatched, time, (t) => t);
    const up = firstFrom(this.arrived, time * (1 + 1e-12), (t) => t);
    return down + up;
  }

  /** Whether a metric is to fall; a record of old does not say, and then only a loss is. */
  falls(metric) {
    const { settings } = this.facts;
    if (metric === this.metric && typeof settings?.higher_is_better === "boolean") return !settings.higher_is_better;
    return (this.header.lower_is_better ?? ["loss"]).includes(metric);
  }

  timeTo(target, metric) {
    const enough = (value) => (this.falls(metric) ? value <= target : value >= target);
    const row = this.rows.find((r) => typeof r[metric] === "number" && enough(r[metric]));
    return row ? row.time : null;
  }

  top(metric) {
    let best = null;
    for (const row of this.rows) {
      const value = row[metric];
      if (typeof value !== "number") continue;
      if (best === null || (this.falls(metric) ? value < best[metric] : value > best[metric])) best = row;
    }
    return best;
  }
}

