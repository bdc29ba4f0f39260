// One run, built from its journal line by line: lanes of local rounds, merges, deadlines, sums.
// What is counted, and how, says fedcompass.runs.tally; a test compares every number.

const FASTEST = 1e-9; // seconds per step, below which fedcompass.scheduling.pace believes no client
const COLOURS = 7; // that neighbouring groups share among them
const clientOrder = new Intl.Collator("en", { numeric: true });

class RunModel {
  /** @type {Header} */
  header = {};
  /** @type {Lane[]} */
  lanes = [];
  /** @type {Map<string, Lane>} */
  byClient = new Map();
  /** By their id. @type {Map<number, Task>} */
  tasks = new Map();
  /** @type {Merge[]} */
  merges = [];
  /** Sums that could not be opened. @type {{ at: number, members: string[], lost: number }[]} */
  failures = [];
  /** @type {Deadline[]} */
  deadlines = [];
  /** The lanes of each group's tasks. @type {Map<number, Set<Lane>>} */
  members = new Map();
  /** Which colour each group has. @type {Map<number, number>} */
  groupColours = new Map();
  /** When groups are planned to be complete. @type {Map<number, number>} */
  due = new Map();
  /** How many updates had each staleness. @type {number[]} */
  staleness = [];
  weighed = false; // whether the journal knows weights
  /** Times of transfers to clients. @type {number[]} */
  dispatched = [];
  /** And back. @type {number[]} */
  arrived = [];
  /** @type {Evaluation[]} */
  rows = [];
  begun = false; // it has given its first task
  now = 0;
  damaged = 0;

  /** @param {Facts} facts */
  constructor(facts) {
    this.facts = facts;
  }

  /** Forget all lines. */
  clear() {
    Object.assign(this, new RunModel(this.facts));
  }

  get strategy() {
    const chosen = this.facts.settings?.strategy;
    const named = typeof chosen === "string" ? chosen : chosen?.name;
    return named || this.header.strategy?.name || "schedule";
  }

  get seed() {
    return this.facts.settings?.seed ?? this.header.seed ?? null;
  }

  /** What clients that answer together are called. */
  get together() {
    return this.header.strategy?.scheduler === "metronome" ? "beat" : "group";
  }

  get end() {
    if (this.facts.cut_short) return this.now; // what came after is not known
    const { virtual_seconds: simulated, seconds } = this.facts.summary ?? {};
    return Math.max(this.now, simulated ?? seconds ?? 0);
  }

  get unit() {
    return this.header.unit ?? "s";
  }

