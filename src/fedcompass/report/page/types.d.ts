// What flows through the page, for the checker alone (scripts/check-page): none of it is in the page.

// --- What the page is given: fedcompass.report.run_files and fedcompass.report.written.

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

interface PageContent {
  live: boolean;
  runs: Facts[];
  left_out?: [name: string, why: string][];
}

/** All of a run but its lines; a live run whose files are half written has the first three only. */
interface Facts {
  name: string;
  kind: "simulation" | "deployment" | "schedule";
  finished: boolean;
  settings?: Settings | null;
  common?: { settings: Record<string, string>; label: string };
  summary?: Summary | null;
  model_bytes?: number | null;
  /** How many lines of the journal did not fit into the page. */
  left_out?: number;
  cut_short?: string | null;
  origin?: Origin | null;
}

/** fedcompass.runs.origin */
interface Origin {
  command: string;
  started: string;
  wall_seconds: number;
}

/** Those that the page asks for by name; the others it only lists. */
interface Settings {
  [name: string]: Json | undefined;
  strategy?: string | ({ name?: string } & { [name: string]: Json });
  data?: { name?: string } & { [name: string]: Json };
  evaluation?: { target_metric?: string } & { [name: string]: Json };
  target_metric?: string;
  higher_is_better?: boolean;
  target?: number;
  stop_at_target?: boolean;
  horizon?: number;
  run_at_least?: number;
  max_seconds?: number;
  max_updates?: number;
  seed?: number;
}

interface Summary {
  /** Of a simulation; `seconds` of a deployment. */
  virtual_seconds?: number;
  seconds?: number;
  ended?: string;
  global_updates?: number;
  target?: number | null;
  target_metric?: string;
  time_to_target?: number | null;
}

// --- Lines of metrics.jsonl and journal.jsonl: fedcompass.runs.journal.

/** A metric that is not a number was not finite. */
interface Evaluation {
  [metric: string]: number | null | undefined | ClientValues;
  time: number;
  version: number;
  clients?: ClientValues;
}

/** By client number, or by name. */
type ClientValues = (number | null)[] | Record<string, number | null>;

interface Header {
  journal?: number;
  strategy?: Strategy;
  seed?: number;
  unit?: string;
  model_bytes?: number | null;
  seconds_per_step?: number[] | null;
  lower_is_better?: string[];
}

type Strategy = { name?: string; scheduler?: string; scheduling?: { pace?: PaceSettings } };
type PaceSettings = { overhead_aware?: boolean; newest_weight?: number };

/** fedcompass.scheduling.events */
type JournalEvent =
  | { event: "ClientJoined"; at: number; client: string; samples: number }
  | Arrival
  | { event: "UpdateRefused"; at: number; client: string; task: number; reason: string }
  | { event: "TaskLost"; at: number; client: string; task: number }
  | { event: "ClientLost"; at: number; client: string }
  | { event: "DeadlinePassed"; at: number; group: number }
  | { event: "QuarantineLifted"; at: number; client: string }
  | { event: "UpdateReturned"; at: number; client: string; task: number }
  | { event: "MergeFailed"; at: number; version: number };

interface Arrival {
  event: "UpdateArrived";
  at: number;
  client: string;
  task: number;
  steps_done: number;
  compute_seconds?: number | null;
}

/** fedcompass.scheduling.commands */
type JournalCommand = StartTraining | Fold | Discard | Commit
  | { command: "FoldAgain"; at: number; client: string; weight?: number }
  | { command: "SetDeadline"; at: number; group: number; due?: number }
  | { command: "Quarantine"; at: number; client: string }
  | { command: "Hold"; at: number; buffers: number[] };

interface StartTraining {
  command: "StartTraining";
  at: number;
  client: string;
  task: number;
  steps: number;
  version: number;
  group: number | null;
}

interface Fold {
  command: "Fold";
  at: number;
  client: string;
  task: number;
  /** 0 is the buffer of no group. */
  buffer: number;
  staleness: number;
  steps: number;
  direct: boolean;
  /** Where a model was trained. */
  weight?: number;
  /** What the client has spent of its privacy budget, if it has one. */
  epsilon?: number;
}

interface Discard {
  command: "Discard";
  at: number;
  client: string;
  task: number;
  steps: number;
  /** What the client has spent of its privacy budget, if it has one. */
  epsilon?: number;
}

interface Commit {
  command: "Commit";
  at: number;
  version: number;
  buffers: number[];
  contributions: Contribution[];
  /** Tasks whose updates a secure sum did not have. */
  left_out?: number[];
  /** Why its sum could not be opened: it is no merge. */
  failed?: string;
  /** Who took part in that sum. */
  members?: string[];
  /** Tasks whose updates no merge will have, since that sum failed. */
  lost?: number[];
}

type Contribution = [client: string, task: number, staleness: number];

/** A server's messages: fedcompass.report.following. */
interface Messages {
  reset: Record<string, never>;
  facts: { run: number; facts: Facts };
  lines: { run: number; file: LineFile; text: string };
}

type LineFile = "journal" | "metrics";

// --- The run's model: lane.js and run_model.js.

/** From, until; null while it lasts. Of a wait: up to when it is by plan, if the group says. */
type Span = [from: number, until: number | null, due: number | null];
type Doing = "busy" | "waiting" | "quarantined" | "away";
/** `ahead` is the part of `waiting` in which the client's group was not due yet. */
type TimeSums = { busy: number; waiting: number; ahead: number; quarantined: number };
type Pace = { perStep: number; overhead: number };
type TaskState = "open" | "done" | "late" | "discarded" | "refused" | "lost" | "gone";

