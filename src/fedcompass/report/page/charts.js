// Small charts as SVG: lines with bands, bars, points. Each has a table beside it on the page.

const MARGIN = { left: 66, right: 18, top: 12, bottom: 42 };
const LARGEST_DRAWN = 1e300; // the room around a larger value would have no end

/** An empty chart that fills its host's width. @param {HTMLElement} host @param {FrameOptions} options @returns {Frame} */
function frame(host, { height = 260, x, y, xLabel, yLabel, label }) {
  const width = Math.max(260, host.clientWidth);
  const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom];
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const px = (/** @type {number} */ value) => left + ((value - x[0]) / (x[1] - x[0] || 1)) * (right - left);
  const py = (/** @type {number} */ value) => bottom - ((value - y[0]) / (y[1] - y[0] || 1)) * (bottom - top);
  root.append(
    svg("text", { x: (left + right) / 2, y: height - 6, class: "axis", "text-anchor": "middle" }, xLabel),
    svg(
      "text",
      { class: "axis", "text-anchor": "middle", transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)` },
      yLabel,
    ),
  );
  host.replaceChildren(root);
  const at = (/** @type {MouseEvent} */ event) => {
    const box = root.getBoundingClientRect();
    return Math.min(right, Math.max(left, ((event.clientX - box.left) * width) / box.width));
  };
  const value = (/** @type {number} */ pixel) => x[0] + ((pixel - left) / (right - left)) * (x[1] - x[0]);
  return { root, px, py, at, value, left, right, top, bottom, width };
}

/** @param {Frame} f @param {Interval} range @param {NumberText} text */
function yTicks(f, range, text) {
  for (const value of ticks(range[0], range[1], 5)) yTick(f, f.py(value), text(value));
}

/** @param {Frame} f @param {number} y @param {string} label */
function yTick(f, y, label) {
  f.root.append(
    svg("line", { x1: f.left, x2: f.right, y1: y, y2: y, class: "grid" }),
    svg("text", { x: f.left - 7, y: y + 4, class: "tick", "text-anchor": "end" }, label),
  );
}

/** @param {Frame} f @param {number} x @param {string} label */
function xTick(f, x, label) {
  f.root.append(
    svg("line", { x1: x, x2: x, y1: f.bottom, y2: f.bottom + 4, class: "edge" }),
    svg("text", { x, y: f.bottom + 17, class: "tick", "text-anchor": "middle" }, label),
  );
}

/** A line on which each value holds until the next. @param {Point[]} points @returns {Point[]} */
function stepped(points) {
  return points.flatMap(([x, y], i) => (i ? [[x, points[i - 1][1]], [x, y]] : [[x, y]]));
}

/** An axis of time. @param {TimeScale} scale @param {string} words @returns {{ xTicks: Ticks, xText: NumberText, xLabel: string }} */
function timeAxis(scale, words) {
  return {
    xTicks: (low, high, about) => scale.ticks(low, high, about),
    xText: (x) => scale.text(x),
    xLabel: scale.axis ? `${words} (${scale.axis})` : words,
  };
}

/** @param {Point[]} points @param {Frame} f */
function path(points, f) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${f.px(x).toFixed(1)} ${f.py(y).toFixed(1)}`).join("");
}

/** At most so many points of a line, evenly, with its ends. @template T @param {T[]} points */
function thinned(points, most = 800) {
  if (points.length <= most) return points;
  const step = (points.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, i) => points[Math.round(i * step)]);
}

/** Some room around values; shares stay within 0 and 1. @param {number[]} values @param {boolean} share @returns {Interval} */
function rangeOf(values, share) {
  const drawn = values.map((value) => Math.max(-LARGEST_DRAWN, Math.min(value, LARGEST_DRAWN)));
  const [low, high] = [smallest(drawn), largest(drawn, -Infinity)];
  if (!Number.isFinite(low)) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return share ? [Math.max(0, low - room), Math.min(1, high + room)] : [low - room, high + room];
}

