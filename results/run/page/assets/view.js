// View: the interval of time that all panels show, and the format of times.

const LEFT = 112; // width of the lanes' labels, in pixels
const RIGHT = 14;
const SPAN_MIN = 2e3; // ns; shorter intervals of a history do not matter

const view = {
  from: 0, to: 1, begin: 0, end: 1, width: 800, listeners: [],

  limit(begin, end) {
    const margin = Math.max(1e6, (end - begin) * 0.01);
    this.begin = begin - margin;
    this.end = end + margin;
  },

  set(from, to) {
    let span = Math.min(Math.max(to - from, SPAN_MIN), this.end - this.begin);
    let first = (from + to) / 2 - span / 2;
    first = Math.min(Math.max(first, this.begin), this.end - span);
    if (first === this.from && first + span === this.to) return;
    this.from = first;
    this.to = first + span;
    for (const listener of this.listeners) listener();
  },

  fit() { this.set(this.begin, this.end); },
  pan(share) { const by = (this.to - this.from) * share; this.set(this.from + by, this.to + by); },

  zoom(factor, at = (this.from + this.to) / 2) {
    const span = Math.min(Math.max((this.to - this.from) * factor, SPAN_MIN), this.end - this.begin);
    const share = (at - this.from) / (this.to - this.from);
    this.set(at - span * share, at + span * (1 - share));
  },

  // Show from `start` to `end` with room on both sides.
  show(start, end, least = 2e7) {
    const room = Math.max((end - start) * 0.35, least);
    this.set(start - room, end + room);
  },

  // Bring an interval into view without changing the scale, unless it is in view already.
  reveal(start, end) {
    const span = this.to - this.from;
    if (end - start > span) { this.show(start, end); return; }
    if (start < this.from || end > this.to) {
      const middle = (start + end) / 2;
      this.set(middle - span / 2, middle + span / 2);
    }
  },

  scale() { return (this.width - LEFT - RIGHT) / (this.to - this.from); },
  x(time) { return LEFT + (time - this.from) * this.scale(); },
  time(x) { return this.from + (x - LEFT) / this.scale(); },
};

function niceStep(span, most) {
  const raw = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= raw) return factor * power;
  return 10 * power;
}

function ticks() {
  const step = niceStep(view.to - view.from, (view.width - LEFT) / 95);
  const found = [];
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) found.push(time);
  return { step, found };
}

function seconds(ns, step = 1e6) {
  const digits = Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(step) - 1e-9)));
  const text = (ns / 1e9).toFixed(digits);
  return `${/^-0(\.0*)?$/.test(text) ? text.slice(1) : text} s`;
}

function duration(ns) {
  if (!Number.isFinite(ns)) return "never ended";
  if (ns < 1e3) return `${ns} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toPrecision(3)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toPrecision(3)} ms`;
  return `${(ns / 1e9).toPrecision(4)} s`;
}

const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
