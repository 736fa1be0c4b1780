// Plots: latency (log scale, quantiles by kind over time) and rate (ok, fail, info), over the bands
// of the faults. Quantiles are by nearest rank over the ok operations invoked in a bucket. Rates
// count operations by their completion; operations without a completion count at the end of the run.

const DOTS_MAX = 4000;
const BUCKETS_MAX = 160;
const RATE_BUCKET_MIN = 1e9; // shorter buckets give misleading rates: one operation in 2 ms is not 500/s

// Return quantile q of each kind in buckets of `width` ns from `from` on: {time, count, value}.
function quantiles(page, from, to, width, q) {
  const { ops } = page;
  const buckets = Math.max(1, Math.ceil((to - from) / width));
  const lists = ops.kinds.map(() => new Map());
  const low = countBelow(ops.start, from), high = countBelow(ops.start, to);
  for (let i = low; i < high; i++) {
    if (ops.type[i] !== OK || (filter.active && !filter.match[i])) continue;
    const bucket = Math.min(buckets - 1, Math.floor((ops.start[i] - from) / width));
    const list = lists[ops.kind[i]];
    if (list.has(bucket)) list.get(bucket).push(ops.end[i] - ops.start[i]);
    else list.set(bucket, [ops.end[i] - ops.start[i]]);
  }
  return lists.map((list) => [...list.keys()].sort((a, b) => a - b).map((bucket) => {
    const values = Float64Array.from(list.get(bucket)).sort();
    const rank = Math.max(1, Math.ceil((Math.round(q * 1000) * values.length) / 1000));
    return { time: from + (bucket + 0.5) * width, bucket, count: values.length, value: values[rank - 1] };
  }));
}

// Count the operations that ended ok, fail and info in each bucket of `width` ns from `from` on.
function rates(page, from, to, width) {
  const { ops, data } = page;
  const buckets = Math.max(1, Math.ceil((to - from) / width));
  const counts = OUTCOMES.map(() => new Uint32Array(buckets));
  const take = (i, end) => {
    if (end < from || end >= to || (filter.active && !filter.match[i])) return;
    counts[ops.type[i]][Math.min(buckets - 1, Math.floor((end - from) / width))]++;
  };
  const finite = countBelow(ops.sortedEnd, Infinity);
  const low = countBelow(ops.sortedEnd, from), high = Math.min(finite, countBelow(ops.sortedEnd, to));
  for (let n = low; n < high; n++) take(ops.byEnd[n], ops.sortedEnd[n]);
  for (let n = finite; n < ops.count; n++) take(ops.byEnd[n], data.end);
  return counts;
}

// Return aligned buckets that cover more than the view, so that they stay valid while it moves.
function bucketsOfView(width) {
  const room = (view.to - view.from) * 0.5;
  const from = Math.floor((view.from - room) / width) * width;
  const to = Math.ceil((view.to + room) / width) * width;
  return { width, from, to };
}

// Cache the result of `compute` until the view leaves its range, or the scale or the filter changes.
function cachedSeries(page, pixels, compute, least = 0) {
  let kept = null;
  return () => {
    const width = Math.max(least, niceStep(view.to - view.from, Math.min(BUCKETS_MAX, (view.width - LEFT) / pixels)));
    const fits = kept && kept.width === width && kept.from <= view.from && kept.to >= view.to
      && kept.filtered === page.filterCount && kept.quantile === page.quantile;
    if (!fits) {
      const range = bucketsOfView(width);
      kept = { ...range, filtered: page.filterCount, quantile: page.quantile };
      kept.series = compute(range);
    }
    return kept;
  };
}

function logScale(page, height) {
  const { ops } = page;
  let least = Infinity, most = 0;
  for (let i = 0; i < ops.count; i++) {
    if (ops.type[i] !== OK) continue;
    const took = ops.end[i] - ops.start[i];
    if (took > most) most = took;
    if (took > 0 && took < least) least = took;
  }
  if (!most) { least = 1e6; most = 1e9; }
  const low = Math.floor(Math.log10(Math.min(least, most))), high = Math.max(low + 1, Math.ceil(Math.log10(most)));
  const y = (took) => height - 8 - ((Math.log10(Math.max(took, 10 ** low)) - low) / (high - low)) * (height - 18);
  return { low, high, y };
}

function latencyPanel(canvas, page) {
  const height = 170, boxes = new Boxes();
  const { low, high, y } = logScale(page, height);
  const series = cachedSeries(page, 9, (range) => quantiles(page, range.from, range.to, range.width, page.quantile));
  return new Panel(canvas, {
    height: () => height,
    draw(pen, width) {
      boxes.clear();
      faultBands(pen, page, height);
      gridLines(pen, height);
      cutBands(pen, page, height);
      for (let power = low; power <= high; power++) {
        label(pen, duration(10 ** power).replace(/\.0+(?= )/, ""), y(10 ** power));
        pen.fillStyle = ink.line;
        pen.fillRect(LEFT, Math.round(y(10 ** power)), width - LEFT - RIGHT, 1);
      }
      clipped(pen, LEFT, 0, width - LEFT - RIGHT, height, () => {
        latencyDots(pen, page, y);
        const kept = series();
        kept.series.forEach((points, kind) => quantileLine(pen, page, points, kind, kept, y, boxes));
      });
      momentLine(pen, page, height);
    },
    hit: (x, at) => (x < LEFT ? null : boxes.at(x, at)),
  });
}

