// One run's timeline on a canvas: lanes of bars. Only what is in sight is drawn.

const TOP = 40; // pixels of the strip with times and merges
const LOWEST_LABEL = 22; // pixels a bar needs for its steps
const DENSE = 7; // pixels between deadlines or merges below which they are not drawn one by one
const BLURRED = 4; // pixels per bar below which a lane shows how busy it was instead
const COLUMN = 4; // pixels of such a column
const FEW = 250; // bars in sight up to which there is time for round corners and haloes

class Timeline {
  constructor(run, view, scale) {
    this.run = run;
    this.view = view;
    this.scale = scale;
    this.chosen = null; // the task chosen by keyboard
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.spacer = el("div", { class: "lanes" }, this.canvas);
    this.element = el(
      "div",
      {
        class: "timeline",
        tabindex: 0,
        role: "application",
        "aria-label":
          `Timeline of ${run.strategy}. Arrow keys left and right move, plus and minus zoom, 0 shows ` +
          "all. Shift and arrow keys go from bar to bar. The same as a table follows below.",
      },
      this.spacer,
    );
    this.element.addEventListener("scroll", () => this.view.changed());
    this.listen();
  }

  /** Sizes follow the window and the number of clients. */
  layout() {
    const count = Math.max(1, this.run.lanes.length);
    this.width = Math.max(200, this.element.clientWidth);
    this.narrow = this.width < 560;
    this.rowHeight = count > 12 ? 22 : 30;
    const whole = TOP + count * this.rowHeight + 6;
    this.height = Math.min(whole, this.view.tallest);
    this.element.style.height = `${this.height}px`;
    this.spacer.style.height = `${whole}px`;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.pen = this.canvas.getContext("2d", { alpha: false });
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.pen.font = this.font;
    this.nameOf = (lane) => (this.narrow && /^\d+$/.test(lane.client) ? lane.client : lane.name);
    const longest = largest(this.run.lanes.map((lane) => this.pen.measureText(this.nameOf(lane)).width));
    this.gutter = Math.min(this.narrow ? 72 : 130, longest + 14);
    this.hatch = hatching(this.pen, ratio);
  }

  x(time) {
    return this.gutter + ((time - this.view.from) / this.view.span) * (this.width - this.gutter - 6);
  }

  time(x) {
    return this.view.from + ((x - this.gutter) / (this.width - this.gutter - 6)) * this.view.span;
  }

  y(index) {
    return TOP + index * this.rowHeight - this.element.scrollTop;
  }

