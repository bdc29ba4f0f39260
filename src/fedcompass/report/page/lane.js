// One client in a run: its tasks, what it did when, and its sums.

/** @param {string} client */
function clientName(client) {
  return /^\d+$/.test(client) ? `client ${client}` : client;
}

class Lane {
  /** @type {number | null} */
  samples = null;
  /** In the order of their start. @type {Task[]} */
  tasks = [];
  /** @type {Refusal[]} */
  marks = [];
  /** @type {Doing} */
  doing = "away";
  /** When it began that; null: does not count (yet). @type {number | null} */
  since = null;
  /** What it did when; its tasks say when it was busy. @type {Record<Exclude<Doing, "busy">, Span[]>} */
  spans = { waiting: [], quarantined: [], away: [] };
  /** The task it is training. @type {Task | null} */
  open = null;
  /** The answered task after which it waits. @type {Task | null} */
  last = null;
  /** When the group is planned to be complete that it waits with. @type {number | null} */
  due = null;
  /** Seconds per step of each answer, without overhead where that is known. @type {number[]} */
  took = [];
  /** What the scheduler believes. @type {Pace | null} */
  pace = null;
  updates = 0;
  refused = 0;
  notFinite = 0; // of the refused: they held NaN or infinity
  late = 0;
  steps = 0;
  weight = 0;
  /** What it had spent of its privacy budget when each update came. @type {Point[]} */
  spent = [];
  /** Without what is under way. @type {TimeSums} */
  #sums = { busy: 0, waiting: 0, ahead: 0, quarantined: 0 };

  /** @param {string} client */
  constructor(client) {
    this.client = client;
  }

  get name() {
    return clientName(this.client);
  }

  /** Its seconds with what is under way counted up to now. @param {number} now */
  until(now) {
    const sums = { ...this.#sums };
    if (this.doing !== "away" && this.since !== null) {
      sums[this.doing] += Math.max(0, now - this.since);
      if (this.due !== null) sums.ahead += Math.max(0, Math.min(this.due, now) - this.since);
    }
    return sums;
  }

  /** Do something else from now on. @param {Doing} doing @param {number} at */
  switchTo(doing, at) {
    this.#sums = this.until(at);
    if (this.doing !== "busy") this.#endSpan(this.spans[this.doing], at);
    if (this.last) this.last.waitedUntil = at;
    [this.doing, this.since, this.last, this.due] = [doing, at, null, null];
    if (doing !== "busy") this.spans[doing].push([at, null, null]);
  }

  /** It waits with a group that is due then. @param {number} due */
  waitUntilDue(due) {
    const span = this.spans.waiting.at(-1);
    this.due = due;
    if (span) span[2] = due;
  }

  /** @param {Span[]} spans @param {number} at */
  #endSpan(spans, at) {
    const span = spans.at(-1);
    if (span?.[1] !== null) return;
    span[1] = at;
    if (span[0] >= at) spans.pop();
  }
}
