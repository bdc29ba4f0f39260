// The part of time that all timelines show together, and the ways to move it.

class TimeView {
  /** @type {Timeline[]} */
  timelines = [];
  extent = 1;
  from = 0;
  to = 1;
  fresh = true; // nothing was shown yet
  whole = true; // follow the run's end until someone zooms
  tallest = 560;
  dragging = false;
  asked = false;
  frames = 0; // drawn so far
  /** For the place of the part that is shown. */
  slider = el("input", {
    type: "range", min: 0, max: 1000, value: 0, "aria-label": "Place in time", class: "slider",
    oninput: () => {
      const from = (Number(this.slider.value) / 1000) * (this.extent - this.span);
      this.set(from, from + this.span);
    },
  });

  get span() {
    return this.to - this.from;
  }

  /** The runs reach up to here now; at first show so much of it that bars can be read. @param {number} extent @param {number} readable */
  reach(extent, readable) {
    this.extent = Math.max(extent, 1e-9);
    if (this.fresh && extent > 0) {
      this.fresh = false;
      if (readable < extent) this.set(0, readable);
    }
    if (this.whole) [this.from, this.to] = [0, this.extent];
    this.changed();
  }

  /** @param {number} from @param {number} to */
  set(from, to) {
    const span = Math.min(Math.max(to - from, this.extent / 20000), this.extent);
    this.from = Math.max(0, Math.min(from, this.extent - span));
    this.to = this.from + span;
    this.whole = span >= this.extent * 0.9999;
    this.changed();
  }

  /** @param {number} share */
  pan(share) {
    this.set(this.from + share * this.span, this.to + share * this.span);
  }

  /** @param {number} factor */
  zoom(factor, around = (this.from + this.to) / 2) {
    const span = Math.min(this.span * factor, this.extent);
    const before = (around - this.from) / this.span;
    this.set(around - before * span, around - before * span + span);
  }

  all() {
    this.set(0, this.extent);
  }

  /** Bring a stretch of time into sight. @param {number} from @param {number} to */
  show(from, to) {
    if (from >= this.from && to <= this.to) {
      this.changed();
      return;
    }
    const span = Math.max(this.span, (to - from) * 1.2);
    const middle = (from + to) / 2;
    this.set(middle - span / 2, middle + span / 2);
  }

  /** Draw all timelines in the next frame, once. */
  changed() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.frames += 1;
      this.slider.disabled = this.whole;
      this.slider.value = String(this.whole ? 0 : (1000 * this.from) / (this.extent - this.span));
      for (const timeline of this.timelines) timeline.draw();
    });
  }

  layout() {
    for (const timeline of this.timelines) timeline.layout();
    this.changed();
  }

  /** What a key does. @type {Record<string, () => void>} */
  keys = {
    ArrowLeft: () => this.pan(-0.1),
    ArrowRight: () => this.pan(0.1),
    PageUp: () => this.pan(-0.9),
    PageDown: () => this.pan(0.9),
    "+": () => this.zoom(0.7),
    "=": () => this.zoom(0.7),
    "-": () => this.zoom(1 / 0.7),
    0: () => this.all(),
    Home: () => this.all(),
  };

  /** @param {KeyboardEvent} event */
  key(event) {
    const act = this.keys[event.key];
    const barToBar = event.shiftKey && event.key.startsWith("Arrow");
    if (!act || barToBar || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }

  /** Drag to pan, pinch or ctrl and wheel to zoom, wheel sideways to pan, double-click to zoom in. @param {Timeline} timeline */
  attach(timeline) {
    const { canvas, element } = timeline;
    element.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("dblclick", (event) => this.zoom(0.5, timeline.timeAt(event)));
    canvas.addEventListener("wheel", (event) => this.wheel(timeline, event), { passive: false });
    this.drag(timeline);
  }

  /** @param {Timeline} timeline @param {WheelEvent} event */
  wheel(timeline, event) {
    const zooms = event.ctrlKey || event.metaKey;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (!zooms && Math.abs(sideways) < Math.abs(event.deltaY) && !event.shiftKey) return;
    event.preventDefault();
    if (zooms) this.zoom(Math.exp(event.deltaY / 300), timeline.timeAt(event));
    else this.pan(sideways / timeline.inner);
  }

  /** @param {Timeline} timeline */
  drag(timeline) {
    const { canvas } = timeline;
    /** Where each finger is. @type {Map<number, number>} */
    const fingers = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, timeline.place(event).x);
      this.dragging = true;
      if (event.pointerType !== "touch") tip.hide();
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (before === undefined) return;
      const now = timeline.place(event).x;
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
      if (other === undefined) this.pan((before - now) / timeline.inner);
      else this.pinch(timeline, before, now, other);
      fingers.set(event.pointerId, now);
    });
    for (const kind of /** @type {const} */ (["pointerup", "pointercancel"])) {
      canvas.addEventListener(kind, (event) => {
        fingers.delete(event.pointerId);
        this.dragging = fingers.size > 0;
      });
    }
  }

  /** One finger moves, another stays. @param {Timeline} timeline @param {number} before @param {number} now @param {number} other */
  pinch(timeline, before, now, other) {
    const apart = (/** @type {number} */ x) => Math.max(20, Math.abs(x - other));
    this.zoom(apart(before) / apart(now), timeline.time((now + other) / 2));
  }
}
