// One run, built from its journal line by line: lanes of local rounds, merges, deadlines, sums.
// The sums are those of fedcompass.simulation.statistics.

const clientOrder = new Intl.Collator("en", { numeric: true });

class Lane {
  constructor(client) {
    this.client = client;
    this.samples = null;
    this.tasks = []; // in the order of their start
    this.marks = []; // refusals of answers to no live task
    this.away = []; // [from, until]; until is null while it lasts
    this.open = null; // the task it is training
    this.last = null; // the answered task after which it waits
    this.pace = null; // what the scheduler believes: {perStep, overhead}
    this.updates = 0;
    this.refused = 0;
    this.late = 0;
    this.steps = 0;
    this.weight = 0;
    this.busy = 0;
    this.waiting = 0;
  }

  get name() {
    return /^\d+$/.test(this.client) ? `client ${this.client}` : this.client;
  }

  /** Busy and waiting seconds with what is under way counted up to now. */
  until(now) {
    const busy = this.busy + (this.open ? now - this.open.start : 0);
    const waiting = this.waiting + (this.last ? now - this.last.end : 0);
    return { busy, waiting };
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

  /** When the run had to end, as far as anybody said. */
  get horizon() {
    return this.facts.settings?.horizon ?? this.facts.settings?.max_seconds ?? this.end;
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
        if (lane.open) this.leave(lane, record.at);
        this.comeBack(lane, record.at);
        break;
      case "UpdateArrived":
        this.answer(lane, record, record.steps_done > 0 ? "done" : "lost");
        this.arrived.push(record.at);
        break;
      case "UpdateRefused":
        lane.refused += 1;
        this.arrived.push(record.at);
        if (lane.open?.id === record.task) this.answer(lane, record, "refused");
        else lane.marks.push({ at: record.at, reason: record.reason });
        break;
      case "TaskLost":
        this.answer(lane, record, "lost");
        break;
      case "ClientLost":
        this.leave(lane, record.at);
        lane.away.push([record.at, null]);
        break;
      case "QuarantineLifted":
        this.comeBack(lane, record.at);
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
        this.leave(lane, record.at);
        lane.away.push([record.at, null]);
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
    if (lane.last) {
      lane.waiting += record.at - lane.last.end;
      lane.last.waitedUntil = record.at;
    }
    lane.tasks.push(task);
    if (task.group !== null) {
      if (!this.members.has(task.group)) this.members.set(task.group, new Set());
      this.members.get(task.group).add(lane);
    }
    this.tasks.set(task.id, task);
    this.dispatched.push(record.at);
    [lane.open, lane.last] = [task, null];
  }

  answer(lane, record, state) {
    const task = lane.open;
    if (!task) return;
    task.end = record.at;
    task.state = state;
    task.reason = record.reason ?? null;
    task.done = record.steps_done ?? null;
    lane.busy += record.at - task.start;
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

  leave(lane, at) {
    if (lane.open) [lane.open.end, lane.open.state] = [at, "gone"];
    if (lane.last) lane.last.waitedUntil = at;
    lane.open = lane.last = null;
  }

  comeBack(lane, at) {
    const gap = lane.away.at(-1);
    if (gap && gap[1] === null) gap[1] = at;
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

  /** The slowest client's time per step over the fastest one's. */
  speedRatio() {
    const paces = this.lanes.filter((lane) => lane.pace).map((lane) => lane.pace.perStep);
    return paces.length > 1 ? Math.max(...paces) / Math.min(...paces) : null;
  }

  /** How often the model had travelled, down or up, before an evaluation. */
  transfersBefore(time) {
    const down = firstFrom(this.dispatched, time, (t) => t);
    const up = firstFrom(this.arrived, time * (1 + 1e-12), (t) => t);
    return down + up;
  }

  timeTo(target, metric) {
    const enough = (value) => (metric === "loss" ? value <= target : value >= target);
    const row = this.rows.find((r) => typeof r[metric] === "number" && enough(r[metric]));
    return row ? row.time : null;
  }

  top(metric) {
    let best = null;
    for (const row of this.rows) {
      const value = row[metric];
      if (typeof value !== "number") continue;
      if (best === null || (metric === "loss" ? value < best[metric] : value > best[metric])) best = row;
    }
    return best;
  }
}

