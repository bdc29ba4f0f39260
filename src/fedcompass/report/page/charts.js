// Small charts as SVG: lines with bands, bars, points. Each has a table beside it on the page.

const MARGIN = { left: 66, right: 18, top: 12, bottom: 42 };

/** An empty chart that fills its host's width; gives scales from values to pixels. */
function frame(host, { height = 260, x, y, xLabel, yLabel, label }) {
  const width = Math.max(260, host.clientWidth);
  const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom];
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const px = (value) => left + ((value - x[0]) / (x[1] - x[0] || 1)) * (right - left);
  const py = (value) => bottom - ((value - y[0]) / (y[1] - y[0] || 1)) * (bottom - top);
  root.append(
    svg("text", { x: (left + right) / 2, y: height - 6, class: "axis", "text-anchor": "middle" }, xLabel),
    svg(
      "text",
      { class: "axis", "text-anchor": "middle", transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)` },
      yLabel,
    ),
  );
  host.replaceChildren(root);
  return { root, px, py, left, right, top, bottom, width, height };
}

function yTicks(f, range, text) {
  for (const value of ticks(range[0], range[1], 5)) {
    const y = f.py(value);
    f.root.append(
      svg("line", { x1: f.left, x2: f.right, y1: y, y2: y, class: "grid" }),
      svg("text", { x: f.left - 7, y: y + 4, class: "tick", "text-anchor": "end" }, text(value)),
    );
  }
}

function xTick(f, x, label) {
  f.root.append(
    svg("line", { x1: x, x2: x, y1: f.bottom, y2: f.bottom + 4, class: "edge" }),
    svg("text", { x, y: f.bottom + 17, class: "tick", "text-anchor": "middle" }, label),
  );
}

/** A line on which each value holds until the next. */
function stepped(points) {
  return points.flatMap(([x, y], i) => (i ? [[x, points[i - 1][1]], [x, y]] : [[x, y]]));
}

function path(points, f) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${f.px(x).toFixed(1)} ${f.py(y).toFixed(1)}`).join("");
}

/** At most so many points of a line, evenly, with its ends. */
function thinned(points, most = 800) {
  if (points.length <= most) return points;
  const step = (points.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, i) => points[Math.round(i * step)]);
}

/** Some room around values; shares stay within 0 and 1. */
function rangeOf(values, share) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!Number.isFinite(low)) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return share ? [Math.max(0, low - room), Math.min(1, high + room)] : [low - room, high + room];
}

/**
 * Lines over a common axis.
 * series: [{name, colour, dash, points: [[x, y]], band: [[x, low, high]]}]
 */
function lineChart(host, { series, xTicks, xText, xLabel, yLabel, yText, tickText, share, target, reached, label }) {
  const drawn = series.filter((one) => one.points.length);
  const xs = drawn.map((one) => one.points.at(-1)[0]);
  const ys = drawn.flatMap((one) => [...one.points.map((p) => p[1]), ...one.band.flatMap((b) => [b[1], b[2]])]);
  if (target !== null) ys.push(target);
  const [x, y] = [[0, largest(xs) || 1], rangeOf(ys, share)];
  const f = frame(host, { height: 320, x, y, xLabel, yLabel, label });
  yTicks(f, y, tickText);
  for (const tick of xTicks(x[0], x[1], (f.right - f.left) / 90)) xTick(f, f.px(tick.at), tick.label);
  for (const one of drawn) {
    if (one.band.length) f.root.append(bandOf(one, f, drawn.length));
  }
  for (const one of drawn) {
    const d = path(stepped(thinned(one.points)), f);
    f.root.append(svg("path", { d, class: "series", stroke: one.colour, "stroke-dasharray": one.dash || null }));
  }
  if (target !== null) drawTarget(f, target, yText(target), reached);
  crosshair(host, f, x, drawn, { xText, yText });
}

function bandOf(one, f, among) {
  const band = thinned(one.band);
  const over = stepped(band.map(([x, , high]) => [x, high]));
  const under = stepped(band.map(([x, low]) => [x, low])).reverse();
  return svg("path", { d: `${path([...over, ...under], f)}Z`, class: "band", fill: one.colour, "fill-opacity": among > 4 ? 0.5 : null });
}

function drawTarget(f, target, words, reached) {
  const y = f.py(target);
  f.root.append(
    svg("line", { x1: f.left, x2: f.right, y1: y, y2: y, class: "target" }),
    svg("text", { x: f.left + 8, y: y - 5, class: "tick haloed" }, `target ${words}`),
  );
  for (const { x, colour } of reached) {
    const at = f.px(x);
    f.root.append(
      svg("line", { x1: at, x2: at, y1: y, y2: f.bottom, class: "drop", stroke: colour }),
      svg("circle", { cx: at, cy: y, r: 4.5, fill: colour, class: "dot" }),
    );
  }
}

function crosshair(host, f, x, series, { xText, yText }) {
  const line = svg("line", { y1: f.top, y2: f.bottom, class: "cross", visibility: "hidden" });
  f.root.append(line);
  f.root.addEventListener("pointermove", (event) => {
    const box = f.root.getBoundingClientRect();
    const at = ((event.clientX - box.left) * f.width) / box.width;
    const value = x[0] + ((at - f.left) / (f.right - f.left)) * (x[1] - x[0]);
    if (value < x[0] || value > x[1]) return;
    line.setAttribute("visibility", "visible");
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    const lines = series.map((one) => `${one.name}: ${yText(valueAt(one.points, value))}`);
    tip.show(event.clientX, event.clientY, xText(value), lines);
  });
  f.root.addEventListener("pointerleave", () => {
    line.setAttribute("visibility", "hidden");
    tip.hide();
  });
}