/** Lines over a common axis. @param {HTMLElement} host @param {LineChartOptions} options */
function lineChart(host, { series, height = 320, xTicks, xText, xLabel, yLabel, yText, tickText, share, target, reached, zoom = null, zoomTo, label }) {
  const some = series.filter((one) => one.points.length);
  /** @type {Interval} */
  const whole = [0, largest(some.map((one) => one.points[one.points.length - 1][0])) || 1];
  const x = zoom ?? whole;
  const drawn = some.map((one) => ({ ...one, points: within(one.points, x), band: within(one.band, x) }));
  const ys = drawn.flatMap((one) => [...one.points.map((p) => p[1]), ...one.band.flatMap((b) => [b[1], b[2]])]);
  if (target !== null && !zoom) ys.push(target);
  const y = rangeOf(ys, share);
  const f = frame(host, { height, x, y, xLabel, yLabel, label });
  yTicks(f, y, tickText);
  for (const tick of xTicks(x[0], x[1], (f.right - f.left) / 90)) xTick(f, f.px(tick.at), tick.label);
  const area = svg("rect", { x: f.left, y: f.top, width: f.right - f.left, height: f.bottom - f.top });
  const clip = `plot-${xLabel}-${yLabel}`.replace(/[^a-z]+/g, "-"); // unlike any other chart's
  const plot = svg("g", { "clip-path": `url(#${clip})` });
  f.root.append(svg("clipPath", { id: clip }, area), plot);
  plot.append(...drawn.filter((one) => one.band.length).map((one) => bandOf(one, f, drawn.length)));
  for (const one of drawn) {
    const d = path(stepped(thinned(one.points)), f);
    plot.append(svg("path", { d, class: "series", stroke: one.colour, "stroke-dasharray": one.dash || null }));
  }
  if (target !== null && target >= y[0] && target <= y[1]) drawTarget(f, plot, target, yText(target), reached);
  crosshair(f, drawn, { xText, yText });
  if (zoomTo) zoomable(f, whole, zoomTo);
}

/** The part of a line in a stretch of its axis, from the last point before it on. @template {[x: number, ...number[]]} T @param {T[]} points @param {Interval} x @returns {T[]} */
function within(points, x) {
  const first = Math.max(0, firstFrom(points, x[0], (point) => point[0]) - 1);
  return points.slice(first, firstFrom(points, x[1], (point) => point[0]) + 1);
}

/** @param {LineSeries} one @param {Frame} f @param {number} among */
function bandOf(one, f, among) {
  const band = thinned(one.band);
  const over = stepped(band.map(([x, , high]) => [x, high]));
  const under = stepped(band.map(([x, low]) => [x, low])).reverse();
  return svg("path", { d: `${path([...over, ...under], f)}Z`, class: "band", fill: one.colour, "fill-opacity": among > 4 ? 0.5 : null });
}

/** @param {Frame} f @param {SVGElement} plot @param {number} target @param {string} words @param {LineChartOptions["reached"]} reached */
function drawTarget(f, plot, target, words, reached) {
  const y = f.py(target);
  plot.append(
    svg("line", { x1: f.left, x2: f.right, y1: y, y2: y, class: "target" }),
    svg("text", { x: f.left + 8, y: y - 5, class: "tick haloed" }, `target ${words}`),
  );
  for (const { x, off, colour } of reached) {
    const at = f.px(x);
    plot.append(
      svg("line", { x1: at, x2: at, y1: y, y2: f.bottom, class: "drop", stroke: colour }),
      svg("line", { x1: f.px(x - off), x2: f.px(x + off), y1: y, y2: y, class: "whisker", stroke: colour }),
      svg("circle", { cx: at, cy: y, r: 4.5, fill: colour, class: "dot" }),
    );
  }
}

