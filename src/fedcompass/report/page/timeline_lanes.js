// The lanes of a timeline: bars of local training, waits, absences, and what stands on them.

const LOWEST_LABEL = 22; // pixels a bar needs for its steps
const BLURRED = 4; // pixels per bar below which a lane shows how busy it was instead
const COLUMN = 4; // pixels of such a column

/** @param {Timeline} timeline @param {number} index */
function drawLane(timeline, index) {
  const { pen, gutter, width, rowHeight } = timeline;
  const lane = timeline.run.lanes[index];
  const top = timeline.y(index);
  if (index % 2 === 0) {
    pen.fillStyle = theme.colours.lane;
    pen.fillRect(gutter, top, width, rowHeight);
  }
  const [y, height] = [top + 4, rowHeight - 8];
  drawSpans(timeline, lane.spans.away, y + height / 2, "away", theme.colours.soft, [1, 4]);
  drawSpans(timeline, lane.spans.quarantined, y + height / 2, "quarantined", theme.colours.bad, []);
  const tasks = timeline.inSight(lane.tasks);
  if (tasks.length * BLURRED > width) {
    timeline.blurred = true;
    drawBusy(timeline, tasks, y, height);
    return;
  }
  drawWaits(timeline, lane.spans.waiting, y, height);
  let drawnTo = -1; // bars that end in a pixel already drawn are skipped
  for (const task of tasks) {
    const [x0, x1] = timeline.ends(task.start, task.end);
    if (x1 < drawnTo && x1 - x0 < 1) continue;
    drawBar(timeline, task, y, height);
    drawnTo = Math.floor(x1) + 1;
  }
}

/**
 * Too many bars to tell apart: columns as high as the share of time spent training.
 * @param {Timeline} timeline @param {Task[]} tasks @param {number} y @param {number} height
 */
function drawBusy(timeline, tasks, y, height) {
  const { pen, gutter, width } = timeline;
  const columns = new Float64Array(Math.ceil((width - gutter) / COLUMN) + 1);
  for (const task of tasks) {
    const [x0, x1] = timeline.ends(task.start, task.end);
    let from = Math.max(0, (x0 - gutter) / COLUMN);
    const to = Math.min(columns.length, (x1 - gutter) / COLUMN);
    while (from < to) {
      const edge = Math.min(to, Math.floor(from) + 1);
      columns[Math.floor(from)] += edge - from;
      from = edge;
    }
  }
  pen.fillStyle = theme.of(0);
  pen.beginPath(); // one shape per lane: thousands of rectangles would be slow
  pen.moveTo(gutter, y + height);
  columns.forEach((share, i) => {
    const top = y + height * (1 - Math.min(1, share));
    pen.lineTo(gutter + i * COLUMN, top);
    pen.lineTo(gutter + (i + 1) * COLUMN, top);
  });
  pen.lineTo(gutter + columns.length * COLUMN, y + height);
  pen.fill();
}

/** @type {Record<TaskState, number>} */
const OPACITY = { open: 0.55, done: 1, late: 1, discarded: 0.35, refused: 0.35, lost: 0.35, gone: 0.35 };

/** @param {Timeline} timeline @param {Task} task @param {number} y @param {number} height */
function drawBar(timeline, task, y, height) {
  const { pen } = timeline;
  const [x0, x1] = timeline.ends(task.start, task.end);
  const wide = x1 - x0;
  const gap = wide > 5 ? 1 : 0;
  pen.globalAlpha = OPACITY[task.state];
  pen.fillStyle = colourOf(timeline, task);
  if (wide > 12 && timeline.few) {
    pen.beginPath();
    pen.roundRect(x0 + gap, y, wide - 2 * gap, height, 3);
    pen.fill();
  } else {
    pen.fillRect(x0 + gap, y, Math.max(1, wide - 2 * gap), height);
  }
  pen.globalAlpha = 1;
  if (task === timeline.chosen) {
    pen.strokeStyle = theme.colours.ink;
    pen.lineWidth = 2;
    pen.strokeRect(x0, y - 2, Math.max(2, wide), height + 4);
  }
}

