// Tables: a lane per name, with a segment for each table id while the table had this name.

const TABLE_ROWS_MAX = 40;
const TABLE_ROW = 18;

function tablesPanel(canvas, page) {
  const { data } = page, boxes = new Boxes();
  const blamed = new Set(data.tables.filter((table) => page.focus.some((i) => mentionsTable(page, i, table.id))));
  const lanes = namedLanes(page, blamed);
  let rows = [];
  const choose = () => {
    const seen = lanes.filter((lane) => lane.segments.some((one) => one.first <= view.to && one.last >= view.from && tableMatches(one.table)));
    rows = seen.slice(0, TABLE_ROWS_MAX);
    page.tablesHidden = seen.length - rows.length;
    page.tablesSeen = seen.length;
  };
  return new Panel(canvas, {
    height: () => { choose(); return Math.max(2, rows.length + (page.tablesHidden ? 1 : 0)) * TABLE_ROW + 6; },
    draw(pen, width, height) {
      boxes.clear();
      faultBands(pen, page, height);
      gridLines(pen, height);
      rows.forEach((lane, n) => {
        const y = 3 + n * TABLE_ROW;
        label(pen, lane.name, y + TABLE_ROW / 2, lane.blamed ? ink.blame : ink.soft);
        clipped(pen, LEFT, y, width - LEFT - RIGHT, TABLE_ROW, () => {
          for (const segment of lane.segments) if (segment.first <= view.to && segment.last >= view.from) drawSegment(pen, page, segment, y, boxes, blamed.has(segment.table));
        });
      });
      pen.fillStyle = ink.soft;
      const y = 3 + (rows.length + 0.5) * TABLE_ROW;
      if (page.tablesHidden) pen.fillText(`and ${plural(page.tablesHidden, "more name")} in this part of the run: zoom in, or filter by table`, LEFT + 6, y);
      if (!rows.length) pen.fillText("no table existed in this part of the run", LEFT + 6, y);
      momentLine(pen, page, height);
    },
    hit: (x, y) => boxes.at(x, y) || labelHit(page, rows, x, y),
  });
}

function labelHit(page, rows, x, y) {
  const lane = x < LEFT ? rows[Math.floor((y - 3) / TABLE_ROW)] : undefined;
  return lane ? { lines: [`${plural(lane.segments.length, "table")} of the name ${lane.name}`, "click: show only their operations"], click: () => page.setFilter({ table: lane.name }) } : null;
}

// Return the lanes ordered by time; lanes of tables that a checker blames come first.
function namedLanes(page, blamed) {
  const lanes = new Map(), { tables, end } = page.data;
  const stored = tables.some((table) => table.final.length); // whether masters reported final states
  for (const table of tables) {
    const alive = !stored || table.final.some((text) => !text.includes("REMOVED"));
    for (const segment of segmentsOf(table, alive ? end : 0)) {
      if (!lanes.has(segment.name)) lanes.set(segment.name, { name: segment.name, segments: [], blamed: false });
      const lane = lanes.get(segment.name);
      lane.segments.push(segment);
      lane.blamed ||= blamed.has(table);
    }
  }
  return [...lanes.values()].sort((a, b) => Number(b.blamed) - Number(a.blamed) || a.segments[0].first - b.segments[0].first);
}

// Return one segment per name that a table had, from one acknowledged change of its name to the next.
// Reads that saw the id before or after these changes extend the segments. A table that is gone at
// the end, but has no acknowledged deletion, existed at least until the last operation that saw it.
function segmentsOf(table, alive) {
  const events = [...table.events].sort((a, b) => a[2] - b[2]);
  const [seenFirst, seenLast] = table.seen, start = events.length ? events[0] : null;
  const before = !start || start[0] === "rename" ? table.names.find((name) => !start || name !== start[5]) : start[5];
  const from = start && start[0] === "create" ? start[2] : Math.min(seenFirst ?? Infinity, start ? start[1] : Infinity);
  const end = Math.max(alive, seenLast ?? 0, ...events.map((event) => event[2]));
  let segment = { table, name: before || table.id.slice(0, 12), from, to: end, events: [] };
  const segments = [segment];
  for (const event of events) {
    if (event[0] === "rename") {
      segment.to = event[2];
      segment = { table, name: event[5], from: event[2], to: end, events: [] };
      segments.push(segment);
    } else if (event[0] === "delete") segment.to = event[2];
    segment.events.push(event);
  }
  segments.forEach((one, n) => {
    one.line = seenFirst === null ? null : [n ? Math.max(seenFirst, one.from) : seenFirst, one === segment ? seenLast : Math.min(seenLast, one.to)];
    one.first = Math.min(one.from, one.line ? one.line[0] : one.from);
    one.last = Math.max(one.to, one.line ? one.line[1] : one.to);
  });
  return segments;
}