  get scale() {
    return new TimeScale(this.unit, this.end);
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
    if (summary.ended !== undefined) return ["nobody left", "too few left"].includes(summary.ended);
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

  /** Which share of it is done; null if nobody said when it ends. */
  get share() {
    if (this.facts.finished) return 1;
    const { horizon, max_seconds: seconds, max_updates: updates } = this.facts.settings ?? {};
    const limit = horizon ?? seconds;
    const shares = [...(limit ? [this.now / limit] : []), ...(updates ? [this.merges.length / updates] : [])];
    return shares.length ? Math.min(1, largest(shares)) : null;
  }

  /**
   * Seconds that a federation still needs to its limits, by its own time; null if nothing can be said. Versions come as
   * fast as the later half of those made so far: the first ones, of one client each, come faster.
   */
  secondsLeft() {
    const { max_seconds: seconds, max_updates: updates } = this.facts.settings ?? {};
    const [last, half] = [this.merges.at(-1), this.merges[this.merges.length >> 1]];
    const perVersion = last && last.version > half.version ? (last.at - half.at) / (last.version - half.version) : null;
    const left = [
      ...(seconds ? [seconds - this.now] : []),
      ...(updates && last && perVersion !== null ? [(updates - last.version) * perVersion] : []),
    ];
    return left.length ? Math.max(0, Math.min(...left)) : null;
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
    const row = this.rows[0] ?? {};
    return Object.keys(row).filter((key) => !["time", "version", "clients"].includes(key));
  }

  /** @param {LineFile} file @param {string} line */
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

  /** @param {string} client */
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

  /** @param {JournalEvent} record */
  takeEvent(record) {
    if (record.at > this.now) this.now = record.at;
    if (record.event === "MergeFailed") {
      const last = this.merges.at(-1); // a merge of the same event was made after the one that failed
      if (last && last.version >= record.version) last.version -= 1;
    }
    if (!("client" in record)) return;
    const lane = this.lane(record.client);
    switch (record.event) {
      case "ClientJoined":
        lane.samples = record.samples;
        lane.pace = null; // it warms up again
        this.drop(lane, record.at);
        this.wait(lane, record.at);
        break;
      case "UpdateArrived":
        this.arrive(lane, record);
        break;
      case "UpdateRefused": {
        lane.refused += 1;
        if (record.reason === "not-finite") lane.notFinite += 1;
        this.arrived.push(record.at);
        const task = this.answer(lane, record, "refused");
        if (task) task.reason = record.reason;
        else lane.marks.push({ at: record.at, reason: record.reason });
        break;
      }
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

  /** @param {JournalCommand} record */
  takeCommand(record) {
    switch (record.command) {
      case "StartTraining":
        this.start(this.lane(record.client), record);
        break;
      case "Fold":
        this.fold(this.lane(record.client), record);
        break;
      case "Discard":
        this.discard(this.lane(record.client), record);
        break;
      case "FoldAgain": // no answer of its own, but it weighs
        this.lane(record.client).weight += record.weight ?? 0;
        break;
      case "Commit":
        this.commit(record);
        break;
      case "SetDeadline":
        this.deadlines.push({ at: record.at, group: record.group });
        if (record.due !== undefined) this.due.set(record.group, record.due);
        break;
      case "Quarantine": {
        const lane = this.lane(record.client);
        this.drop(lane, record.at);
        lane.switchTo("quarantined", record.at);
        break;
      }
    }
  }

  /** @param {Commit} record */
  commit(record) {
    for (const buffer of record.buffers) this.due.delete(buffer);
    if (record.failed !== undefined) {
      this.failures.push({ at: record.at, members: record.members ?? [], lost: record.lost?.length ?? 0 });
      return;
    }
    this.merges.push({
      at: record.at,
      version: record.version,
      group: record.buffers.find((buffer) => buffer > 0) ?? null,
      contributions: record.contributions.filter(([, task]) => !record.left_out?.includes(task)),
    });
  }

  /** @param {Lane} lane @param {StartTraining} record */
  start(lane, record) {
    const pace = lane.pace;
    const expected = pace ? pace.overhead / record.steps + pace.perStep : null;
    /** @type {Task} */
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
      expected,
      staleness: null,
      weight: null,
      reason: null,
      waitedUntil: null,
    };
    if (!this.begun) this.begin(record.at);
    lane.switchTo("busy", record.at);
    lane.tasks.push(task);
    if (task.group !== null) {
      if (!this.groupColours.has(task.group)) this.groupColours.set(task.group, this.freeColour());
      const members = this.members.get(task.group) ?? new Set();
      this.members.set(task.group, members.add(lane));
    }
    this.tasks.set(task.id, task);
    this.dispatched.push(record.at);
    lane.open = task;
  }

  /** A colour for a new group: the next that no client's latest bars have. */
  freeColour() {
    const latest = this.lanes.flatMap((lane) => lane.tasks.slice(-2).map((task) => task.group ?? 0));
    const taken = new Set(latest.map((group) => this.groupColours.get(group)));
    const next = this.groupColours.size ? ([...this.groupColours.values()].at(-1) ?? 0) + 1 : 0;
    const order = Array.from({ length: COLOURS }, (_, i) => (next + i) % COLOURS);
    return order.find((colour) => !taken.has(colour)) ?? order[0];
  }

  /** Nobody waits before the run's first task. @param {number} at */
  begin(at) {
    this.begun = true;
    for (const lane of this.lanes.filter((one) => one.doing === "waiting")) {
      lane.since = at;
      lane.spans.waiting.push([at, null, null]);
    }
  }

  /** @param {Lane} lane @param {number} at */
  wait(lane, at) {
    lane.switchTo("waiting", at);
    if (this.begun) return;
    lane.since = null;
    lane.spans.waiting.pop();
  }

  /**
   * Ends a client's task and gives it; null for a stray answer, which changes nothing.
   * @param {Lane} lane @param {{ at: number, task: number }} record @param {TaskState} state
   */
  answer(lane, record, state) {
    const task = lane.open;
    if (task?.id !== record.task) return null;
    task.end = record.at;
    task.state = state;
    this.wait(lane, record.at);
    const due = task.group === null ? undefined : this.due.get(task.group);
    if (due !== undefined) lane.waitUntilDue(due);
    [lane.open, lane.last] = [null, task];
    return task;
  }

  /** @param {Lane} lane @param {Arrival} record */
  arrive(lane, record) {
    this.arrived.push(record.at);
    const task = this.answer(lane, record, record.steps_done > 0 ? "done" : "lost");
    if (!task) return;
    task.done = record.steps_done;
    if (task.done > 0) this.learnPace(lane, record, record.at - task.start);
  }

  /** As fedcompass.scheduling.pace.observed. @param {Lane} lane @param {Arrival} record @param {number} elapsed */
  learnPace(lane, { steps_done: steps, compute_seconds: told = null }, elapsed) {
    const settings = this.header.strategy?.scheduling?.pace ?? {};
    const compute = told !== null && told >= 0 && told <= elapsed ? told : elapsed; // else not believed
    const spent = settings.overhead_aware ? compute : elapsed;
    const seen = { perStep: Math.max(spent / steps, FASTEST), overhead: elapsed - spent };
    lane.took.push(Math.max(compute / steps, FASTEST));
    const newest = settings.newest_weight ?? 1;
    const before = lane.pace ?? seen;
    lane.pace = {
      perStep: newest * seen.perStep + (1 - newest) * before.perStep,
      overhead: newest * seen.overhead + (1 - newest) * before.overhead,
    };
  }

  /** @param {Lane} lane @param {Fold} record */
  fold(lane, record) {
    lane.updates += 1;
    lane.steps += record.steps;
    this.staleness[record.staleness] = (this.staleness[record.staleness] ?? 0) + 1;
    if (record.weight !== undefined) {
      lane.weight += record.weight;
      this.weighed = true;
    }
    if (record.epsilon !== undefined) lane.spent.push([record.at, record.epsilon]);
    const task = this.tasks.get(record.task);
    if (!task) return;
    task.staleness = record.staleness;
    task.weight = record.weight ?? null;
    if (record.buffer === 0 && task.group !== null) {
      task.state = "late"; // its group had merged: it waits in the general buffer
      lane.late += 1;
    }
  }

  /** No merge will have it. @param {Lane} lane @param {Discard} record */
  discard(lane, record) {
    lane.steps += record.steps;
    if (record.epsilon !== undefined) lane.spent.push([record.at, record.epsilon]);
    const task = this.tasks.get(record.task);
    if (task) task.state = "discarded";
  }

  /** The task it is at is lost. @param {Lane} lane @param {number} at */
  drop(lane, at) {
    if (lane.open) [lane.open.end, lane.open.state] = [at, "gone"];
    lane.open = null;
  }

  idleShare() {
    return this.#share("waiting");
  }

  /** Of the idle share, the part in which a client's group was not due: it waited by plan. */
  aheadShare() {
    return this.#share("ahead");
  }

  /** Of the time in which clients had work or waited for it. @param {"waiting" | "ahead"} of */
  #share(of) {
    let [whole, part] = [0, 0];
    for (const lane of this.lanes) {
      const sums = lane.until(this.end);
      whole += sums.busy + sums.waiting;
      part += sums[of];
    }
    return whole > 0 ? part / whole : 0;
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

  /** How often the model had travelled, down or up, before an evaluation. @param {number} time */
  transfersBefore(time) {
    const down = firstFrom(this.dispatched, time, (t) => t);
    const up = firstFrom(this.arrived, time * (1 + 1e-12), (t) => t);
    return down + up;
  }

  /** Whether a metric is to fall; a record of old does not say, and then only a loss is. @param {string} metric */
  falls(metric) {
    const { settings } = this.facts;
    if (metric === this.metric && typeof settings?.higher_is_better === "boolean") return !settings.higher_is_better;
    return (this.header.lower_is_better ?? ["loss"]).includes(metric);
  }

  /** Where an evaluation stands along an axis. @param {Evaluation} row @param {Axis} axis */
  place(row, axis) {
    if (axis === "time") return row.time;
    if (axis === "updates") return row.version;
    return this.transfersBefore(row.time) * (this.modelBytes ?? 1);
  }

  /** The first evaluation that is as good as the target. @param {number} target @param {string} metric */
  reached(target, metric) {
    const falls = this.falls(metric);
    return this.rows.find((row) => {
      const value = measured(row, metric);
      return value !== null && (falls ? value <= target : value >= target);
    });
  }

  /** The best value of a metric. @param {string} metric */
  top(metric) {
    return bestOf(this.rows.map((row) => measured(row, metric)), this.falls(metric));
  }
}

/** A metric's value; null if there is none. @param {Evaluation} row @param {string} metric */
function measured(row, metric) {
  const value = row[metric];
  return typeof value === "number" ? value : null;
}

/** The best of the values that are there. @param {(number | null)[]} values @param {boolean} falls */
function bestOf(values, falls) {
  /** @type {number | null} */
  let best = null;
  for (const value of values) {
    if (value !== null && (best === null || (falls ? value < best : value > best))) best = value;
  }
  return best;
}

/** One for several runs. @param {RunModel[]} runs */
function commonScale(runs) {
  return new TimeScale(runs[0].unit, largest(runs.map((run) => run.end)));
}

