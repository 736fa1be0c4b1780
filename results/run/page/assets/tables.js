// Tables: a lane an id, for the tables that lived in the part of time in view.

const TABLE_ROWS_MAX = 40;
const TABLE_ROW = 18;

function tablesPanel(canvas, page) {
  const { data } = page, boxes = new Boxes();
  const lanes = data.tables.map((table) => tableLane(page, table));
  let rows = [];
  const blamed = new Set(lanes.filter((lane) => page.focus.some((i) => mentionsTable(page, i, lane.id))));
  const choose = () => {
    const seen = lanes.filter((lane) => lane.first <= view.to && lane.last >= view.from && tableMatches(lane));
    const first = seen.filter((lane) => blamed.has(lane));
    rows = [...first, ...seen.filter((lane) => !blamed.has(lane))].slice(0, TABLE_ROWS_MAX);
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
        label(pen, lane.title, y + TABLE_ROW / 2, blamed.has(lane) ? ink.red : ink.soft);
        clipped(pen, LEFT, y, width - LEFT - RIGHT, TABLE_ROW, () => drawTable(pen, page, lane, y, boxes, blamed.has(lane)));
      });
      pen.fillStyle = ink.soft;
      const y = 3 + (rows.length + 0.5) * TABLE_ROW;
      if (page.tablesHidden) pen.fillText(`and ${plural(page.tablesHidden, "more table")} in this part of time: zoom in, or filter by table`, LEFT + 6, y);
      if (!rows.length) pen.fillText("no table lived in this part of time", LEFT + 6, y);
      momentLine(pen, page, height);
    },
    hit: (x, y) => boxes.at(x, y) || labelHit(page, rows, x, y),
  });
}

function labelHit(page, rows, x, y) {
  const lane = x < LEFT ? rows[Math.floor((y - 3) / TABLE_ROW)] : undefined;
  return lane ? { lines: [`table ${lane.id}`, `names: ${lane.names.join(", ") || "none known"}`, "click: all that is known of it"], click: () => page.selectTable(lane) } : null;
}

function tableLane(page, table) {
  const created = table.events.find((event) => event[0] === "create");
  const deleted = table.events.find((event) => event[0] === "delete");
  const times = [...table.events.flatMap((event) => [event[1], event[2]]), ...table.seen].filter((time) => time !== null);
  const alive = !deleted && times.length ? page.data.end : 0;
  return {
    ...table, created, deleted, alive,
    first: Math.min(...times), last: Math.max(alive, ...times),
    title: table.names.length ? `${table.names[table.names.length - 1]} · ${table.id.slice(0, 6)}` : table.id.slice(0, 12),
  };
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

// A thin line while reads saw the id, a thick one from the first acknowledged change to its
// deletion; a triangle, a disc, a diamond and a cross for created, altered, renamed and deleted.
function drawTable(pen, page, lane, top, boxes, blamed) {
  const y = top + TABLE_ROW / 2, colour = blamed ? ink.red : ink.lead;
  const from = lane.created ? lane.created[2] : lane.first;
  const to = lane.deleted ? lane.deleted[2] : page.data.end;
  pen.fillStyle = colour;
  pen.globalAlpha = 0.35;
  pen.fillRect(view.x(from), y - 4, Math.max(1, view.x(to) - view.x(from)), 8);
  pen.globalAlpha = 1;
  boxes.add(view.x(from), top, view.x(to), top + TABLE_ROW, { lines: tableLines(lane), click: () => page.selectTable(lane) });
  if (lane.seen[0] !== null) pen.fillRect(view.x(lane.seen[0]), y - 0.5, Math.max(1, view.x(lane.seen[1]) - view.x(lane.seen[0])), 1.5);
  for (const event of lane.events) {
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
