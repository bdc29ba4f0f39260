// Making elements. Text only ever becomes text nodes: a run's names cannot become markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @template {Element} E
 * @param {E} node @param {Attributes | null} attributes @param {Children} children
 */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value); // such as onclick
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Attributes | null} attributes @param {Children} children
 */
function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag @param {Attributes | null} attributes @param {Children} children
 */
function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** An element that page.html has. @param {string} id */
function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/** A table of text; numbers stand right. @param {string[]} header @param {Cell[][]} rows @param {string} caption */
function table(header, rows, caption) {
  /** @param {"td" | "th"} tag @param {Cell} value @param {string} [scope] */
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

/** @param {Children[number]} content @param {() => void} act @param {Attributes} [attributes] */
function button(content, act, attributes) {
  return el("button", { type: "button", onclick: act, ...attributes }, content);
}

/** What a button is for, where it shows a sign. @param {string} label */
function named(label) {
  return { "aria-label": label, title: label };
}

/**
 * Buttons of which one is pressed.
 * @template {string} T
 * @param {string} label @param {[value: T, text: string][]} options @param {T} chosen @param {(value: T) => void} choose
 */
function switcher(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) =>
    button(text, () => choose(value), { "aria-pressed": String(value === chosen) }),
  );
  return el("div", { class: "switch", role: "group", "aria-label": label }, buttons);
}

/** @param {string} label @param {string[]} options @param {number} chosen @param {(number: number) => void} choose */
function chooser(label, options, chosen, choose) {
  const items = options.map((text, value) =>
    el("option", { value, selected: value === chosen }, text),
  );
  const select = el("select", null, items);
  select.addEventListener("change", () => choose(Number(select.value)));
  return el("label", { class: "chooser" }, `${label} `, select);
}

/** The one tooltip: a heading and lines, near a point of the window. */
const tip = {
  /** @param {number} x @param {number} y @param {string} heading @param {string[]} lines */
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
  /** Shows words while a pointer is on a shape. @param {SVGElement} shape @param {string} heading @param {string[]} lines */
  on(shape, heading, lines) {
    shape.addEventListener("pointermove", (event) => tip.show(event.clientX, event.clientY, heading, lines));
    shape.addEventListener("pointerleave", () => tip.hide());
  },
};

/** Okabe and Ito's colours, told apart by people with any colour vision; in CSS by theme. */
const theme = {
  /** @type {Colours} */
  colours: {
    ink: "", soft: "", line: "", panel: "", lane: "", bad: "", warmUp: "", series: [],
  },
  read() {
    const style = getComputedStyle(document.documentElement);
    const value = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
    theme.colours = {
      ink: value("ink"),
      soft: value("soft"),
      line: value("line"),
      panel: value("panel"),
      lane: value("lane"),
      bad: value("bad"),
      warmUp: value("warm-up"),
      series: Array.from({ length: COLOURS }, (_, i) => i + 1).map((n) => value(`series-${n}`)),
    };
  },
  /** @param {number} number */
  of(number) {
    const series = theme.colours.series;
    return series[((number % series.length) + series.length) % series.length];
  },
  /** @param {number} number */
  isPale(number) {
    return Math.floor(number / theme.colours.series.length) % 2 === 1;
  },
  /** Black or white, whichever has more contrast (WCAG) on a colour. @param {string} colour */
  on(colour) {
    const linear = (/** @type {number} */ i) => (parseInt(colour.slice(i, i + 2), 16) / 255) ** 2.2;
    const luminance = 0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5);
    return luminance > 0.19 ? "#101418" : "#ffffff";
  },
};

// As fedcompass.report.figures.style: in widths of a line; with the seven colours the first 28 pairs differ.
const DASHES = [[], [3.7, 1.6], [1, 1.65], [6.4, 1.6, 1, 1.6]];
const LINE_WIDTH = 2.2;

/** @param {number} number */
function dashOf(number) {
  return DASHES[number % DASHES.length].map((length) => length * LINE_WIDTH).join(" ");
}

/** Let the browser draw and answer before going on. @returns {Promise<void>} */
function pause() {
  const { scheduler } = globalThis;
  if (scheduler?.yield) return scheduler.yield();
  return new Promise((resolve) => setTimeout(resolve, 0));
}
