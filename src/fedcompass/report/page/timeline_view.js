// The part of time that all timelines show together, and the ways to move it.

class TimeView {
  constructor() {
    this.timelines = [];
    this.extent = 1;
    this.from = 0;
    this.to = 1;
    this.fresh = true; // nothing was shown yet
    this.whole = true; // follow the run's end until someone zooms
    this.tallest = 560;
    this.dragging = false;
    this.asked = false;
    this.frames = 0; // drawn so far
  }

  get span() {
    return this.to - this.from;
  }

  /** The runs reach up to here now; at first show so much of it that bars can be read. */
  reach(extent, readable) {
    this.extent = Math.max(extent, 1e-9);
    if (this.fresh && extent > 0) {
      this.fresh = false;
      if (readable < extent) this.set(0, readable);
    }
    if (this.whole) [this.from, this.to] = [0, this.extent];
    this.changed();
  }

  set(from, to) {
    const span = Math.min(Math.max(to - from, this.extent / 20000), this.extent);
    this.from = Math.max(0, Math.min(from, this.extent - span));
    this.to = this.from + span;
    this.whole = span >= this.extent * 0.9999;
    this.changed();
  }

  pan(share) {
    this.set(this.from + share * this.span, this.to + share * this.span);
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const span = Math.min(this.span * factor, this.extent);
    const before = (around - this.from) / this.span;
    this.set(around - before * span, around - before * span + span);
  }

  all() {
    this.set(0, this.extent);
  }

  /** Bring a stretch of time into sight. */
  show(from, to) {
    if (from >= this.from && to <= this.to) return this.changed();
    const span = Math.max(this.span, (to - from) * 1.2);
    const middle = (from + to) / 2;
    return this.set(middle - span / 2, middle + span / 2);
  }

  /** A slider for the place of the part that is shown. */
  slider() {
    this.knob = el("input", {
      type: "range", min: 0, max: 1000, value: 0, "aria-label": "Place in time", class: "slider",
      oninput: () => {
        const from = (this.knob.value / 1000) * (this.extent - this.span);
        this.set(from, from + this.span);
      },
    });
    return this.knob;
  }

  /** Draw all timelines in the next frame, once. */
  changed() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.frames += 1;
      this.knob.disabled = this.whole;
      this.knob.value = this.whole ? 0 : (1000 * this.from) / (this.extent - this.span);
      for (const timeline of this.timelines) timeline.draw();
    });
  }

  layout() {
    for (const timeline of this.timelines) timeline.layout();
    this.changed();
  }

  key(event) {
    const act = {
      ArrowLeft: () => this.pan(-0.1),
      ArrowRight: () => this.pan(0.1),
      PageUp: () => this.pan(-0.9),
      PageDown: () => this.pan(0.9),
      "+": () => this.zoom(0.7),
      "=": () => this.zoom(0.7),
      "-": () => this.zoom(1 / 0.7),
      0: () => this.all(),
      Home: () => this.all(),
    }[event.key];
    if (!act || event.shiftKey && event.key.startsWith("Arrow") || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }

  /** Drag to pan, pinch or ctrl and wheel to zoom, wheel sideways to pan, double-click to zoom in. */
  attach(timeline) {
    const { canvas, element } = timeline;
    const fingers = new Map();
    const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
    const inner = () => timeline.width - timeline.gutter - 6;
    element.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("dblclick", (event) => this.zoom(0.5, timeline.time(place(event))));
    canvas.addEventListener(
      "wheel",
      (event) => {
        const zooms = event.ctrlKey || event.metaKey;
        const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
        if (!zooms && Math.abs(sideways) < Math.abs(event.deltaY) && !event.shiftKey) return;
        event.preventDefault();
        if (zooms) this.zoom(Math.exp(event.deltaY / 300), timeline.time(place(event)));
        else this.pan(sideways / inner());
      },
      { passive: false },
    );
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, place(event));
      this.dragging = true;
      if (event.pointerType !== "touch") tip.hide();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const [before, now] = [fingers.get(event.pointerId), place(event)];
      if (fingers.size === 1) this.pan((before - now) / inner());
      else this.pinch(timeline, fingers, event.pointerId, now);
      fingers.set(event.pointerId, now);
    });
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => {
        fingers.delete(event.pointerId);
        this.dragging = fingers.size > 0;
      });
    }
  }

  pinch(timeline, fingers, moved, now) {
    const [other] = [...fingers].filter(([id]) => id !== moved).map(([, x]) => x);
    const before = Math.max(20, Math.abs(fingers.get(moved) - other));
    this.zoom(before / Math.max(20, Math.abs(now - other)), timeline.time((now + other) / 2));
  }
}