  draw() {
    const { pen, width, height } = this;
    const colours = theme.colours;
    pen.font = this.font;
    pen.textBaseline = "middle";
    pen.fillStyle = colours.panel;
    pen.fillRect(0, 0, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, TOP, width - this.gutter, height - TOP);
    pen.clip();
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.rowHeight));
    const last = Math.min(
      this.run.lanes.length - 1,
      Math.ceil((this.element.scrollTop + height) / this.rowHeight),
    );
    this.blurred = false;
    this.few = this.barsInSight(first, last) <= FEW;
    for (let index = first; index <= last; index++) this.drawLane(this.run.lanes[index], index);
    this.drawDeadlines(first, last);
    this.drawMerges();
    for (let index = first; index <= last; index++) this.drawOver(this.run.lanes[index], index);
    pen.restore();
    this.drawNames(first, last);
    this.drawTop();
  }

  barsInSight(first, last) {
    let count = 0;
    for (const { tasks } of this.run.lanes.slice(first, last + 1)) {
      count += firstFrom(tasks, this.view.to, (task) => task.start) - this.firstVisible(tasks);
    }
    return count;
  }

  drawLane(lane, index) {
    const { pen } = this;
    const top = this.y(index);
    if (index % 2 === 0) {
      pen.fillStyle = theme.colours.lane;
      pen.fillRect(this.gutter, top, this.width, this.rowHeight);
    }
    const [y, height] = [top + 4, this.rowHeight - 8];
    this.drawAbsences(lane, y + height / 2);
    const tasks = lane.tasks;
    const first = this.firstVisible(tasks);
    const count = firstFrom(tasks, this.view.to, (task) => task.start) - first;
    if (count * BLURRED > this.width) {
      this.blurred = true;
      this.drawBusy(tasks, first, count, y, height);
      return;
    }
    this.drawWaits(lane.spans.waiting, y, height);
    let drawnTo = -1; // bars that end in a pixel already drawn are skipped
    for (let i = first; i < tasks.length; i++) {
      const task = tasks[i];
      if (task.start > this.view.to) break;
      const x0 = this.x(task.start);
      const x1 = this.x(task.end ?? this.run.end);
      if (x1 < drawnTo && x1 - x0 < 1) continue;
      this.drawBar(task, x0, x1, y, height);
      drawnTo = Math.floor(x1) + 1;
    }
  }

  /** Too many bars to tell apart: columns as high as the share of time spent training. */
  drawBusy(tasks, first, count, y, height) {
    const { pen } = this;
    const columns = new Float64Array(Math.ceil((this.width - this.gutter) / COLUMN) + 1);
    for (let i = first; i < first + count; i++) {
      let from = Math.max(0, (this.x(tasks[i].start) - this.gutter) / COLUMN);
      const to = Math.min(columns.length, (this.x(tasks[i].end ?? this.run.end) - this.gutter) / COLUMN);
      while (from < to) {
        const edge = Math.min(to, Math.floor(from) + 1);
        columns[Math.floor(from)] += edge - from;
        from = edge;
      }
    }
    pen.fillStyle = theme.of(0);
    pen.beginPath(); // one shape per lane: thousands of rectangles would be slow
    pen.moveTo(this.gutter, y + height);
    columns.forEach((share, i) => {
      const top = y + height * (1 - Math.min(1, share));
      pen.lineTo(this.gutter + i * COLUMN, top);
      pen.lineTo(this.gutter + (i + 1) * COLUMN, top);
    });
    pen.lineTo(this.gutter + columns.length * COLUMN, y + height);
    pen.fill();
  }

  firstVisible(tasks) {
    return Math.max(0, firstFrom(tasks, this.view.from, (task) => task.start) - 1);
  }

  drawBar(task, x0, x1, y, height) {
    const { pen } = this;
    const wide = x1 - x0;
    const colour = colourOf(task);
    const open = task.state === "open";
    const missed = task.state === "refused" || task.state === "lost" || task.state === "gone";
    pen.globalAlpha = open ? 0.55 : missed ? 0.35 : 1;
    pen.fillStyle = colour;
    const gap = wide > 5 ? 1 : 0;
    if (wide > 12 && this.few) {
      pen.beginPath();
      pen.roundRect(x0 + gap, y, wide - 2 * gap, height, 3);
      pen.fill();
    } else {
      pen.fillRect(x0 + gap, y, Math.max(1, wide - 2 * gap), height);
    }
    pen.globalAlpha = 1;
    if (task === this.chosen) {
      pen.strokeStyle = theme.colours.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x0, y - 2, Math.max(2, wide), height + 4);
    }
  }

  drawSteps(task, x0, x1, y) {
    const { pen } = this;
    const left = Math.max(x0, this.gutter);
    const right = Math.min(x1, this.width);
    if (right - left < LOWEST_LABEL) return;
    const solid = task.state === "done" || task.state === "late";
    const words = right - left > 96 ? `${task.asked} steps` : String(task.asked);
    const middle = (left + right) / 2;
    pen.textAlign = "center";
    if (solid && this.few) {
      pen.strokeStyle = colourOf(task); // keeps lines off the text
      pen.lineWidth = 4;
      pen.strokeText(words, middle, y + 0.5);
    }
    pen.fillStyle = solid ? theme.on(colourOf(task)) : theme.colours.ink;
    pen.fillText(words, middle, y + 0.5);
  }

  drawWaits(waits, y, height) {
    const { pen } = this;
    for (let i = this.firstSpan(waits, this.view.from); i < waits.length; i++) {
      const [from, until] = waits[i];
      if (from > this.view.to) break;
      const [x0, x1] = [this.x(from), this.x(until ?? this.run.end)];
      if (x1 - x0 <= 1) continue;
      pen.fillStyle = x1 - x0 > 5 ? this.hatch : theme.colours.line; // too small for a pattern
      pen.fillRect(x0, y + 2, x1 - x0, height - 4);
    }
  }

  /** The last span that begins before a time, or the first. */
  firstSpan(spans, time) {
    return Math.max(0, firstFrom(spans, time, (span) => span[0]) - 1);
  }

  drawAbsences(lane, y) {
    this.drawSpans(lane.spans.away, y, "away", theme.colours.soft, [1, 4]);
    this.drawSpans(lane.spans.quarantined, y, "quarantined", theme.colours.bad, []);
  }

  drawSpans(spans, y, words, colour, dash) {
    const { pen } = this;
    for (const [from, until] of spans) {
      const [x0, x1] = [this.x(from), this.x(until ?? this.run.end)];
      if (x1 < this.gutter || x0 > this.width) continue;
      pen.strokeStyle = colour;
      pen.lineWidth = 1;
      pen.setLineDash(dash);
      pen.beginPath();
      pen.moveTo(x0, y);
      pen.lineTo(x1, y);
      pen.stroke();
      pen.setLineDash([]);
      if (x1 - x0 > 12 * words.length) this.label(words, (Math.max(x0, this.gutter) + x1) / 2, y - 7);
    }
  }

  label(text, x, y) {
    this.pen.fillStyle = theme.colours.soft;
    this.pen.textAlign = "center";
    this.pen.fillText(text, x, y);
  }

  /** What stands on bars and lines: steps; late arrivals, refusals and lost tasks as marks. */
  drawOver(lane, index) {
    const y = this.y(index) + this.rowHeight / 2;
    const tasks = lane.tasks;
    let drawnTo = -9;
    for (let i = this.firstVisible(tasks); i < tasks.length; i++) {
      const task = tasks[i];
      if (task.start > this.view.to) break;
      const [x0, x1] = [this.x(task.start), this.x(task.end ?? this.run.end)];
      if (x1 - x0 >= LOWEST_LABEL) this.drawSteps(task, x0, x1, y);
      if (task.end === null || task.state === "done" || x1 - drawnTo < 5) continue;
      drawMark(this.pen, task.state, x1, y);
      drawnTo = x1;
    }
    for (const mark of lane.marks) drawMark(this.pen, "refused", this.x(mark.at), y);
  }

  visible(items) {
    return items.filter((item) => item.at >= this.view.from && item.at <= this.view.to);
  }

  drawDeadlines(first, last) {
    const { pen } = this;
    const shown = this.visible(this.run.deadlines);
    if (shown.length * DENSE * 2 > this.width) return;
    pen.lineWidth = 1.5;
    pen.setLineDash([1.5, 3.5]);
    for (const deadline of shown) {
      pen.strokeStyle = theme.of(deadline.group - 1);
      const x = this.x(deadline.at);
      const members = this.run.members.get(deadline.group) ?? new Set();
      pen.beginPath();
      for (let index = first; index <= last; index++) {
        if (!members.has(this.run.lanes[index])) continue;
        pen.moveTo(x, this.y(index));
        pen.lineTo(x, this.y(index) + this.rowHeight);
      }
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  drawMerges() {
    const { pen } = this;
    const shown = this.merges();
    if (shown.length * DENSE > this.width) return;
    pen.lineWidth = 1;
    pen.strokeStyle = theme.colours.ink;
    pen.globalAlpha = 0.6;
    pen.beginPath();
    for (const merge of shown) {
      const x = Math.round(this.x(merge.at)) + 0.5;
      pen.moveTo(x, TOP);
      pen.lineTo(x, this.height);
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  merges() {
    const all = this.run.merges;
    const first = firstFrom(all, this.view.from, (merge) => merge.at);
    const last = firstFrom(all, this.view.to + 1e-9, (merge) => merge.at);
    return all.slice(first, last);
  }

  drawNames(first, last) {
    const { pen } = this;
    pen.fillStyle = theme.colours.panel;
    pen.fillRect(0, TOP, this.gutter, this.height);
    pen.fillStyle = theme.colours.ink;
    pen.textAlign = "right";
    for (let index = first; index <= last; index++) {
      const y = this.y(index) + this.rowHeight / 2;
      if (y < TOP) continue;
      const name = shortened(pen, this.nameOf(this.run.lanes[index]), this.gutter - 10);
      pen.fillText(name, this.gutter - 8, y);
    }
  }

  drawTop() {
    const { pen, width } = this;
    pen.fillStyle = theme.colours.panel;
    pen.fillRect(0, 0, width, TOP - 13);
    pen.fillRect(0, 0, this.gutter, TOP);
    pen.textAlign = "center";
    for (const tick of this.scale.ticks(this.view.from, this.view.to, this.width / 90)) {
      const x = this.x(tick.at);
      if (x < this.gutter - 1) continue;
      pen.fillStyle = theme.colours.soft;
      pen.fillRect(x, 17, 1, 5);
      pen.fillText(tick.label, Math.min(x, width - 14), 9);
    }
    pen.textAlign = "right";
    pen.fillStyle = theme.colours.soft;
    pen.fillText(this.scale.axis, this.gutter - 8, TOP - 12);
    pen.textAlign = "center";
    pen.fillStyle = theme.colours.ink;
    pen.textAlign = "left";
    const merges = this.merges();
    if (merges.length * DENSE > width) {
      const dense = this.blurred ? "; heights show how busy clients were" : "";
      const words = this.narrow ? "" : `${dense}; zoom in to see each`;
      pen.fillText(`${counted(merges.length, "merge")}${words}`, this.gutter + 2, TOP - 12);
      return;
    }
    merges.forEach((merge, i) => {
      const x = this.x(merge.at);
      diamond(pen, Math.round(x) + 0.5, TOP - 12);
      const words = `v${merge.version}`;
      const next = i + 1 < merges.length ? this.x(merges[i + 1].at) - 5 : width;
      if (x + 8 + pen.measureText(words).width < next) pen.fillText(words, x + 6, TOP - 12);
    });
  }

  /** What is at a point of the canvas: {task}, {merge}, {span}, {mark} or nothing. */
  at(x, y) {
    const lane = this.run.lanes[Math.floor((y - TOP + this.element.scrollTop) / this.rowHeight)];
    const merge = this.nearestMerge(x, y < TOP ? 8 : 3);
    if (merge) return { merge };
    if (!lane || y < TOP || x < this.gutter) return {};
    const mark = lane.marks.find((m) => Math.abs(this.x(m.at) - x) < 5);
    if (mark) return { lane, mark };
    const time = this.time(x);
    const task = lane.tasks[firstFrom(lane.tasks, time, (t) => t.start) - 1];
    const slack = (3 / this.width) * this.view.span; // a bar thinner than the pointer is meant too
    if (task && time <= (task.end ?? this.run.end) + slack) return { lane, task };
    for (const [what, spans] of Object.entries(lane.spans)) {
      const span = spans[this.firstSpan(spans, time)];
      if (span && span[0] <= time && time <= (span[1] ?? this.run.end)) return { lane, what, span };
    }
    return {};
  }

  nearestMerge(x, reach) {
    let best = null;
    let distance = reach;
    for (const merge of this.merges()) {
      const off = Math.abs(this.x(merge.at) - x);
      if (off <= distance) [best, distance] = [merge, off];
    }
    return best;
  }

  /** Where a task's bar is on the canvas. */
  placeOf(task) {
    const index = this.run.lanes.indexOf(task.lane);
    const middle = (this.x(task.start) + this.x(task.end ?? this.run.end)) / 2;
    return { x: middle, y: this.y(index) + this.rowHeight / 2 };
  }

  listen() {
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.view.dragging) return;
      const box = this.canvas.getBoundingClientRect();
      const found = this.at(event.clientX - box.left, event.clientY - box.top);
      const words = this.describe(found);
      if (words) tip.show(event.clientX, event.clientY, ...words);
      else tip.hide();
    });
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.element.addEventListener("keydown", (event) => {
      if (event.shiftKey && event.key.startsWith("Arrow")) this.choose(event);
    });
    this.element.addEventListener("blur", () => {
      this.chosen = null;
      tip.hide();
      this.view.changed();
    });
  }

  /** Go from bar to bar by keyboard, and say what it is. */
  choose(event) {
    event.preventDefault();
    const next = this.neighbour(event.key);
    if (!next) return;
    this.chosen = next;
    this.view.show(next.start, next.end ?? this.run.end);
    const top = this.run.lanes.indexOf(next.lane) * this.rowHeight;
    if (top < this.element.scrollTop || top + this.rowHeight + TOP > this.element.scrollTop + this.height) {
      this.element.scrollTop = top;
    }
    const box = this.canvas.getBoundingClientRect();
    const place = this.placeOf(next);
    const [heading, lines] = this.describe({ lane: next.lane, task: next });
    tip.show(box.left + place.x, box.top + place.y, heading, lines);
    byId("spoken").textContent = [heading, ...lines].join(". ");
  }

  neighbour(key) {
    const lanes = this.run.lanes;
    const task = this.chosen;
    if (!task) {
      const lane = lanes.find((l) => l.tasks.length);
      return lane?.tasks[this.firstVisible(lane.tasks)];
    }
    const inLane = task.lane.tasks.indexOf(task);
    if (key === "ArrowRight") return task.lane.tasks[inLane + 1];
    if (key === "ArrowLeft") return task.lane.tasks[inLane - 1];
    const lane = lanes[lanes.indexOf(task.lane) + (key === "ArrowDown" ? 1 : -1)];
    return lane?.tasks[Math.max(0, firstFrom(lane.tasks, task.start + 1e-9, (t) => t.start) - 1)];
  }

  describe({ task, merge, what, span, mark, lane }) {
    const text = (time) => this.scale.text(time);
    if (merge) {
      const names = merge.contributions.map(
        ([client, , staleness]) => `${new Lane(client).name}: ${behind(staleness)}`,
      );
      const more = names.length - 14;
      const shown = more > 1 ? [...names.slice(0, 14), `and ${more} more`] : names;
      const from = merge.group === null ? "" : ` of group ${merge.group}`;
      return [`merge${from} at ${text(merge.at)}: version ${merge.version}`, shown];
    }
    if (mark) return [lane.name, [`refused at ${text(mark.at)}: ${mark.reason}`]];
    if (span) {
      const [from, until] = [span[0], span[1] ?? this.run.end];
      const words = { waiting: "waits", quarantined: "is in quarantine", away: "is away" }[what];
      return [lane.name, [`${words} ${text(until - from)}`, `${text(from)} to ${text(until)}`]];
    }
    return task ? [lane.name, taskLines(task, text)] : null;
  }
}