/** @param {Frame} f @param {LineSeries[]} series @param {{ xText: NumberText, yText: NumberText }} texts */
function crosshair(f, series, { xText, yText }) {
  const line = svg("line", { y1: f.top, y2: f.bottom, class: "cross", visibility: "hidden" });
  f.root.append(line);
  f.root.addEventListener("pointermove", (event) => {
    const at = f.at(event);
    const value = f.value(at);
    fill(line, { visibility: "visible", x1: at, x2: at }, []);
    const known = series.filter((one) => one.points[0][0] <= value);
    tip.show(event.clientX, event.clientY, xText(value), known.map((one) => `${one.name}: ${valueText(one, value, yText)}`));
  });
  f.root.addEventListener("pointerleave", () => {
    line.setAttribute("visibility", "hidden");
    tip.hide();
  });
}

/** A line's value at a place, with one standard deviation over its seeds. @param {LineSeries} one @param {number} x @param {NumberText} text */
function valueText({ points, band }, x, text) {
  const index = Math.max(0, firstFrom(points, x + 1e-9, (point) => point[0]) - 1);
  const off = band.length ? ` ± ${text((band[index][2] - band[index][1]) / 2)}` : "";
  return `${text(points[index][1])}${off}`;
}

const LEAST_DRAG = 6; // pixels; less is a click

/**
 * Dragging chooses the stretch to show, Ctrl and the wheel zoom, a double click shows all.
 * @param {Frame} f @param {Interval} whole @param {(range: Interval | null) => void} zoomTo
 */
function zoomable(f, whole, zoomTo) {
  const chosen = svg("rect", { y: f.top, height: f.bottom - f.top, class: "chosen", visibility: "hidden" });
  /** @type {number | null} */
  let from = null;
  f.root.classList.add("zoomable");
  f.root.append(chosen);
  f.root.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = f.at(event);
    f.root.setPointerCapture(event.pointerId);
  });
  f.root.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const to = f.at(event);
    fill(chosen, { x: Math.min(from, to), width: Math.abs(to - from), visibility: "visible" }, []);
  });
  f.root.addEventListener("pointerup", (event) => {
    const [low, high] = [from ?? 0, f.at(event)].sort((a, b) => a - b);
    const dragged = from !== null && high - low >= LEAST_DRAG;
    from = null;
    chosen.setAttribute("visibility", "hidden");
    if (dragged) zoomTo([f.value(low), f.value(high)]);
  });
  f.root.addEventListener("dblclick", () => zoomTo(null));
  f.root.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // it scrolls the page
    event.preventDefault();
    const [middle, factor] = [f.value(f.at(event)), Math.exp(event.deltaY / 300)];
    const low = Math.max(whole[0], middle - (middle - f.value(f.left)) * factor);
    const high = Math.min(whole[1], middle + (f.value(f.right) - middle) * factor);
    zoomTo(high - low >= whole[1] - whole[0] ? null : [low, high]);
  }, { passive: false });
}

/** Bars and their legend: one cluster per category, one bar per series, stacked if told. @param {Panel} panel @param {BarChartOptions} options */
function barChart(panel, { categories, series, stacked = false, xLabel, yLabel, yText, marks = [], mark, highest, label }) {
  panel.legend.replaceChildren(...legendOf([...series, ...(mark ? [{ name: mark, tick: true }] : [])]));
  const sums = categories.map((_, i) => series.map((one) => one.values[i] ?? 0));
  const tops = sums.map((values) => (stacked ? values.reduce((a, b) => a + b, 0) : largest(values)));
  const top = highest ?? (largest([...tops, ...marks.map((wish) => wish ?? 0)]) * 1.06 || 1);
  const f = frame(panel.chart, { x: [0, categories.length], y: [0, top], xLabel, yLabel, label });
  if (series.some((one) => one.hatched)) f.root.append(hatchedFill("hatched"));
  yTicks(f, [0, top], yText);
  const room = (f.right - f.left) / categories.length;
  const cluster = Math.min(room * 0.8, 34 * (stacked ? 1 : series.length));
  const wide = stacked ? cluster : cluster / series.length;
  const every = Math.ceil((largest(categories.map((c) => c.length)) * 6.6 + 8) / room);
  categories.forEach((category, i) => {
    const middle = f.left + room * (i + 0.5);
    if (i % every === 0) xTick(f, middle, category);
    let base = 0;
    series.forEach((one, s) => {
      const value = one.values[i] ?? 0;
      const bar = rectangle(f, middle - cluster / 2 + (stacked ? 0 : s * wide), wide, base, value, one);
      if (stacked) base += value;
      tip.on(bar, category, [`${one.name}: ${yText(value)}`]);
      f.root.append(bar);
    });
    const wish = marks[i] ?? null;
    if (wish === null) return;
    const [reach, y] = [Math.max(cluster / 2 + 4, 5), f.py(wish)];
    f.root.append(svg("line", { x1: middle - reach, x2: middle + reach, y1: y, y2: y, class: "wish" }));
  });
  f.root.append(svg("line", { x1: f.left, x2: f.right, y1: f.bottom, y2: f.bottom, class: "edge" }));
}

