// Making elements. Text only ever becomes text nodes: a run's names cannot become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

/** A table of text; numbers stand right. */
function table(header, rows, caption) {
  const cell = (tag, value, scope) =>
    el(tag, { scope, class: /^[-–\d]/.test(String(value)) ? "number" : null }, String(value));
  const body = rows.map((row) =>
    el("tr", null, row.map((value, i) => (i ? cell("td", value) : cell("th", value, "row")))),
  );
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el(
      "table",
      null,
      el("caption", { class: "unseen" }, caption),
      el("thead", null, el("tr", null, header.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", null, body),
    ),
  );
}

/** Buttons of which one is pressed. */
function switcher(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) =>
    el(
      "button",
      { type: "button", "aria-pressed": String(value === chosen), onclick: () => choose(value) },
      text,
    ),
  );
  return el("div", { class: "switch", role: "group", "aria-label": label }, buttons);
}

function chooser(label, options, chosen, choose) {
  const items = options.map((text, value) =>
    el("option", { value, selected: value === chosen }, text),
  );
  const select = el("select", { onchange: (event) => choose(Number(event.target.value)) }, items);
  return el("label", { class: "chooser" }, `${label} `, select);
}

/** The one tooltip: a heading and lines, near a point of the window. */
const tip = {
  show(x, y, heading, lines) {
    const box = byId("tip");
    box.replaceChildren(
      el("strong", null, heading),
      ...lines.map((line) => el("div", null, line)),
    );
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = x + 14 + width > innerWidth ? x - width - 14 : x + 14;
    const top = y + 14 + height > innerHeight ? y - height - 14 : y + 14;
    box.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
    box.style.top = `${Math.max(4, top)}px`;
  },
  hide() {
    byId("tip").hidden = true;
  },
};

/** Okabe and Ito's colours, told apart by people with any colour vision; in CSS by theme. */
const theme = {
  colours: {},
  read() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(`--${name}`).trim();
    const plain = ["ink", "soft", "line", "panel", "lane", "ground", "bad", "warm-up"];
    theme.colours = Object.fromEntries(plain.map((name) => [name, value(name)]));
    theme.colours.series = [1, 2, 3, 4, 5, 6, 7].map((n) => value(`series-${n}`));
  },
  of(number) {
    const series = theme.colours.series;
    return series[((number % series.length) + series.length) % series.length];
  },
  isPale(number) {
    return Math.floor(number / theme.colours.series.length) % 2 === 1;
  },
  /** Black or white, whichever has more contrast (WCAG) on a colour. */
  on(colour) {
    const linear = (i) => (parseInt(colour.slice(i, i + 2), 16) / 255) ** 2.2;
    const luminance = 0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5);
    return luminance > 0.19 ? "#101418" : "#ffffff";
  },
};

// As fedcompass.figures.style: in widths of a line; with the seven colours the first 28 pairs differ.
const DASHES = [[], [3.7, 1.6], [1, 1.65], [6.4, 1.6, 1, 1.6]];
const LINE_WIDTH = 2.2;

function dashOf(number) {
  return DASHES[number % DASHES.length].map((length) => length * LINE_WIDTH).join(" ");
}

/** Let the browser draw and answer before going on. */
function pause() {
  if (globalThis.scheduler?.yield) return scheduler.yield();
  return new Promise((resolve) => setTimeout(resolve, 0));
}