/** @param {Timeline} timeline @param {Span[]} waits @param {number} y @param {number} height */
function drawWaits(timeline, waits, y, height) {
  const { pen, view } = timeline;
  for (let i = lastBegun(waits, view.from); i < waits.length && waits[i][0] <= view.to; i++) {
    const [from, until, due] = waits[i];
    const [x0, x1] = timeline.ends(from, until);
    const middle = due === null ? x0 : Math.min(Math.max(timeline.x(due), x0), x1);
    if (middle - x0 > 1) drawAhead(timeline, x0, middle, y + 2, height - 4);
    if (x1 - middle <= 1) continue;
    pen.fillStyle = x1 - middle > 5 ? timeline.hatch : theme.colours.line; // too small for a pattern
    pen.fillRect(middle, y + 2, x1 - middle, height - 4);
  }
}

/** A wait by plan: the client's group is not due yet. @param {Timeline} timeline @param {number} x0 @param {number} x1 @param {number} y @param {number} height */
function drawAhead({ pen, gutter, width }, x0, x1, y, height) {
  pen.fillStyle = theme.colours.line;
  pen.globalAlpha = 0.6;
  pen.fillRect(x0, y, x1 - x0, height);
  pen.globalAlpha = 1;
  const [left, right] = [Math.max(x0, gutter), Math.min(x1, width)];
  if (right - left < 44) return;
  pen.fillStyle = theme.colours.soft;
  pen.textAlign = "center";
  pen.fillText("waits", (left + right) / 2, y + height / 2 + 0.5);
}

/** Which span is the last that begins before a time; else the first. @param {Span[]} spans @param {number} time */
function lastBegun(spans, time) {
  return Math.max(0, firstFrom(spans, time, (span) => span[0]) - 1);
}

/**
 * Spans as lines, with a word on those that have room for it.
 * @param {Timeline} timeline @param {Span[]} spans @param {number} y
 * @param {string} word @param {string} colour @param {number[]} dash
 */
function drawSpans(timeline, spans, y, word, colour, dash) {
  const { pen, gutter, width } = timeline;
  for (const span of spans) {
    const [x0, x1] = timeline.ends(span[0], span[1]);
    if (x1 < gutter || x0 > width) continue;
    pen.strokeStyle = colour;
    pen.lineWidth = 1;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(x0, y);
    pen.lineTo(x1, y);
    pen.stroke();
    pen.setLineDash([]);
    if (x1 - x0 <= 12 * word.length) continue;
    pen.fillStyle = theme.colours.soft;
    pen.textAlign = "center";
    pen.fillText(word, (Math.max(x0, gutter) + x1) / 2, y - 7);
  }
}

/**
 * What stands on bars and lines: steps; late arrivals, refusals and lost tasks as marks.
 * @param {Timeline} timeline @param {number} index
 */
function drawOver(timeline, index) {
  const lane = timeline.run.lanes[index];
  const y = timeline.y(index) + timeline.rowHeight / 2;
  let drawnTo = -9;
  for (const task of timeline.inSight(lane.tasks)) {
    const [x0, x1] = timeline.ends(task.start, task.end);
    if (x1 - x0 >= LOWEST_LABEL) drawSteps(timeline, task, y);
    if (task.end === null || ["done", "discarded"].includes(task.state) || x1 - drawnTo < 5) continue;
    drawMark(timeline.pen, task.state, x1, y);
    drawnTo = x1;
  }
  for (const mark of lane.marks) drawMark(timeline.pen, "refused", timeline.x(mark.at), y);
}

/** @param {Timeline} timeline @param {Task} task @param {number} y */
function drawSteps(timeline, task, y) {
  const { pen, gutter, width, few } = timeline;
  const [x0, x1] = timeline.ends(task.start, task.end);
  const [left, right] = [Math.max(x0, gutter), Math.min(x1, width)];
  if (right - left < LOWEST_LABEL) return;
  const solid = OPACITY[task.state] === 1;
  const words = right - left > 96 ? `${task.asked} steps` : String(task.asked);
  const middle = (left + right) / 2;
  pen.textAlign = "center";
  if (solid && few) {
    pen.strokeStyle = colourOf(timeline, task); // keeps lines off the text
    pen.lineWidth = 4;
    pen.strokeText(words, middle, y + 0.5);
  }
  pen.fillStyle = solid ? theme.on(colourOf(timeline, task)) : theme.colours.ink;
  pen.fillText(words, middle, y + 0.5);
}