function latencyDots(pen, page, y) {
  const { ops } = page;
  const first = countBelow(ops.start, view.from), last = countBelow(ops.start, view.to);
  if (last - first > DOTS_MAX) return;
  pen.globalAlpha = 0.45;
  for (let i = first; i < last; i++) {
    if (ops.type[i] !== OK || (filter.active && !filter.match[i])) continue;
    pen.fillStyle = kindColour(ops.kind[i]);
    pen.fillRect(view.x(ops.start[i]) - 1, y(ops.end[i] - ops.start[i]) - 1, 2, 2);
  }
  pen.globalAlpha = 1;
}

function quantileLine(pen, page, points, kind, kept, y, boxes) {
  pen.strokeStyle = pen.fillStyle = kindColour(kind);
  pen.lineWidth = 1.6;
  pen.beginPath();
  let before = -2;
  for (const point of points) { // empty buckets interrupt the line
    const px = view.x(point.time), py = y(point.value);
    if (point.bucket === before + 1) pen.lineTo(px, py); else pen.moveTo(px, py);
    before = point.bucket;
  }
  pen.stroke();
  for (const point of points) {
    const px = view.x(point.time), py = y(point.value);
    if (px < LEFT || px > view.width) continue;
    pen.fillRect(px - 1.5, py - 1.5, 3, 3);
    boxes.add(px - 4, py - 5, px + 4, py + 5, {
      lines: [`${page.ops.kinds[kind]}: ${quantileName(page.quantile)} ${duration(point.value)}`,
        `of ${plural(point.count, "ok operation")} invoked from ${seconds(point.time - kept.width / 2)}, in ${duration(kept.width)}`],
      click: () => view.show(point.time - kept.width / 2, point.time + kept.width / 2),
    });
  }
}

const quantileName = (q) => (q >= 1 ? "maximum" : q === 0.5 ? "median" : `p${q * 100}`);

function ratePanel(canvas, page) {
  const height = 110;
  const series = cachedSeries(page, 5, (range) => rates(page, range.from, range.to, range.width), RATE_BUCKET_MIN);
  let shown = null;
  return new Panel(canvas, {
    height: () => height,
    draw(pen, width) {
      const kept = shown = series(), buckets = kept.series[0].length;
      let most = 0;
      for (let b = 0; b < buckets; b++) most = Math.max(most, kept.series[OK][b] + kept.series[FAIL][b] + kept.series[INFO][b]);
      const perSecond = 1e9 / kept.width, top = niceStep(Math.max(most * perSecond, 1e-9), 1);
      const tall = (count) => (count * perSecond * (height - 18)) / top;
      faultBands(pen, page, height);
      gridLines(pen, height);
      cutBands(pen, page, height);
      for (const share of [0, 0.5, 1]) {
        label(pen, `${Number((top * share).toPrecision(3)).toLocaleString("en")}/s`, height - 8 - (height - 18) * share);
        pen.fillStyle = ink.line;
        pen.fillRect(LEFT, Math.round(height - 8 - (height - 18) * share), width - LEFT - RIGHT, 1);
      }
      clipped(pen, LEFT, 0, width - LEFT - RIGHT, height, () => {
        for (let b = 0; b < buckets; b++) {
          const x0 = view.x(kept.from + b * kept.width), x1 = view.x(kept.from + (b + 1) * kept.width);
          if (x1 < LEFT || x0 > width) continue;
          let base = height - 8;
          for (const type of [OK, FAIL, INFO]) {
            const part = tall(kept.series[type][b]);
            if (!part) continue;
            pen.fillStyle = ink.outcomes[type];
            pen.fillRect(x0, base - part, Math.max(1, x1 - x0 - 1), part);
            base -= part;
          }
        }
      });
      momentLine(pen, page, height);
    },
    hit: (x) => {
      if (x < LEFT || !shown) return null;
      const bucket = Math.floor((view.time(x) - shown.from) / shown.width);
      if (bucket < 0 || bucket >= shown.series[0].length) return null;
      const from = shown.from + bucket * shown.width;
      return {
        lines: [`ended from ${seconds(from)}, in ${duration(shown.width)}`, OUTCOMES.map((name, type) => `${name} ${shown.series[type][bucket]}`).join(", ")],
        click: () => view.show(from, from + shown.width),
      };
    },
  });
}
