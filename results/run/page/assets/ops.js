// Ops: the timeline of operations by process. If few operations are in view, each is drawn exactly;
// if many are, they merge into columns of pixels. Blamed operations and the selected operation are
// always drawn exactly, on top.

const EXACT_MAX = 3000;
const COLUMN = 2; // pixels
const LABELLED_MAX = 12;
const LANES_PIXELS = 6000; // browsers do not support much higher canvases
const RANK = 1e8;

function opsPanel(canvas, page) {
  const { ops, data } = page;
  const lanes = Math.max(1, data.lanes);
  const step = lanes <= 14 ? 24 : lanes <= 28 ? 17 : lanes <= 70 ? 11 : Math.max(1, Math.min(7, Math.floor(LANES_PIXELS / lanes)));
  const geometry = { step, top: 12, bar: Math.max(1, step - (step > 14 ? 8 : step > 5 ? 3 : 0)) };
  const draw = (pen, width, height) => {
    faultBands(pen, page, height);
    gridLines(pen, height);
    cutBands(pen, page, height);
    const ranges = ops.byLane.map((positions) => visibleRange(ops, positions));
    const visible = ranges.reduce((sum, [low, high]) => sum + high - low, 0);
    page.visibleOps = visible;
    page.exact = visible <= EXACT_MAX;
    laneLabels(pen, page, ranges, geometry);
    clipped(pen, LEFT, 0, width - LEFT - RIGHT, height, () => {
      for (let lane = 0; lane < ops.byLane.length; lane++) {
        const y = geometry.top + lane * step;
        if (page.exact) exactLane(pen, page, ops.byLane[lane], ranges[lane], y, geometry);
        else coarseLane(pen, page, ops.byLane[lane], ranges[lane], y, geometry);
      }
      onTop(pen, page, geometry);
    });
    momentLine(pen, page, height);
  };
  return new Panel(canvas, {
    height: () => geometry.top * 2 + Math.min(LANES_PIXELS, lanes * step),
    draw,
    hit: (x, y) => {
      const position = opAt(page, geometry, x, y);
      return position < 0 ? null : { lines: opLines(page, position), click: () => page.select(position) };
    },
  });
}

// Return the range of a lane's operations in view; operations of a lane are sorted and disjoint.
function visibleRange(ops, positions) {
  let low = countBelowAt(positions, ops.start, view.from);
  while (low > 0 && ops.end[positions[low - 1]] >= view.from) low--;
  return [low, countBelowAt(positions, ops.start, view.to)];
}

function laneLabels(pen, page, ranges, { step, top, bar: height }) {
  if (step < 11) { label(pen, plural(page.data.lanes, "client"), top + 6); return; }
  for (let lane = 0; lane < ranges.length; lane++) {
    const positions = page.ops.byLane[lane], [low, high] = ranges[lane];
    let name = "";
    if (high > low) {
      const first = page.ops.process[positions[low]], last = page.ops.process[positions[high - 1]];
      name = first === last ? `process ${first}` : `${first < 100 ? "process " : ""}${first} – ${last}`;
    }
    label(pen, name, top + lane * step + height / 2);
  }
}

function colourOf(page, position) {
  return page.colourBy === "outcome" ? ink.outcomes[page.ops.type[position]] : kindColour(page.ops.kind[position]);
}

function exactLane(pen, page, positions, [low, high], y, { bar: height }) {
  const { ops } = page;
  for (let n = low; n < high; n++) {
    const i = positions[n];
    const x0 = view.x(ops.start[i]), x1 = Math.max(x0 + 2, view.x(Math.min(ops.end[i], view.end)));
    const dim = filter.active && !filter.match[i];
    oneBar(pen, page, i, x0, x1, y, height, dim);
    if (page.showRpc && !dim) attemptMarks(pen, page, i, y + height + 1);
  }
}