/** @param {Frame} f @param {number} x @param {number} width @param {number} base @param {number} value @param {Look} look */
function rectangle(f, x, width, base, value, look) {
  const [low, high] = [f.py(base), f.py(base + value)];
  return svg("rect", {
    x: x + 0.5,
    y: high,
    width: Math.max(1, width - 1),
    height: Math.max(0, low - high),
    ...fillOf(look, "hatched"),
    class: "bar",
  });
}

/** How a bar or its key in a legend is filled. @param {Look} look @param {string} hatch */
function fillOf({ colour, hatched, pale }, hatch) {
  if (hatched) return { fill: `url(#${hatch})` };
  return { fill: colour, ...(pale ? { "fill-opacity": 0.3, stroke: colour } : {}) };
}

/** @param {string} id */
function hatchedFill(id) {
  return svg(
    "defs",
    null,
    svg(
      "pattern",
      { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("line", { y2: 6, class: "hatch", stroke: theme.colours.soft, "stroke-width": 2.4 }),
    ),
  );
}

/** Points against the diagonal, both axes alike; logarithmic if values are far apart. @param {HTMLElement} host @param {ScatterChartOptions} options */
function scatterChart(host, { points, xLabel, yLabel, text, label }) {
  const values = points.flatMap((point) => [point.x, point.y]).filter((value) => value > 0);
  const [low, high] = [smallest(values), largest(values)];
  const log = high / low > 8;
  const to = (/** @type {number} */ value) => (log ? Math.log10(Math.max(value, low)) : value);
  const room = (to(high) - to(low) || 1) * 0.06;
  /** @type {Interval} */
  const range = [log ? to(low) - room : Math.max(0, to(low) - room), to(high) + room];
  const f = frame(host, { height: 300, x: range, y: range, xLabel, yLabel, label });
  let free = -Infinity;
  for (const value of log ? logTicks(low, high) : ticks(range[0], range[1], 5)) {
    const place = log ? Math.log10(value) : value; // not clamped, as points are
    const x = f.px(place);
    if (place < range[0] || place > range[1] || x < free) continue;
    free = x + 40;
    xTick(f, x, text(value));
    yTick(f, f.py(place), text(value));
  }
  f.root.append(
    svg("line", { x1: f.px(range[0]), y1: f.py(range[0]), x2: f.px(range[1]), y2: f.py(range[1]), class: "target" }),
  );
  for (const { x, y, colour, name, lines } of points) {
    const dot = svg("circle", { cx: f.px(to(x)), cy: f.py(to(y)), r: 3.5, fill: colour, class: "point" });
    tip.on(dot, name, lines);
    f.root.append(dot);
  }
}

/** @param {number} low @param {number} high */
function logTicks(low, high) {
  /** @type {number[]} */
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1; power++) {
    for (const times of high / low > 100 ? [1] : [1, 2, 5]) found.push(times * 10 ** power);
  }
  return found;
}
