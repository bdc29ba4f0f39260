// From packed blocks or a server's stream to run models, in slices that leave the page responsive.

const SLICE = 8; // milliseconds of work before the browser gets its turn

/** Gives a model lines of text as they come, whole ones only. */
class LineFeed {
  #rest = ""; // of a line whose end is to come

  /** @param {RunModel} run @param {LineFile} file */
  constructor(run, file) {
    this.run = run;
    this.file = file;
  }

  /** @param {string} text */
  async take(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    let since = performance.now();
    for (const line of lines) {
      if (line) this.run.addLine(this.file, line);
      if (performance.now() - since > SLICE) {
        await pause();
        since = performance.now();
      }
    }
  }
}

/** @param {RunModel[]} runs @param {(share: number) => void} progress */
async function loadPacked(runs, progress) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser is too old to unpack the page's data; use one from 2023 or later.");
  }
  for (const [number, run] of runs.entries()) {
    for (const file of /** @type {const} */ (["metrics", "journal"])) {
      const block = byId(`${file}-${number}`);
      if (block.textContent) await unpack(block.textContent, new LineFeed(run, file));
      block.remove();
    }
    progress((number + 1) / runs.length);
  }
}

/** @param {string} base64 @param {LineFeed} feed */
async function unpack(base64, feed) {
  const parts = [];
  const size = 1 << 17; // a multiple of 4, so that every part decodes by itself
  for (let at = 0; at < base64.length; at += size) {
    const binary = atob(base64.slice(at, at + size));
    parts.push(Uint8Array.from(binary, (character) => character.charCodeAt(0)));
    await pause();
  }
  const reader = new Blob(parts)
    .stream()
    .pipeThrough(new DecompressionStream("gzip"))
    .pipeThrough(new TextDecoderStream())
    .getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    await feed.take(piece.value);
  }
}

/**
 * Follows a live server; it goes on where it was when a connection comes back.
 * @param {RunModel[]} runs @param {{ changed: () => void, status: (words: string) => void }} tell
 */
function followServer(runs, { changed, status }) {
  let feeds = begin(runs);
  let queue = Promise.resolve(); // messages are handled one after the other
  const source = new EventSource(`/events${location.search}`);
  /**
   * @template {keyof Messages} K
   * @param {K} kind @param {(content: Messages[K]) => void | Promise<void>} act
   */
  const handle = (kind, act) =>
    source.addEventListener(kind, (event) => {
      const content = JSON.parse(event.data);
      queue = queue.then(() => act(content)).then(changed);
    });
  handle("reset", () => {
    feeds = begin(runs);
  });
  handle("facts", ({ run, facts }) => {
    runs[run].facts = facts;
  });
  handle("lines", ({ run, file, text }) => feeds[run][file].take(text));
  source.addEventListener("done", () => {
    source.close(); // at once, or it would connect anew
    queue = queue.then(() => status("finished")).then(changed);
  });
  source.onopen = () => status("live");
  source.onerror = () => {
    status(source.readyState === EventSource.CLOSED ? "server gone" : "reconnecting…");
  };
}

/** @param {RunModel[]} runs */
function begin(runs) {
  return runs.map((run) => {
    run.clear();
    return { journal: new LineFeed(run, "journal"), metrics: new LineFeed(run, "metrics") };
  });
}
