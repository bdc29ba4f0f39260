// A pen that takes down a timeline's strokes as SVG: what a canvas draws, for pictures without pixels.

/** As much of a canvas's pen as timelines use. */
class SvgPen {
  font = "";
  fillStyle = "";
  strokeStyle = "";
  lineWidth = 1;
  globalAlpha = 1;
  textAlign = "left";
  textBaseline = "middle";
  #path = "";
  #dash = "";

  /** @param {CanvasRenderingContext2D} measure @param {string} clip id of the clip path that `clip` makes */
  constructor(measure, clip) {
    this.measure = measure;
    this.clipId = clip;
    this.root = svg("g", null, hatchedFill("timeline-hatch"));
    /** Where shapes go. @type {SVGElement} */
    this.layer = this.root;
  }

  save() {}

  restore() {
    this.layer = this.root;
  }

  clip() {
    const shape = svg("clipPath", { id: this.clipId }, svg("path", { d: this.#path }));
    this.layer = svg("g", { "clip-path": `url(#${this.clipId})` });
    this.root.append(shape, this.layer);
  }

  beginPath() {
    this.#path = "";
  }

  closePath() {
    this.#path += "Z";
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.#path += `M${places(x, y)}`;
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.#path += `L${places(x, y)}`;
  }

  /** @param {number} x @param {number} y @param {number} r */
  arc(x, y, r) {
    this.#path += `M${places(x - r, y)}a${places(r, r)} 0 1 0 ${places(2 * r, 0)}a${places(r, r)} 0 1 0 ${places(-2 * r, 0)}`;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  rect(x, y, width, height) {
    this.#path += `M${places(x, y)}h${places(width)}v${places(height)}h${places(-width)}Z`;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  roundRect(x, y, width, height) {
    this.rect(x, y, width, height);
  }

  /** @param {number[]} lengths */
  setLineDash(lengths) {
    this.#dash = lengths.join(" ");
  }

  fill() {
    this.layer.append(svg("path", { d: this.#path, ...this.#filled() }));
  }

  stroke() {
    this.layer.append(svg("path", { d: this.#path, fill: "none", ...this.#stroked() }));
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  fillRect(x, y, width, height) {
    this.layer.append(svg("rect", { x: places(x), y: places(y), width: places(width), height: places(height), ...this.#filled() }));
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.layer.append(svg("rect", { x, y, width, height, fill: "none", ...this.#stroked() }));
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    this.layer.append(svg("text", { ...this.#placed(x, y), ...this.#filled() }, text));
  }

  /** @param {string} text @param {number} x @param {number} y */
  strokeText(text, x, y) {
    this.layer.append(svg("text", { ...this.#placed(x, y), ...this.#stroked() }, text));
  }

  /** @param {string} text */
  measureText(text) {
    return this.measure.measureText(text);
  }

  /** @param {number} x @param {number} y */
  #placed(x, y) {
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign] ?? "start";
    const [size, ...family] = this.font.split(" ");
    return { x: places(x), y: places(y), "font-size": size, "font-family": family.join(" "), "text-anchor": anchor, "dominant-baseline": "central" };
  }

  #filled() {
    const fill = typeof this.fillStyle === "string" ? this.fillStyle : "url(#timeline-hatch)"; // a canvas's pattern
    return { fill, "fill-opacity": this.globalAlpha < 1 ? this.globalAlpha : null };
  }

  #stroked() {
    const opacity = this.globalAlpha < 1 ? this.globalAlpha : null;
    return { stroke: this.strokeStyle, "stroke-width": this.lineWidth, "stroke-dasharray": this.#dash || null, "stroke-opacity": opacity };
  }
}

/** @param {number[]} values */
function places(...values) {
  return values.map((value) => Number(value.toFixed(2))).join(" ");
}