function mentionsTable(page, position, id) {
  const { ops, data } = page;
  for (let m = ops.mentionAt[position]; m < ops.mentionAt[position + 1]; m++) if (data.names[ops.mention[m]] === id) return true;
  return false;
}

function tableMatches(lane) {
  if (filter.table === "") return true;
  return lane.id.includes(filter.table) || lane.names.some((name) => name.includes(filter.table));
}

// Draw a thin line while reads saw the id, and a thick line from the first acknowledged change to the
// deletion. Marks are a triangle (created), a disc (altered), a diamond (renamed), a cross (deleted).
function drawSegment(pen, page, segment, top, boxes, blamed) {
  const { table, from, to, line } = segment, y = top + TABLE_ROW / 2, colour = blamed ? ink.blame : ink.lead;
  const x0 = view.x(from), x1 = Math.max(x0 + 1, view.x(to));
  pen.fillStyle = colour;
  pen.globalAlpha = 0.35;
  pen.fillRect(x0, y - 5, x1 - x0, 10);
  pen.globalAlpha = 1;
  boxes.add(view.x(segment.first), top, view.x(segment.last), top + TABLE_ROW, { lines: tableLines(table), click: () => page.selectTable(table) });
  if (line && line[1] > line[0]) pen.fillRect(view.x(line[0]), y + 4, Math.max(1, view.x(line[1]) - view.x(line[0])), 1.5);
  const left = Math.max(x0, LEFT) + 8;
  if (x1 - left > 60 && !segment.events.some((event) => view.x(event[2]) > left - 4 && view.x(event[2]) < left + 46)) {
    pen.fillStyle = ink.ink;
    pen.fillText(table.id.slice(0, 6), left, y);
  }
  for (const event of segment.events) {
    const x = view.x(event[2]);
    if (x < LEFT - 10 || x > view.width + 10) continue;
    eventMark(pen, event[0], x, y, colour);
    boxes.add(x - 5, top, x + 5, top + TABLE_ROW, {
      lines: [event[4], `acknowledged at ${seconds(event[2])}`, `op ${event[3]}`],
      click: () => page.selectIndex(event[3]),
    });
  }
}

function eventMark(pen, kind, x, y, colour) {
  pen.fillStyle = pen.strokeStyle = colour;
  pen.lineWidth = 1.8;
  pen.beginPath();
  if (kind === "create") { pen.moveTo(x - 3, y - 5); pen.lineTo(x + 5, y); pen.lineTo(x - 3, y + 5); pen.fill(); }
  else if (kind === "alter") { pen.arc(x, y, 3.5, 0, 7); pen.fill(); }
  else if (kind === "rename") { pen.moveTo(x, y - 5); pen.lineTo(x + 5, y); pen.lineTo(x, y + 5); pen.lineTo(x - 5, y); pen.fill(); }
  else { pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y + 4); pen.moveTo(x + 4, y - 4); pen.lineTo(x - 4, y + 4); pen.stroke(); }
}

function tableLines(lane) {
  const lines = [`table ${lane.id}`, `names: ${lane.names.join(" → ") || "none known"}`];
  if (lane.seen[0] !== null) lines.push(`seen by reads from ${seconds(lane.seen[0])} to ${seconds(lane.seen[1])}`);
  return [...lines, ...lane.final.map((text) => `at the end, ${text}`)];
}