// Draw the bar of one operation: `ok` solid, `fail` as an outline, `info` hatched with an open end.
function oneBar(pen, page, i, x0, x1, y, height, dim) {
  const type = page.ops.type[i], colour = colourOf(page, i), width = x1 - x0;
  pen.globalAlpha = dim ? 0.13 : 1;
  if (type === OK || width < 4) {
    pen.fillStyle = colour;
    if (type === FAIL) pen.globalAlpha *= 0.45;
    pen.fillRect(x0, y, width, height);
  } else if (type === FAIL) {
    pen.fillStyle = ink.paper;
    pen.fillRect(x0, y, width, height);
    pen.strokeStyle = colour;
    pen.lineWidth = 1.2;
    pen.strokeRect(x0 + 0.6, y + 0.6, width - 1.2, height - 1.2);
  } else {
    pen.fillStyle = ink.paper;
    pen.fillRect(x0, y, width, height);
    pen.globalAlpha *= 0.4;
    pen.fillStyle = hatch(pen, colour);
    pen.fillRect(x0, y, width, height);
    pen.globalAlpha = dim ? 0.13 : 1;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.2;
    pen.beginPath();
    pen.moveTo(x1, y + 0.6);
    pen.lineTo(x0 + 0.6, y + 0.6);
    pen.lineTo(x0 + 0.6, y + height - 0.6);
    pen.lineTo(x1, y + height - 0.6);
    pen.stroke();
  }
  if (type === INFO) {
    pen.fillStyle = ink.info;
    pen.beginPath();
    pen.moveTo(x1, y);
    pen.lineTo(x1 + 6, y + height / 2);
    pen.lineTo(x1, y + height);
    pen.fill();
  }
  const from = Math.max(x0, LEFT);
  if (x1 - from > 34 && height >= 12 && !dim) {
    pen.fillStyle = type === OK ? ink.paper : ink.ink;
    pen.fillText(fitted(pen, opLabel(page, i), x1 - from - 8), from + 4, y + height / 2 + 0.5);
  }
  pen.globalAlpha = 1;
}

// A column of pixels has the colour of the operations in it. Of several outcomes, info comes before
// ok, and ok before fail, since unknown outcomes must stay visible. Neighbouring columns of one
// colour become one rectangle, so the width bounds the work of drawing, not the number of
// operations.
const columnKeys = new Uint32Array(8192);

function coarseLane(pen, page, positions, [low, high], y, { bar: height }) {
  const { ops } = page, scale = view.scale() / COLUMN;
  const count = Math.min(columnKeys.length, Math.ceil((view.width - LEFT - RIGHT) / COLUMN));
  columnKeys.fill(0, 0, count);
  for (let n = low; n < high; n++) {
    const i = positions[n];
    if (filter.active && !filter.match[i]) continue;
    const first = Math.max(0, Math.floor((ops.start[i] - view.from) * scale));
    const last = Math.min(count - 1, Math.floor((Math.min(ops.end[i], view.to) - view.from) * scale));
    const rank = ops.type[i] === INFO ? 3 : ops.type[i] === OK ? 2 : 1;
    const key = rank * RANK + ops.kind[i];
    for (let c = first; c <= last; c++) if (rank > Math.floor(columnKeys[c] / RANK)) columnKeys[c] = key;
  }
  const colours = (key) => {
    const rank = Math.floor(key / RANK);
    if (rank === 3) return ink.info;
    return page.colourBy === "outcome" ? ink.outcomes[rank === 2 ? OK : FAIL] : kindColour(key % RANK);
  };
  for (let c = 0; c < count;) {
    const key = columnKeys[c];
    let until = c + 1;
    while (until < count && columnKeys[until] === key) until++;
    if (key) {
      pen.globalAlpha = key < 2 * RANK ? 0.5 : 1;
      pen.fillStyle = colours(key);
      pen.fillRect(LEFT + c * COLUMN, y, (until - c) * COLUMN, height);
    }
    c = until;
  }
  pen.globalAlpha = 1;
}

// Draw the blamed operations, the selected operation with its attempts, and the hovered operation.
function onTop(pen, page, { step, top, bar: height }) {
  const { ops } = page;
  const labelled = new Map(); // by lane: the x position at which the last label ends
  for (const i of page.focus) {
    const x0 = view.x(ops.start[i]), x1 = Math.max(x0 + 3, view.x(Math.min(ops.end[i], view.end)));
    if (x1 < LEFT || x0 > view.width) continue;
    const y = top + ops.lane[i] * step;
    oneBar(pen, page, i, x0, x1, y, height, false);
    pen.strokeStyle = ink.blame;
    pen.lineWidth = 2;
    pen.strokeRect(x0 - 2, y - 2, x1 - x0 + 4, height + 4);
    openEnd(pen, page, i, x1, y + height / 2, ink.blame);
    if (page.focus.length > LABELLED_MAX || x1 - x0 >= 60 || height < 12 || (labelled.get(ops.lane[i]) || 0) > x0) continue;
    labelled.set(ops.lane[i], blameLabel(pen, page, i, x1 + 5, y, height));
  }
  if (page.selected >= 0) {
    const i = page.selected, y = top + ops.lane[i] * step;
    const x0 = view.x(ops.start[i]), x1 = Math.max(x0 + 3, view.x(Math.min(ops.end[i], view.end)));
    pen.strokeStyle = ink.select;
    pen.lineWidth = 2;
    pen.strokeRect(x0 - 4, y - 4, x1 - x0 + 8, height + 8);
    attemptMarks(pen, page, i, y + height + 1);
    openEnd(pen, page, i, x1, y + height / 2, ink.select);
  }
}

