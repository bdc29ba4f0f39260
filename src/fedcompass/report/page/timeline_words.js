// What the timeline says about a task.

function taskLines(task, text) {
  const lines = [`${task.asked} steps, ${groupText(task)}`];
  const end = task.end === null ? "now" : text(task.end);
  lines.push(`${text(task.start)} to ${end}, from version ${task.version}`);
  if (task.staleness !== null) lines.push(`staleness ${task.staleness}: ${behind(task.staleness)}`);
  if (task.weight !== null) lines.push(`weight ${short(task.weight)}`);
  if (task.done !== null && task.done !== task.asked) lines.push(`${task.done} steps done`);
  const words = STATES[task.state];
  if (words) lines.push(task.reason ? `${words}: ${task.reason}` : words);
  return lines;
}

const STATES = {
  open: "still training",
  late: "late: its group had merged, so it waits for the next merge",
  refused: "refused",
  lost: "lost its task",
  gone: "left while training",
  done: "",
};

function behind(staleness) {
  return staleness === 0 ? "up to date" : `${counted(staleness, "version")} behind`;
}

function groupText(task) {
  return task.group === null ? "no group" : `group ${task.group}`;
}
