// One run's timeline on a canvas: its geometry, times, names and merges around the lanes. Only what is
// in sight is drawn.

const TOP = 40; // pixels of the strip with times and merges
const DENSE = 7; // pixels between deadlines or merges below which they are not drawn one by one
const FEW = 250; // bars in sight up to which there is time for round corners and haloes

class Timeline {
  /** The task chosen by keyboard. @type {Task | null} */
  chosen = null;
  canvas = el("canvas", { "aria-hidden": "true" });
  spacer = el("div", { class: "lanes" }, this.canvas);
  pen = penOf(this.canvas, { alpha: false });
  width = 0;
  height = 0;
  rowHeight = 0;
  gutter = 0; // pixels for the clients' names
  narrow = false;
  font = "";
  /** For waits. @type {CanvasPattern | string} */
  hatch = "";
  blurred = false; // whether some lane's bars are too many to tell apart
  few = true; // whether there is time for round corners and haloes

  /** @param {RunModel} run @param {TimeView} view @param {TimeScale} scale */
  constructor(run, view, scale) {
    this.run = run;
    this.view = view;
    this.scale = scale;
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
    point(this);
  }

  /** Sizes follow the window and the number of clients. */
  layout() {
    const count = Math.max(1, this.run.lanes.length);
    this.width = Math.max(200, this.element.clientWidth);
    this.narrow = this.width < 560;
    this.rowHeight = count > 12 ? 22 : 30;
    const whole = TOP + count * this.rowHeight + 6;
    this.height = whole < 1.2 * this.view.tallest ? whole : this.view.tallest; // no lane cut in two for a few pixels
    this.element.style.height = `${this.height}px`;
    this.spacer.style.height = `${whole}px`;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.pen.font = this.font;
    const longest = largest(this.run.lanes.map((lane) => this.pen.measureText(this.nameOf(lane)).width));
    this.gutter = Math.min(this.narrow ? 72 : 130, longest + 14);
    this.hatch = hatching(this.pen, ratio);
  }

  /** @param {Lane} lane */
  nameOf(lane) {
    return this.narrow && /^\d+$/.test(lane.client) ? lane.client : lane.name;
  }

  /** Pixels that show time. */
  get inner() {
    return this.width - this.gutter - 6;
  }

  /** @param {number} time */
  x(time) {
    return this.gutter + ((time - this.view.from) / this.view.span) * this.inner;
  }

  /** @param {number} x */
  time(x) {
    return this.view.from + ((x - this.gutter) / this.inner) * this.view.span;
  }

  /** @param {number} index */
  y(index) {
    return TOP + index * this.rowHeight - this.element.scrollTop;
  }

  /** Where a bar or a span begins and ends; one that lasts reaches to the run's end. @param {number} from @param {number | null} until */
  ends(from, until) {
    return [this.x(from), this.x(until ?? this.run.end)];
  }

  /** Where a task's bar is on the canvas. @param {Task} task */
  placeOf(task) {
    const [x0, x1] = this.ends(task.start, task.end);
    return { x: (x0 + x1) / 2, y: this.y(this.run.lanes.indexOf(task.lane)) + this.rowHeight / 2 };
  }

  /** Where a pointer is on the canvas. @param {MouseEvent} event */
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** @param {MouseEvent} event */
  timeAt(event) {
    return this.time(this.place(event).x);
  }

  /** What is in sight, as SVG. @param {string} name */
  strokes(name) {
    const onCanvas = this.pen;
    const pen = new SvgPen(onCanvas, name);
    this.pen = /** @type {CanvasRenderingContext2D} */ (/** @type {unknown} */ (pen));
    this.draw();
    this.pen = onCanvas;
    return pen.root;
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
    for (let index = first; index <= last; index++) drawLane(this, index);
    this.drawDeadlines(first, last);
    this.drawMerges();
    for (let index = first; index <= last; index++) drawOver(this, index);
    pen.restore();
    this.drawNames(first, last);
    this.drawTop();
  }

  /** @param {number} first @param {number} last */
  barsInSight(first, last) {
    let count = 0;
    for (const { tasks } of this.run.lanes.slice(first, last + 1)) count += this.inSight(tasks).length;
    return count;
  }

  /** The tasks of a lane that may be in sight. @param {Task[]} tasks */
  inSight(tasks) {
    const end = firstFrom(tasks, this.view.to + 1e-9, (task) => task.start);
    return tasks.slice(this.firstVisible(tasks), end);
  }

  /** @param {Task[]} tasks */
  firstVisible(tasks) {
    return Math.max(0, firstFrom(tasks, this.view.from, (task) => task.start) - 1);
  }

  /** @param {number} first @param {number} last */
  drawDeadlines(first, last) {
    const { pen, view } = this;
    const shown = this.run.deadlines.filter(({ at }) => at >= view.from && at <= view.to);
    if (shown.length * DENSE * 2 > this.width) return;
    pen.lineWidth = 1.5;
    pen.setLineDash([1.5, 3.5]);
    for (const deadline of shown) {
      pen.strokeStyle = theme.of(this.run.groupColours.get(deadline.group) ?? 0);
      const x = this.x(deadline.at);
      const members = this.run.members.get(deadline.group);
      pen.beginPath();
      for (let index = first; index <= last; index++) {
        if (!members?.has(this.run.lanes[index])) continue;
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

  /** @param {number} first @param {number} last */
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
    this.drawVersions();
  }

  drawVersions() {
    const { pen, width } = this;
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
}