/** One round of local training. */
interface Task {
  id: number;
  lane: Lane;
  start: number;
  end: number | null;
  asked: number;
  done: number | null;
  group: number | null;
  version: number;
  state: TaskState;
  /** Seconds per step, as the scheduler believed when it gave the task. */
  expected: number | null;
  staleness: number | null;
  weight: number | null;
  reason: string | null;
  waitedUntil: number | null;
}

/** One that was answered, of a client whose pace was known. */
type ForeseenTask = Task & { end: number; done: number; expected: number };

type Merge = { at: number; version: number; group: number | null; contributions: Contribution[] };
type Deadline = { at: number; group: number };
/** A refused answer to no live task. */
type Refusal = { at: number; reason: string };

// --- Groups of runs and what is drawn of them: groups.js, charts.js, timeline.js.

type Axis = "time" | "updates" | "bytes";
type Point = [x: number, y: number];
type Band = [x: number, low: number, high: number];
type Curve = { points: Point[]; band: Band[] };
type Interval = [low: number, high: number];
type Tick = { at: number; label: string };
type Ticks = (low: number, high: number, about: number) => Tick[];
type NumberText = (value: number) => string;

interface RunSet {
  settings: Record<string, string | number | null>;
  label: string;
  runs: RunModel[];
}

interface TimeToTarget {
  /** Null if fewer than half of the runs reached it. */
  time: number | null;
  spread: number | null;
  reached: number;
  runs: number;
  rank: number;
}

/** The looks of a line or of bars, as a chart and its legend show them. */
interface Look {
  name: string;
  colour?: string;
  dash?: string;
  pale?: boolean;
  hatched?: boolean;
  /** A point, or a short line across bars. */
  dot?: boolean;
  tick?: boolean;
}

type LineSeries = Look & Curve & { colour: string };
type BarSeries = Look & { values: (number | null)[] };
type ScatterPoint = { x: number; y: number; colour: string; name: string; lines: string[] };

/** A chart's space: scales from values to pixels, and its edges. */
interface Frame {
  root: SVGSVGElement;
  px: (value: number) => number;
  py: (value: number) => number;
  /** Where a pointer is across, within the edges; and the value at such a pixel. */
  at: (event: MouseEvent) => number;
  value: (pixel: number) => number;
  left: number;
  right: number;
  top: number;
  bottom: number;
  width: number;
}

interface FrameOptions {
  height?: number;
  x: Interval;
  y: Interval;
  xLabel: string;
  yLabel: string;
  label: string;
}

interface LineChartOptions {
  series: LineSeries[];
  xTicks: Ticks;
  xText: NumberText;
  xLabel: string;
  yLabel: string;
  yText: NumberText;
  tickText: NumberText;
  /** Whether values are shares, from 0 to 1. */
  share: boolean;
  target: number | null;
  /** Where the target is reached, and how far seeds are from there. */
  reached: { x: number; off: number; colour: string }[];
  height?: number;
  /** The stretch of the axis to show; null: all. Without `zoomTo` there is no zooming. */
  zoom?: Interval | null;
  zoomTo?: (range: Interval | null) => void;
  label: string;
}

interface BarChartOptions {
  categories: string[];
  series: BarSeries[];
  stacked?: boolean;
  xLabel: string;
  yLabel: string;
  yText: NumberText;
  /** A short line per category, such as a wish. */
  marks?: (number | null)[];
  /** What that line is. */
  mark?: string;
  highest?: number | undefined;
  label: string;
}

interface ScatterChartOptions {
  points: ScatterPoint[];
  xLabel: string;
  yLabel: string;
  text: NumberText;
  label: string;
}

/** What is at a point of a timeline. */
type Found =
  | { merge: Merge }
  | { lane: Lane; mark: Refusal }
  | { lane: Lane; task: Task }
  | { lane: Lane; what: Exclude<Doing, "busy">; span: Span };

type TipWords = [heading: string, lines: string[]];

// --- The page itself: elements.js, panel.js, app.js.

type Child = Node | string | null | undefined;
type Children = (Child | Child[])[];
type Attributes = Record<string, string | number | boolean | null | undefined | (() => void)>;
type Cell = string | number;

interface Colours {
  ink: string;
  soft: string;
  line: string;
  panel: string;
  lane: string;
  bad: string;
  warmUp: string;
  series: string[];
}

interface PanelSpec {
  id: string;
  title: string;
  wide?: boolean;
  /** Whether there is nothing to say about these runs. */
  hidden?: (state: PageState) => boolean;
  caption: (state: PageState) => string;
  /** Why there is nothing to draw; null if there is. */
  missing?: (state: PageState) => string | null;
  draw: (panel: Panel, state: PageState) => void;
  /** The same as a table; `again` makes it anew. Absent where the chart is a table. */
  rows?: (state: PageState, again: () => void) => Child | Child[];
}

interface PageState {
  /** Every run in the page. */
  all: RunModel[];
  /** Those that are not. */
  leftOut: [name: string, why: string][];
  /** Of runs that can be compared with each other. */
  sets: RunSet[];
  /** Which of them is shown. */
  set: number;
  /** Its runs. */
  runs: RunModel[];
  groups: Group[];
  seed: number;
  /** Whose clients are shown; FedCompass's unless chosen. */
  group: number | null;
  metric: string | null;
  axis: Axis;
  /** The stretch of the curves' axis that is shown; null: all. */
  zoom: Interval | null;
  /** The groups whose curves are not shown. */
  hidden: Set<string>;
  /** Which client's rounds the timeline's table shows, and from which on. */
  rounds: { client: number; from: number };
  view: TimeView;
  /** Counts how often the colours changed. */
  theme: number;
  live: boolean;
  readonly detail: RunModel;
}

declare var fedcompass: {
  state: PageState;
  settled: () => boolean;
  ready: Promise<void>;
};
