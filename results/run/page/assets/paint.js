// Paint: panels, colours and small drawing helpers. A panel is a canvas, drawn only while visible.

const ink = {};

// Each kind of operation has the same colour in every workload. Unknown kinds get free colours.
const KIND_COLOURS = 17;
const KIND_COLOUR = new Map(Object.entries({
  create: 0, alter: 1, rename: 2, delete: 3, drop: 3, get: 4, list: 5, locate: 6, "is-create-done": 7, poll: 7, "is-alter-done": 8,
  read: 9, write: 10, scan: 11, txn: 12, cas: 13, "add-master": 14, "remove-master": 15, "list-masters": 16,
  "hive-get": 9, "hive-rename": 10, "hive-list": 11, "hive-drop": 15, issue: 0, renew: 1, cancel: 3, verify: 4,
}));
let kindColours = []; // by kind: the number of its colour

function chooseColours(kinds) {
  const taken = new Set(kinds.map((f) => KIND_COLOUR.get(f)));
  kindColours = kinds.map((f) => {
    if (KIND_COLOUR.has(f)) return KIND_COLOUR.get(f);
    let number = [...f].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 65521, 0) % KIND_COLOURS;
    for (let n = 0; n < KIND_COLOURS && taken.has(number); n++) number = (number + 1) % KIND_COLOURS;
    taken.add(number);
    return number;
  });
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  for (const name of ["ink", "soft", "line", "paper", "panel", "blame", "ok", "fail", "info", "down", "paused", "select", "shade", "lead"]) {
    ink[name] = get(`--${name}`);
  }
  ink.kinds = Array.from({ length: KIND_COLOURS }, (_, i) => get(`--k${i}`));
  ink.nemeses = Array.from({ length: 6 }, (_, i) => get(`--n${i}`));
  ink.outcomes = [ink.ok, ink.fail, ink.info];
}

const panels = [];
let frameAsked = false;

// Redraw all visible panels once in the next frame, even after several calls.
function redraw() {
  if (frameAsked) return;
  frameAsked = true;
  requestAnimationFrame(() => {
    frameAsked = false;
    for (const panel of panels) panel.paint();
  });
}

class Panel {
  // `draw(pen, width, height)` paints the panel; `hit(x, y)` returns {lines, click} of the thing at a
  // point, or null.
  constructor(canvas, { height, draw, hit }) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.height = height;
    this.draw = draw;
    this.hit = hit || (() => null);
    this.visible = true;
    new IntersectionObserver((entries) => {
      this.visible = entries[entries.length - 1].isIntersecting;
      if (this.visible) redraw();
    }, { rootMargin: "80px" }).observe(canvas);
    panels.push(this);
  }

  // Set the size of the canvas on screen, and its size in pixels of the device.
  fitSize() {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = Math.round(view.width), height = Math.max(1, Math.round(this.height()));
    const wide = Math.round(width * ratio), high = Math.round(height * ratio);
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
      this.canvas.style.height = `${height}px`;
    }
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return [width, height];
  }

  paint(unseen = false) {
    if (!(this.visible || unseen) || this.canvas.offsetParent === null) return;
    const [width, height] = this.fitSize();
    this.pen.clearRect(0, 0, width, height);
    this.pen.font = "11px system-ui, sans-serif";
    this.pen.textBaseline = "middle";
    this.draw(this.pen, width, height);
  }
}

// The boxes of drawn items, which the pointer can hit; of several boxes at a point, the last is on
// top.
class Boxes {
  clear() { this.list = []; }
  add(x0, y0, x1, y1, thing) { this.list.push([x0, y0, x1, y1, thing]); }
  at(x, y) {
    for (let i = this.list.length - 1; i >= 0; i--) {
      const [x0, y0, x1, y1, thing] = this.list[i];
      if (x >= x0 - 2 && x <= x1 + 2 && y >= y0 && y <= y1) return thing;
    }
    return null;
  }
  constructor() { this.list = []; }
}

function label(pen, text, y, colour = ink.soft) {
  pen.fillStyle = colour;
  pen.textAlign = "right";
  pen.fillText(fitted(pen, text, LEFT - 16), LEFT - 8, y);
  pen.textAlign = "left";
}

// Return as much of the text as fits into the width, with an ellipsis if it is cut.
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = Math.min(text.length, Math.ceil(width / 3));
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return length > 1 ? `${text.slice(0, length)}…` : "";
}

function clipped(pen, x, y, width, height, paint) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  paint();
  pen.restore();
}

function gridLines(pen, height) {
  pen.strokeStyle = ink.line;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const time of ticks().found) {
    const x = Math.round(view.x(time)) + 0.5;
    if (x < LEFT) continue;
    pen.moveTo(x, 0);
    pen.lineTo(x, height);
  }
  pen.stroke();
}

// Draw the faults as bands behind everything else, so that readers see causes next to effects.
function faultBands(pen, page, height) {
  pen.globalAlpha = 0.1;
  let last = -1; // draw only one of many faults in the same pixel
  for (const fault of page.data.faults) {
    const end = fault.end === null ? page.data.end : fault.end;
    if (!fault.targets.length || end < view.from || fault.start > view.to) continue;
    const x0 = Math.max(LEFT, view.x(fault.start)), x1 = Math.min(view.width - RIGHT, view.x(end));
    if (x1 <= x0 || (x1 - x0 < 1 && Math.floor(x0) === last)) continue;
    last = Math.floor(x0);
    pen.fillStyle = nemesisColour(page, fault.nemesis);
    pen.fillRect(x0, 0, Math.max(1, x1 - x0), height);
  }
  pen.globalAlpha = 1;
}

// Hatch the parts of the run whose operations are not on the page, because it has a limit.
function cutBands(pen, page, height) {
  const { shown } = page.data;
  if (!shown) return;
  pen.fillStyle = hatch(pen, ink.line);
  const left = Math.min(view.width, view.x(shown[0])), right = Math.max(LEFT, view.x(shown[1]));
  if (left > LEFT) pen.fillRect(LEFT, 0, left - LEFT, height);
  if (right < view.width - RIGHT) pen.fillRect(right, 0, view.width - RIGHT - right, height);
}

function momentLine(pen, page, height) {
  if (page.moment === null) return;
  const x = Math.round(view.x(page.moment)) + 0.5;
  if (x < LEFT || x > view.width) return;
  pen.strokeStyle = ink.select;
  pen.lineWidth = 1;
  pen.setLineDash([4, 3]);
  pen.beginPath();
  pen.moveTo(x, 0);
  pen.lineTo(x, height);
  pen.stroke();
  pen.setLineDash([]);
}

const hatches = new Map();
function hatch(pen, colour) {
  if (!hatches.has(colour)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const brush = tile.getContext("2d");
    brush.strokeStyle = colour;
    brush.lineWidth = 1.6;
    for (const shift of [-6, 0, 6]) {
      brush.beginPath();
      brush.moveTo(shift, 6);
      brush.lineTo(shift + 6, 0);
      brush.stroke();
    }
    hatches.set(colour, pen.createPattern(tile, "repeat"));
  }
  return hatches.get(colour);
}

const kindColour = (kind) => ink.kinds[kindColours[kind]];
const kindStyle = (kind) => `var(--k${kindColours[kind]})`;
const nemesisColour = (page, nemesis) => ink.nemeses[page.data.nemeses.indexOf(nemesis) % ink.nemeses.length];
