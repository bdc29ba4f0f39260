// What the timeline says about what is in it.

/**
 * About what is at a point; nothing about nothing.
 * @param {Found | null} found @param {TimeScale} scale @param {RunModel} run @returns {TipWords | null}
 */
function wordsAbout(found, scale, run) {
  if (!found) return null;
  if ("merge" in found) return mergeWords(found.merge, scale, run.together);
  const { name } = found.lane;
  if ("task" in found) return [name, taskLines(found.task, scale, run.together)];
  if ("mark" in found) return [name, [`refused at ${scale.text(found.mark.at)}: ${found.mark.reason}`]];
  const [from, until] = [found.span[0], found.span[1] ?? run.end];
  const words = `${SPANS[found.what]} ${scale.text(until - from)}`;
  const why = found.what === "waiting" ? waitLines(from, until, found.span[2], scale, run.together) : [];
  return [name, [words, `${scale.text(from)} to ${scale.text(until)}`, ...why]];
}

/** Why a client waits. @param {number} from @param {number} until @param {number | null} due @param {TimeScale} scale @param {string} word */
function waitLines(from, until, due, scale, word) {
  if (due === null || due <= from) return ["for others"];
  const ahead = `by plan: its ${word} is due at ${scale.text(due)}`;
  return until <= due ? [ahead] : [ahead, `for others: ${scale.text(until - due)} of it, since its ${word} is late`];
}

const SPANS = { waiting: "waits", quarantined: "is in quarantine", away: "is away" };
const MOST_NAMES = 14;

/** @param {Merge} merge @param {TimeScale} scale @param {string} word @returns {TipWords} */
function mergeWords(merge, scale, word) {
  const names = merge.contributions.map(([client, , staleness]) => `${clientName(client)}: ${behind(staleness)}`);
  const more = names.length - MOST_NAMES;
  const shown = more > 1 ? [...names.slice(0, MOST_NAMES), `and ${more} more`] : names;
  const from = merge.group === null ? "" : ` of ${word} ${merge.group}`;
  return [`merge${from} at ${scale.text(merge.at)}: version ${merge.version}`, shown];
}

/** @param {Task} task @param {TimeScale} scale @param {string} word */
function taskLines(task, scale, word) {
  const lines = [`${task.asked} steps, ${groupText(task, word)}`];
  const end = task.end === null ? "now" : scale.text(task.end);
  lines.push(`${scale.text(task.start)} to ${end}, from version ${task.version}`);
  if (task.staleness !== null) lines.push(`staleness ${task.staleness}: ${behind(task.staleness)}`);
  if (task.weight !== null) lines.push(`weight ${short(task.weight)}`);
  if (task.done !== null && task.done !== task.asked) lines.push(`${task.done} steps done`);
  const words = STATES[task.state];
  if (words) lines.push(task.reason ? `${words}: ${task.reason}` : words);
  return lines;
}

/** @type {Record<TaskState, string>} */
const STATES = {
  open: "still training",
  late: "late: its group had merged, so it waits for the next merge",
  discarded: "for the pace alone: not merged",
  refused: "refused",
  lost: "lost its task",
  gone: "left while training",
  done: "",
};

/** @param {number} staleness */
function behind(staleness) {
  return staleness === 0 ? "up to date" : `${counted(staleness, "version")} behind`;
}

/** @param {Task} task @param {string} word */
function groupText(task, word) {
  return task.group === null ? `no ${word}` : `${word} ${task.group}`;
}
