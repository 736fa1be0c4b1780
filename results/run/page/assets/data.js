// Data: reads the page's data from the document into typed arrays. Nothing in this file draws.

const OK = 0, FAIL = 1, INFO = 2;
const OUTCOMES = ["ok", "fail", "info"];

const byId = (id) => document.getElementById(id);

async function inflate(base64) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser cannot decompress the page's data (it has no DecompressionStream); "
      + "use a Chromium, Firefox or Safari of 2023 or later");
  }
  const raw = atob(base64.trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}

async function loadData() {
  const element = byId("data");
  const packed = element.dataset.kind === "deflate-raw";
  const text = packed ? await inflate(element.textContent) : element.textContent;
  element.textContent = ""; // free the text: the data is in `text` already
  return JSON.parse(text);
}

function sums(deltas) {
  const found = new Float64Array(deltas.length);
  let total = 0;
  for (let i = 0; i < deltas.length; i++) found[i] = total += deltas[i];
  return found;
}

function offsets(counts) {
  const found = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) found[i + 1] = found[i] + counts[i];
  return found;
}

// Unpack the operations; a position (0 .. count-1) is the rank of an operation by invocation.
function unpackOps(data) {
  const raw = data.ops, count = raw.count;
  const start = sums(raw.start);
  const end = new Float64Array(count);
  for (let i = 0; i < count; i++) end[i] = raw.took[i] < 0 ? Infinity : start[i] + raw.took[i];
  const kinds = data.kinds.map((row) => row.f);
  const kindOf = new Map(kinds.map((f, i) => [data.strings.indexOf(f), i]));
  const ops = {
    count, start, end, kinds,
    index: sums(raw.index),
    done: Float64Array.from(raw.done),
    lane: Uint32Array.from(raw.lane),
    process: Float64Array.from(raw.process),
    kind: Uint32Array.from(raw.f, (number) => kindOf.get(number)),
    type: Uint8Array.from(raw.type),
    node: Uint32Array.from(raw.node),
    call: Uint32Array.from(raw.call),
    back: Uint32Array.from(raw.back),
    error: Uint32Array.from(raw.error),
    mentionAt: offsets(raw.mentions),
    mention: Uint32Array.from(raw.mention),
    attemptAt: offsets(raw.attempts),
    attemptNode: Uint32Array.from(raw.attempt.node),
    attemptStart: Float64Array.from(raw.attempt.start),
    attemptTook: Float64Array.from(raw.attempt.took),
    attemptOutcome: Uint32Array.from(raw.attempt.outcome),
  };
  ops.byLane = positionsByLane(ops.lane, data.lanes);
  ops.byEnd = Uint32Array.from(ops.start.keys()).sort((a, b) => (end[a] < end[b] ? -1 : end[a] > end[b] ? 1 : 0));
  ops.sortedEnd = Float64Array.from(ops.byEnd, (position) => end[position]);
  return ops;
}

function positionsByLane(lane, lanes) {
  const counts = new Array(lanes).fill(0);
  for (const number of lane) counts[number]++;
  const found = counts.map((count) => new Uint32Array(count));
  const next = new Array(lanes).fill(0);
  for (let i = 0; i < lane.length; i++) found[lane[i]][next[lane[i]]++] = i;
  return found;
}

// Return the position of the operation invoked or completed at this index of the history, or -1.
function positionOf(ops, index) {
  if (!ops.positions) {
    ops.positions = new Map();
    for (let i = 0; i < ops.count; i++) {
      ops.positions.set(ops.index[i], i);
      if (ops.done[i]) ops.positions.set(ops.index[i] + ops.done[i], i);
    }
  }
  const position = ops.positions.get(index);
  return position === undefined ? -1 : position;
}

// Count the sorted `values` that are below `limit`.
function countBelow(values, limit, length = values.length) {
  let low = 0, high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < limit) low = middle + 1; else high = middle;
  }
  return low;
}

// Count the `positions`, sorted by `values[position]`, whose value is below `limit`.
function countBelowAt(positions, values, limit) {
  let low = 0, high = positions.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[positions[middle]] < limit) low = middle + 1; else high = middle;
  }
  return low;
}
