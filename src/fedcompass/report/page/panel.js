// A panel of the page: a chart with a caption, and the same as a table.

class Panel {
  words = el("p", { class: "caption" });
  controls = el("div", { class: "controls" });
  chart = el("div", { class: "chart" });
  legend = el("div", { class: "legend" });
  notes = el("div", { class: "notes" });
  exports = el("div", { class: "exports" });
  details = el("details", null, el("summary", null, "Show as a table"));
  /** What the chart was made for, where it is made anew only if need be. */
  signature = "";
  /** What it shows. @type {PageState | null} */
  state = null;

  /** @param {PanelSpec} spec */
  constructor(spec) {
    const { id, title, wide } = spec;
    this.spec = spec;
    this.heading = el("h2", { id: `${id}-title` }, title);
    this.details.addEventListener("toggle", () => this.fillTable());
    for (const kind of spec.rows ? /** @type {const} */ (["png", "svg"]) : []) {
      const sign = kind.toUpperCase();
      this.exports.append(button(sign, () => savePicture(this, kind), named(`Save as ${sign}: ${id}`)));
    }
    this.element = el(
      "section",
      { id, class: wide ? "panel wide" : "panel", "aria-labelledby": `${id}-title` },
      [this.exports, this.heading, this.words, this.controls, this.legend, this.chart, this.notes, this.details],
    );
  }

  /** @param {PageState} state */
  refresh(state) {
    this.state = state;
    this.words.textContent = this.spec.caption(state);
    const missing = this.spec.missing?.(state) ?? null;
    this.element.classList.toggle("empty", missing !== null);
    this.details.hidden = missing !== null || !this.spec.rows;
    this.exports.hidden = this.controls.hidden = this.legend.hidden = this.notes.hidden = missing !== null;
    if (missing === null) this.spec.draw(this, state);
    else this.chart.replaceChildren(el("p", { class: "missing" }, missing));
    this.fillTable();
  }

  /** Say something below the chart. @param {string} words */
  note(words) {
    this.notes.replaceChildren(el("p", { class: "caption" }, words));
  }

  fillTable() {
    this.details.querySelector(".table")?.remove();
    if (!this.details.open || this.details.hidden || !this.state || !this.spec.rows) return;
    const content = this.spec.rows(this.state, () => this.fillTable());
    this.details.append(el("div", { class: "table" }, content));
  }
}

/** @param {Look[]} looks */
function legendOf(looks) {
  return looks.map((look) => el("span", { class: "key" }, keyOf(look), ` ${look.name}`));
}

/** A key that shows and hides what it stands for. @param {Look} look @param {boolean} shown @param {() => void} act */
function toggleOf(look, shown, act) {
  return button([keyOf(look), ` ${look.name}`], act, { class: "key", "aria-pressed": String(shown) });
}

/** A line for one with a dash, a dot or a short line if it is one, else a patch. @param {Look} look */
function keyOf(look) {
  const { colour, dash, hatched, dot, tick } = look;
  const shape = dot
    ? svg("circle", { cx: 12, cy: 6, r: 4.5, fill: colour })
    : tick
    ? svg("line", { x1: 2, x2: 22, y1: 6, y2: 6, class: "wish" })
    : dash !== undefined
    ? svg("line", { x2: 40, y1: 6, y2: 6, stroke: colour, "stroke-width": LINE_WIDTH, "stroke-dasharray": dash || null })
    : hatched
      ? svg("rect", { width: 24, height: 12, ...fillOf(look, "legend-hatch"), class: "outlined" })
      : svg("rect", { y: 1, width: 16, height: 10, rx: 2, ...fillOf(look, "legend-hatch") });
  return svg("svg", { width: dash === undefined ? 24 : 40, height: 12, "aria-hidden": "true" }, shape);
}

/** @param {PageState} state @param {RunModel} run */
function runLabel(state, run) {
  const group = state.groups.find((one) => one.runs.includes(run));
  if (!group) return run.strategy;
  return group.runs.length > 1 ? `${group.label}, seed ${run.seed}` : group.label;
}
