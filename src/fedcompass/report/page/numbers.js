// Numbers as text, ticks for axes, and searching in sorted lists.

const SHARES = ["accuracy", "balanced_accuracy", "binary_accuracy", "concordance", "dice"];

/** A number in about three digits: 1,234 12.3 0.0123; short however large. @param {number | null | undefined} value */
function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e12) return value.toExponential(2).replace(/\.?0+e/, "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  if (size >= 10) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  return size === 0 ? "0" : String(Number(value.toPrecision(2)));
}

/** @param {number | null | undefined} share */
function percent(share, digits = 0) {
  return share === null || share === undefined || !Number.isFinite(share) ? "–" : `${(100 * share).toFixed(digits)}%`;
}

/** @param {number} count */
function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(count) >= 1000 && unit < units.length - 1) [count, unit] = [count / 1000, unit + 1];
  return `${short(count)} ${units[unit]}`;
}

/** @param {number} count @param {string} one */
function counted(count, one, many = `${one}s`) {
  return `${short(count)} ${count === 1 ? one : many}`;
}

/** @param {string} name @param {number | null | undefined} value */
function metricText(name, value, digits = 1) {
  return isShare(name) ? percent(value, digits) : short(value);
}

/** @param {string} metric */
function isShare(metric) {
  return SHARES.includes(metric);
}

/** @param {string} metric */
function inWords(metric) {
  return metric.replaceAll("_", " ");
}

/**
 * Round steps for an axis from low to high, about so many.
 * @param {number} low @param {number} high @param {number} about
 */
function ticks(low, high, about) {
  const span = high - low;
  if (!(span > 0) || about < 1) return [low];
  const raw = span / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((m) => m * power >= raw * 0.999) ?? 10);
  /** @type {number[]} */
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

/** Tells times: in seconds, minutes or hours by how long the run is; as a clock if it counts minutes. */
class TimeScale {
  /** @param {string} unit @param {number} extent */
  constructor(unit, extent) {
    this.clock = unit === "min";
    this.unit = unit;
    this.divisor = 1;
    if (unit === "s" && extent > 3 * 3600) [this.unit, this.divisor] = ["h", 3600];
    else if (unit === "s" && extent > 900) [this.unit, this.divisor] = ["min", 60];
  }

  /** A moment for a tooltip or a table. @param {number | null | undefined} time */
  text(time) {
    if (time === null || time === undefined) return "–";
    if (this.clock) return clockText(time);
    const value = time / this.divisor;
    const digits = Math.abs(value) < 10 ? 3 : 2;
    return `${Number(value.toFixed(digits))}${this.unit ? ` ${this.unit}` : ""}`;
  }

  /** Moments for an axis with their labels. @type {Ticks} */
  ticks(low, high, about) {
    const d = this.divisor;
    const places = ticks(low / d, high / d, about);
    const step = places.length > 1 ? places[1] - places[0] : 1;
    const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
    return places.map((value) => ({
      at: value * d,
      label: this.clock ? clockText(value) : value.toFixed(digits),
    }));
  }

  get axis() {
    return this.clock ? "min:s" : this.unit;
  }
}

/** A length of time in at most two units. @param {number} seconds */
function duration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** @param {number} minutes */
function clockText(minutes) {
  const seconds = Math.round(minutes * 60);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${two(Math.floor(seconds / 60))}:${two(seconds % 60)}`;
}

/**
 * The first index whose item is not before the mark; items are sorted by `of`.
 * @template T
 * @param {T[]} items @param {number} mark @param {(item: T) => number} of
 */
function firstFrom(items, mark, of) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(items[middle]) < mark) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Sample standard deviation; none of fewer than two. @param {number[]} values */
function spread(values) {
  if (values.length < 2) return null;
  const middle = mean(values);
  return Math.sqrt(values.reduce((sum, v) => sum + (v - middle) ** 2, 0) / (values.length - 1));
}

/** @param {number[]} values */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Not a number of none, which `short` and `percent` show as a dash. @param {number[]} values */
function mean(values) {
  return values.reduce((sum, v) => sum + v, 0) / values.length;
}

/** The largest of many numbers: `Math.max(...)` overflows the stack on long lists. @param {number[]} values */
function largest(values, least = 0) {
  let most = least;
  for (const value of values) if (value > most) most = value;
  return most;
}

/** Likewise. @param {number[]} values */
function smallest(values) {
  return values.reduce((a, b) => Math.min(a, b), Infinity);
}
