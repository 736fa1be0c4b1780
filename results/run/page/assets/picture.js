// Picture: a checker's own drawings, or the operations that contradict each other, in time order.
// A row shows an operation: its words, its bar from call to answer, and its step in a partial
// linearization. Positions show the order of events, not their times, since only the order matters.

const SVG = "http://www.w3.org/2000/svg";
const PICTURE_WIDTH = Math.max(280, Math.min(440, innerWidth - 75)), PICTURE_ROW = 30, PICTURE_EDGE = 6;

function svgEl(tag, properties, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value); else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function pictureOf(page, checker) {
  const cycles = checker.drawings.map((drawing) => el("img", { alt: "A cycle: transactions as boxes, with the reason why each comes before the next", src: `data:image/svg+xml;base64,${drawing}` }));
  const pictures = [...cycles, ...checker.orders.map((order) => drawOrder(page, order)).filter((one) => one)];
  if (!pictures.length) return null;
  const figure = el("figure", {}), what = cycles.length ? "Cycle" : "Partial linearization";
  const show = (n) => figure.replaceChildren(pictures[n], ...(pictures.length > 1
    ? [el("button", { type: "button", onclick: () => show((n + 1) % pictures.length) }, `${what} ${n + 1} of ${pictures.length}: next`)] : []));
  show(0);
  return figure;
}

function drawOrder(page, order) {
  const { ops } = page;
  const failing = order.failing === null ? -1 : positionOf(ops, order.failing);
  const steps = order.steps.map((index) => positionOf(ops, index)).filter((i) => i >= 0);
  const rows = [...new Set([...steps, ...[...order.core, ...order.pending].map((index) => positionOf(ops, index)).filter((i) => i >= 0), failing])]
    .filter((i) => i >= 0).sort((a, b) => ops.start[a] - ops.start[b] || ops.index[a] - ops.index[b]);
  if (rows.length < 2) return null;
  const moments = [...new Set(rows.flatMap((i) => [ops.start[i], ops.end[i]]))].sort((a, b) => a - b);
  const x = (rank) => PICTURE_EDGE + 12 + (rank * (PICTURE_WIDTH - 2 * PICTURE_EDGE - 24)) / Math.max(1, moments.length - 1);
  const height = rows.length * PICTURE_ROW + (order.state ? 24 : 6);
  const picture = svgEl("svg", { viewBox: `0 0 ${PICTURE_WIDTH} ${height}`, role: "img", class: "order", "aria-label": `The operations that contradict each other, by time: ${rows.map((i) => `op ${ops.index[i]}`).join(", ")}` });
  const marks = [], most = Math.floor(PICTURE_WIDTH / 7);
  let at = -1;
  for (const [number, i] of steps.entries()) { // each step is as early as its call and the previous step allow
    at = Math.max(at + 0.04, moments.indexOf(ops.start[i]) + 0.2);
    marks.push([x(at), rows.indexOf(i) * PICTURE_ROW + 21, number + 1]);
  }
  rows.forEach((i, row) => {
    const left = x(moments.indexOf(ops.start[i])), right = x(moments.indexOf(ops.end[i])), y = row * PICTURE_ROW;
    const kind = i === failing || (failing < 0 && i === page.blamed) ? "failing" : steps.includes(i) || !order.steps.length ? "placed" : "open";
    const node = ops.node[i] ? ` · ${page.data.strings[ops.node[i]]}` : "";
    const words = `op ${ops.index[i]} ${opLabel(page, i)}${node}${i === failing && order.steps.length ? ": has no possible place" : ""}`;
    const early = left < PICTURE_WIDTH / 2;
    const lost = ops.type[i] === INFO;
    const bar = svgEl("rect", { x: left, y: y + 17, width: Math.max(5, right - left), height: 8, rx: 2 });
    if (kind === "placed" && !lost) bar.style.fill = bar.style.stroke = kindStyle(ops.kind[i]);
    picture.append(svgEl("g", { class: `${kind}${lost ? " lost" : ""}`, onclick: () => { page.select(i, true); showTimeline(); } },
      svgEl("text", { x: early ? left : right, y: y + 12, "text-anchor": early ? "start" : "end" }, words.length > most ? `${words.slice(0, most - 1)}…` : words),
      bar));
  });
  if (marks.length) picture.append(svgEl("polyline", { points: marks.map(([px, py]) => `${px},${py}`).join(" ") }));
  for (const [px, py, number] of marks) {
    picture.append(svgEl("circle", { cx: px, cy: py, r: 6.5 }), svgEl("text", { x: px, y: py + 3.5, "text-anchor": "middle", class: "step" }, String(number)));
  }
  if (order.state) picture.append(svgEl("text", { x: PICTURE_EDGE, y: height - 7, class: "state" }, `after ${marks.length ? `step ${marks.length}` : "these"}: ${order.state.slice(0, 60)}${order.state.length > 60 ? "…" : ""}`));
  return picture;
}
