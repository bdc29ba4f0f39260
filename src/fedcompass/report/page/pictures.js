// A panel's picture as a file: heading, legend and charts as one SVG that needs no style sheet, or as a PNG of it.

const KEPT = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-opacity",
  "opacity", "font-size", "font-weight", "font-family", "text-anchor", "paint-order", "visibility",
];
const EDGE = 16; // pixels around a picture
const SHARPER = 2; // pixels of a PNG per pixel of the page

/** @param {Panel} panel @param {"png" | "svg"} kind */
async function savePicture(panel, kind) {
  const picture = pictureOf(panel);
  const text = new XMLSerializer().serializeToString(picture);
  const blob = kind === "svg" ? new Blob([text], { type: "image/svg+xml" }) : await painted(text);
  const link = el("a", { href: URL.createObjectURL(blob), download: `${panel.spec.id}.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** @param {string} text of an SVG */
async function painted(text) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = el("canvas", { width: SHARPER * image.width, height: SHARPER * image.height });
  penOf(canvas).drawImage(image, 0, 0, canvas.width, canvas.height);
  return /** @type {Promise<Blob>} */ (new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the browser made no PNG"))), "image/png");
  }));
}

/** @param {Panel} panel */
function pictureOf(panel) {
  const { legend, chart, heading } = panel;
  const width = chart.clientWidth + 2 * EDGE;
  const top = EDGE + 30;
  const below = top + (legend.clientHeight ? legend.clientHeight + 12 : 0);
  const height = below + chart.clientHeight + EDGE;
  const { panel: ground } = theme.colours;
  return svg("svg", { xmlns: SVG, viewBox: `0 0 ${width} ${height}`, width, height },
    hatchedFill("legend-hatch"),
    svg("rect", { width, height, fill: ground }),
    written(heading, EDGE, EDGE + 12),
    ...parts(legend, EDGE, top),
    ...parts(chart, EDGE, below),
  );
}

/** What stands in a box, at the same places from another corner. @param {HTMLElement} box @param {number} left @param {number} top */
function parts(box, left, top) {
  const corner = box.getBoundingClientRect();
  /** @type {SVGElement[]} */
  const found = [];
  for (const node of box.querySelectorAll("svg, canvas, .key, h3")) {
    const place = node.getBoundingClientRect();
    const [x, y] = [left + place.left - corner.left, top + place.top - corner.top];
    if (node instanceof SVGSVGElement) found.push(fill(styled(node), { x, y }, []));
    else if (node instanceof HTMLCanvasElement) found.push(drawnAgain(node, x, y));
    else found.push(written(node, x + (node.querySelector("svg, canvas")?.getBoundingClientRect().width ?? 0) + 6, y + place.height / 2));
  }
  return found;
}

/** @param {Element} node @param {number} x @param {number} y */
function written(node, x, y) {
  const { color, fontSize, fontWeight, fontFamily, opacity } = getComputedStyle(node);
  const look = { fill: color, "font-size": fontSize, "font-weight": fontWeight, "font-family": fontFamily, opacity };
  return svg("text", { x, y, "dominant-baseline": "central", ...look }, (node.textContent ?? "").trim());
}

/** A timeline as strokes, another canvas as an image. @param {HTMLCanvasElement} canvas @param {number} x @param {number} y */
function drawnAgain(canvas, x, y) {
  const { timelines } = fedcompass.state.view;
  const number = timelines.findIndex((one) => one.canvas === canvas);
  const { width, height } = canvas.getBoundingClientRect();
  if (number < 0) return svg("image", { x, y, width, height, href: canvas.toDataURL() });
  const strokes = timelines[number].strokes(`timeline-${number}`);
  return svg("svg", { x, y, width, height }, styled(strokes));
}

/** A copy that looks the same without the page's style sheet. @template {SVGElement} E @param {E} shape @returns {E} */
function styled(shape) {
  const copy = /** @type {E} */ (shape.cloneNode(true));
  const copies = [copy, ...copy.querySelectorAll("*")];
  [shape, ...shape.querySelectorAll("*")].forEach((one, i) => {
    if (!one.isConnected) return; // has all it needs
    const look = getComputedStyle(one);
    for (const name of KEPT) copies[i].setAttribute(name, look.getPropertyValue(name));
  });
  return copy;
}
