// Pointing into a timeline: what is under the pointer, and going from bar to bar by keyboard.

/** Let a timeline say what someone points at. @param {Timeline} timeline */
function point(timeline) {
  const { view, element } = timeline;
  timeline.canvas.addEventListener("pointermove", (event) => {
    if (view.dragging) return;
    const { x, y } = timeline.place(event);
    const words = wordsAbout(foundAt(timeline, x, y), timeline.scale, timeline.run);
    if (words) tip.show(event.clientX, event.clientY, ...words);
    else tip.hide();
  });
  timeline.canvas.addEventListener("pointerleave", () => tip.hide());
  element.addEventListener("keydown", (event) => {
    if (!event.shiftKey || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const next = neighbour(timeline, event.key);
    if (next) choose(timeline, next);
  });
  element.addEventListener("blur", () => {
    timeline.chosen = null;
    tip.hide();
    view.changed();
  });
}

/** What is at a point of the canvas. @param {Timeline} timeline @param {number} x @param {number} y @returns {Found | null} */
function foundAt(timeline, x, y) {
  const { run, view } = timeline;
  const merge = nearestMerge(timeline, x, y < TOP ? 8 : 3);
  if (merge) return { merge };
  const lane = run.lanes[Math.floor((y - TOP + timeline.element.scrollTop) / timeline.rowHeight)];
  if (!lane || y < TOP || x < timeline.gutter) return null;
  const mark = lane.marks.find((one) => Math.abs(timeline.x(one.at) - x) < 5);
  if (mark) return { lane, mark };
  const time = timeline.time(x);
  const task = lane.tasks[firstFrom(lane.tasks, time, (one) => one.start) - 1];
  const slack = (3 / timeline.width) * view.span; // a bar thinner than the pointer is meant too
  if (task && time <= (task.end ?? run.end) + slack) return { lane, task };
  return spanAt(lane, time, run.end);
}

/** @param {Lane} lane @param {number} time @param {number} end @returns {Found | null} */
function spanAt(lane, time, end) {
  for (const what of /** @type {const} */ (["waiting", "quarantined", "away"])) {
    const spans = lane.spans[what];
    const span = spans[lastBegun(spans, time)];
    if (span && span[0] <= time && time <= (span[1] ?? end)) return { lane, what, span };
  }
  return null;
}

/** @param {Timeline} timeline @param {number} x @param {number} reach */
function nearestMerge(timeline, x, reach) {
  /** @type {Merge | null} */
  let best = null;
  let distance = reach;
  for (const merge of timeline.merges()) {
    const off = Math.abs(timeline.x(merge.at) - x);
    if (off <= distance) [best, distance] = [merge, off];
  }
  return best;
}

/** Bring a bar into sight, and say what it is. @param {Timeline} timeline @param {Task} task */
function choose(timeline, task) {
  const { run, element, rowHeight } = timeline;
  timeline.chosen = task;
  timeline.view.show(task.start, task.end ?? run.end);
  const top = run.lanes.indexOf(task.lane) * rowHeight;
  if (top < element.scrollTop || top + rowHeight + TOP > element.scrollTop + timeline.height) {
    element.scrollTop = top;
  }
  const box = timeline.canvas.getBoundingClientRect();
  const place = timeline.placeOf(task);
  const [heading, lines] = [task.lane.name, taskLines(task, timeline.scale, run.together)];
  tip.show(box.left + place.x, box.top + place.y, heading, lines);
  byId("spoken").textContent = [heading, ...lines].join(". ");
}

/** The bar beside the chosen one; at first the first in sight. @param {Timeline} timeline @param {string} key */
function neighbour(timeline, key) {
  const { lanes } = timeline.run;
  const task = timeline.chosen;
  if (!task) {
    const lane = lanes.find((one) => one.tasks.length);
    return lane?.tasks[timeline.firstVisible(lane.tasks)];
  }
  const inLane = task.lane.tasks.indexOf(task);
  if (key === "ArrowRight") return task.lane.tasks[inLane + 1];
  if (key === "ArrowLeft") return task.lane.tasks[inLane - 1];
  const lane = lanes[lanes.indexOf(task.lane) + (key === "ArrowDown" ? 1 : -1)];
  return lane?.tasks[Math.max(0, firstFrom(lane.tasks, task.start + 1e-9, (one) => one.start) - 1)];
}