/**
 * Bars: one cluster per category, one bar per series, stacked if told.
 * series: [{name, colour, values, hatched, pale}]; ticks: a short line per category, such as a wish.
 */
function barChart(host, { categories, series, stacked, xLabel, yLabel, yText, marks, highest, label }) {
  const sums = categories.map((_, i) => series.map((one) => one.values[i] ?? 0));
  const tops = sums.map((values) => (stacked ? values.reduce((a, b) => a + b, 0) : largest(values)));
  const top = highest ?? (largest([...tops, ...(marks?.values ?? [])]) * 1.06 || 1);
  const y = [0, top];
  const f = frame(host, { x: [0, categories.length], y, xLabel, yLabel, label });
  if (series.some((one) => one.hatched)) f.root.append(hatchedFill());
  yTicks(f, y, yText);
  const room = (f.right - f.left) / categories.length;
  const cluster = Math.min(room * 0.8, 34 * (stacked ? 1 : series.length));
  const every = Math.ceil((largest(categories.map((c) => c.length)) * 6.6 + 8) / room);
  categories.forEach((category, i) => {
    const middle = f.left + room * (i + 0.5);
    if (i % every === 0) xTick(f, middle, category);
    let base = 0;
    series.forEach((one, s) => {
      const value = one.values[i] ?? 0;
      const wide = stacked ? cluster : cluster / series.length;
      const x = middle - cluster / 2 + (stacked ? 0 : s * wide);
      const bar = rectangle(f, x, wide, base, value, one);
      if (stacked) base += value;
      bar.addEventListener("pointermove", (event) => {
        tip.show(event.clientX, event.clientY, category, [`${one.name}: ${yText(value)}`]);
      });
      bar.addEventListener("pointerleave", () => tip.hide());
      f.root.append(bar);
    });
    const mark = marks?.values[i];
    if (mark !== undefined && mark !== null) {
      const at = f.py(mark);
      const reach = Math.max(cluster / 2 + 4, 5);
      f.root.append(svg("line", { x1: middle - reach, x2: middle + reach, y1: at, y2: at, class: "wish" }));
    }
  });
  f.root.append(svg("line", { x1: f.left, x2: f.right, y1: f.bottom, y2: f.bottom, class: "edge" }));
}

function rectangle(f, x, width, base, value, one) {
  const [low, high] = [f.py(base), f.py(base + value)];
  return svg("rect", {
    x: x + 0.5,
    y: high,
    width: Math.max(1, width - 1),
    height: Math.max(0, low - high),
    fill: one.hatched ? "url(#hatched)" : one.colour,
    ...(one.pale ? { "fill-opacity": 0.3, stroke: one.colour } : {}),
    class: "bar",
  });
}

function hatchedFill() {
  return svg(
    "defs",
    null,
    svg(
      "pattern",
      { id: "hatched", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("line", { x1: 0, x2: 0, y1: 0, y2: 6, class: "hatch" }),
    ),
  );
}

/** Points against the diagonal, both axes alike; logarithmic if values are far apart. */
function scatterChart(host, { points, xLabel, yLabel, text, label }) {
  const values = points.flatMap((point) => [point.x, point.y]).filter((value) => value > 0);
  const [low, high] = [values.reduce((a, b) => Math.min(a, b), Infinity), largest(values)];
  const log = high / low > 8;
  const to = (value) => (log ? Math.log10(Math.max(value, low)) : value);
  const room = (to(high) - to(low) || 1) * 0.06;
  const range = [log ? to(low) - room : Math.max(0, to(low) - room), to(high) + room];
  const f = frame(host, { height: 300, x: range, y: range, xLabel, yLabel, label });
  let free = -Infinity;
  for (const value of log ? logTicks(low, high) : ticks(range[0], range[1], 5)) {
    if (to(value) < range[0] || to(value) > range[1] || f.px(to(value)) < free) continue;
    free = f.px(to(value)) + 40;
    xTick(f, f.px(to(value)), text(value));
    const y = f.py(to(value));
    f.root.append(
      svg("line", { x1: f.left, x2: f.right, y1: y, y2: y, class: "grid" }),
      svg("text", { x: f.left - 7, y: y + 4, class: "tick", "text-anchor": "end" }, text(value)),
    );
  }
  f.root.append(
    svg("line", { x1: f.px(range[0]), y1: f.py(range[0]), x2: f.px(range[1]), y2: f.py(range[1]), class: "target" }),
  );
  for (const point of points) {
    const dot = svg("circle", { cx: f.px(to(point.x)), cy: f.py(to(point.y)), r: 3.5, fill: point.colour, class: "point" });
    dot.addEventListener("pointerenter", (event) => tip.show(event.clientX, event.clientY, point.name, point.lines));
    dot.addEventListener("pointerleave", () => tip.hide());
    f.root.append(dot);
  }
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1; power++) {
    for (const times of high / low > 100 ? [1] : [1, 2, 5]) found.push(times * 10 ** power);
  }
  return found;
}
