// The timeline's colours, hatching and marks.

/** @param {HTMLCanvasElement} canvas @param {CanvasRenderingContext2DSettings} [settings] */
function penOf(canvas, settings) {
  const pen = canvas.getContext("2d", settings);
  if (!pen) throw new Error("This browser cannot draw on a canvas.");
  return pen;
}

/** @param {Timeline} timeline @param {Task} task */
function colourOf({ run }, task) {
  return task.group === null ? theme.colours.warmUp : theme.of(run.groupColours.get(task.group) ?? 0);
}

/** @param {CanvasRenderingContext2D} pen @param {number} ratio */
function hatching(pen, ratio) {
  const size = Math.round(6 * ratio);
  const tile = el("canvas", { width: size, height: size });
  const ink = penOf(tile);
  ink.strokeStyle = theme.colours.soft;
  ink.globalAlpha = 0.6;
  ink.lineWidth = ratio;
  ink.beginPath();
  for (const shift of [-size, 0, size]) {
    ink.moveTo(shift, size);
    ink.lineTo(shift + size, 0);
  }
  ink.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  pattern?.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern ?? theme.colours.line;
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y */
function diamond(pen, x, y) {
  pen.beginPath();
  pen.moveTo(x, y - 4);
  pen.lineTo(x + 4, y);
  pen.lineTo(x, y + 4);
  pen.lineTo(x - 4, y);
  pen.closePath();
  pen.fill();
}

/** @param {CanvasRenderingContext2D} pen @param {TaskState} state @param {number} x @param {number} y */
function drawMark(pen, state, x, y) {
  pen.lineWidth = 2;
  pen.strokeStyle = theme.colours.panel;
  pen.fillStyle = theme.colours.bad;
  pen.beginPath();
  if (state === "late") {
    pen.moveTo(x - 6, y - 6);
    pen.lineTo(x + 6, y - 6);
    pen.lineTo(x, y + 6);
    pen.closePath();
    pen.stroke();
    pen.fill();
    return;
  }
  if (state === "refused") {
    for (const [dx, dy] of [[-4, -4], [-4, 4]]) {
      pen.moveTo(x + dx, y + dy);
      pen.lineTo(x - dx, y - dy);
    }
  } else {
    pen.arc(x, y, 4, 0, 2 * Math.PI);
  }
  pen.lineWidth = 4;
  pen.stroke();
  pen.lineWidth = 2;
  pen.strokeStyle = theme.colours.bad;
  pen.stroke();
}

/** @param {CanvasRenderingContext2D} pen @param {string} text @param {number} width */
function shortened(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let cut = text;
  while (cut.length > 1 && pen.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
  return `${cut}…`;
}