// Draw the label of a blamed operation, next to its bar if the bar has no room; return the label's end.
function blameLabel(pen, page, i, x, y, height) {
  const text = `op ${page.ops.index[i]} ${opLabel(page, i)}`.slice(0, 60);
  pen.font = "600 11px system-ui, sans-serif";
  pen.fillStyle = ink.paper;
  pen.globalAlpha = 0.85;
  const width = pen.measureText(text).width + 6;
  pen.fillRect(x, y, width, height);
  pen.globalAlpha = 1;
  pen.fillStyle = ink.blame;
  pen.fillText(text, x + 3, y + height / 2 + 0.5);
  pen.font = "11px system-ui, sans-serif";
  return x + width;
}

// Draw a line to the end of the run, since an operation of unknown outcome may take effect any time.
function openEnd(pen, page, i, x, y, colour) {
  if (page.ops.type[i] !== INFO) return;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.setLineDash([2, 4]);
  pen.beginPath();
  pen.moveTo(x + 6, y);
  pen.lineTo(view.width, y);
  pen.stroke();
  pen.setLineDash([]);
}

// Draw RPC attempts under their operation: green if answered ok, else red, with the node if it fits.
function attemptMarks(pen, page, i, y) {
  const { ops, data } = page;
  for (let a = ops.attemptAt[i]; a < ops.attemptAt[i + 1]; a++) {
    const start = ops.start[i] + ops.attemptStart[a];
    const x0 = view.x(start), x1 = Math.max(x0 + 2, view.x(start + ops.attemptTook[a]) - 1);
    pen.fillStyle = data.strings[ops.attemptOutcome[a]] === "ok" ? ink.ok : ink.fail;
    pen.fillRect(x0, y, x1 - x0, 4);
    if (x1 - x0 > 26) {
      pen.fillStyle = ink.soft;
      pen.font = "9px system-ui, sans-serif";
      pen.fillText(fitted(pen, `→ ${data.strings[ops.attemptNode[a]]}`, x1 - x0), x0 + 2, y + 8);
      pen.font = "11px system-ui, sans-serif";
    }
  }
}

function opAt(page, { step, top, bar: height }, x, y) {
  const { ops } = page;
  const lane = Math.floor((y - top + 2) / step);
  if (x < LEFT - 4 || lane < 0 || lane >= ops.byLane.length || y > top + lane * step + height + 6) return -1;
  const [low, high] = visibleRange(ops, ops.byLane[lane]);
  let best = -1, distance = 6;
  for (let n = Math.max(low, 0); n < high; n++) {
    const i = ops.byLane[lane][n];
    if (filter.active && !filter.match[i] && !page.focus.includes(i)) continue;
    const x0 = view.x(ops.start[i]), x1 = view.x(Math.min(ops.end[i], view.end));
    const away = x < x0 ? x0 - x : x > x1 ? x - x1 : 0;
    const blamed = page.focusSet.has(i) ? 3 : 0;
    if (away - blamed < distance) { best = i; distance = away - blamed; }
    if (x0 > x + 8) break;
  }
  return best;
}

function opLabel(page, i) {
  const { ops, data } = page;
  const f = ops.kinds[ops.kind[i]], call = data.strings[ops.call[i]];
  if (!call) return f;
  const name = /"name":("(?:[^"\\]|\\.)*")/.exec(call);
  const to = /"new_name":("(?:[^"\\]|\\.)*")/.exec(call);
  if (name && to) return `${f} ${unquoted(name[1])} → ${unquoted(to[1])}`;
  if (name) return `${f} ${unquoted(name[1])}`;
  const table = /"table":("(?:[^"\\]|\\.)*")/.exec(call), key = /"key":("(?:[^"\\]|\\.)*")/.exec(call);
  if (table) return `${f} ${key ? `${unquoted(key[1])} of ` : ""}${unquoted(table[1])}`;
  return `${f} ${call.slice(0, 80)}`;
}

function unquoted(json) {
  try { return JSON.parse(json); } catch { return json; }
}

function opLines(page, i) {
  const { ops, data } = page;
  const lines = [`op ${ops.index[i]} · ${opLabel(page, i)} · process ${ops.process[i]}`];
  lines.push(`${seconds(ops.start[i])}, ${duration(ops.end[i] - ops.start[i])}: ${OUTCOMES[ops.type[i]]}`);
  if (ops.node[i]) lines[1] += ` from ${data.strings[ops.node[i]]}`;
  if (ops.error[i]) lines.push(data.strings[ops.error[i]].slice(0, 160));
  const count = ops.attemptAt[i + 1] - ops.attemptAt[i];
  if (count > 1) lines.push(`${count} RPC attempts`);
  return lines;
}
