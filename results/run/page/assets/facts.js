// Facts: lanes of phases, faults and notes, and one lane per node (terms as leader, down, paused).

const ROW = 20;
const ROWS_MAX = 150;

function axisPanel(canvas, page) {
  return new Panel(canvas, {
    height: () => 22,
    draw(pen) {
      const { step, found } = ticks();
      pen.fillStyle = ink.soft;
      pen.textAlign = "center";
      for (const time of found) {
        const x = view.x(time), text = seconds(time, step), half = pen.measureText(text).width / 2;
        if (x - half >= LEFT - 4 && x <= view.width - 24) pen.fillText(text, x, 11); // leave room for the label "time"
      }
      pen.textAlign = "left";
      label(pen, "time in view", 11);
      for (const position of page.focus) {
        const x = view.x(page.ops.start[position]);
        if (x < LEFT || x > view.width) continue;
        pen.fillStyle = ink.blame;
        pen.beginPath();
        pen.moveTo(x - 4, 15);
        pen.lineTo(x + 4, 15);
        pen.lineTo(x, 22);
        pen.fill();
      }
    },
  });
}

// Return the lanes from top to bottom: name, content and height of each.
function factRows(page) {
  const { data } = page;
  const rows = [{ name: "phase", height: ROW, draw: drawPhases }];
  if (data.why) rows.push({ name: "rate of failure", height: 60, draw: drawRate });
  for (const nemesis of data.nemeses) {
    const own = data.faults.filter((fault) => fault.nemesis === nemesis);
    const lanes = Math.min(8, 1 + own.reduce((most, fault) => Math.max(most, fault.lane), 0));
    rows.push({ name: nemesis, height: 4 + 16 * lanes, draw: drawFaults, own });
  }
  if (data.marks.length || page.focusFacts.length) rows.push({ name: "noted", height: ROW, draw: drawMarks });
  const quiet = [];
  for (const node of data.nodes) {
    const reigns = data.reigns.filter((reign) => reign.node === node), states = data.states.filter((state) => state.node === node);
    if (reigns.length || states.length) rows.push({ name: node, height: ROW, draw: drawNode, reigns, states });
    else quiet.push(node);
  }
  if (quiet.length) rows.push({ name: quiet.length > 4 ? `${quiet.length} more nodes` : quiet.join(", "), height: ROW, draw: drawQuiet, quiet });
  if (rows.length <= ROWS_MAX) return rows;
  const more = { name: `${rows.length - ROWS_MAX} more, not drawn`, height: ROW, draw: () => {} };
  return [...rows.slice(0, ROWS_MAX), more];
}

function factsPanel(canvas, page) {
  const rows = factRows(page), boxes = new Boxes();
  const total = rows.reduce((sum, row) => sum + row.height, 6);
  return new Panel(canvas, {
    height: () => total,
    draw(pen, width, height) {
      boxes.clear();
      gridLines(pen, height);
      let top = 3;
      for (const row of rows) {
        label(pen, row.name, top + row.height / 2);
        clipped(pen, LEFT, top, width - LEFT - RIGHT, row.height, () => row.draw(pen, page, top, row, boxes));
        top += row.height;
      }
      momentLine(pen, page, height);
    },
    hit: (x, y) => (x < LEFT ? null : boxes.at(x, y)),
  });
}

// Draw a bar from start to end with a text in it; return the box of the bar.
function bar(pen, start, end, top, height, fill, text, textColour) {
  const x0 = Math.max(LEFT - 4, view.x(start)), x1 = Math.min(view.width, Math.max(view.x(end), view.x(start) + 2));
  pen.fillStyle = fill;
  pen.fillRect(x0, top, x1 - x0, height);
  if (text && x1 - x0 > 24) {
    pen.fillStyle = textColour;
    const from = Math.max(x0, LEFT);
    pen.fillText(fitted(pen, text, x1 - from - 8), from + 4, top + height / 2 + 0.5);
  }
  return [x0, top, x1, top + height];
}

function drawPhases(pen, page, top, row, boxes) {
  const { phases, end } = page.data;
  phases.forEach(([start, name], i) => {
    const until = i + 1 < phases.length ? phases[i + 1][0] : end;
    if (until < view.from || start > view.to) return;
    const box = bar(pen, start, until, top + 2, row.height - 5, i % 2 ? ink.panel : ink.shade, name, ink.soft);
    boxes.add(...box, {
      lines: [`phase ${name}`, `${seconds(start)} to ${seconds(until)}, ${duration(until - start)}`],
      click: () => view.show(start, until),
    });
  });
}

function drawFaults(pen, page, top, row, boxes) {
  for (const fault of row.own) {
    const end = fault.end === null ? page.data.end : fault.end;
    if (end < view.from || fault.start > view.to) continue;
    const y = top + 2 + 16 * Math.min(fault.lane, 7), colour = nemesisColour(page, fault.nemesis);
    let box;
    if (!fault.targets.length) { // a fault without targets: a hollow mark without duration
      const x = view.x(fault.start);
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.strokeRect(x - 3, y + 4, 6, 6);
      box = [x - 4, y, x + 4, y + 14];
    } else {
      pen.globalAlpha = 0.32;
      box = bar(pen, fault.start, end, y, 14, colour, "", "");
      pen.globalAlpha = 1;
      pen.fillStyle = colour;
      pen.fillRect(box[0], y, 2, 14);
      if (fault.end !== null) pen.fillRect(box[2] - 2, y, 2, 14);
      pen.fillStyle = ink.ink;
      const from = Math.max(box[0], LEFT) + 5;
      if (box[2] - from > 20) pen.fillText(fitted(pen, fault.note || fault.targets.join(", "), box[2] - from - 4), from, y + 7.5);
    }
    boxes.add(...box, { lines: faultLines(fault), click: () => selectFault(page, fault) });
  }
}

// Draw the rate of the failure as a function of the time until which all runs are equal: a line
// with dots over 95 % intervals, and the time from which every run failed.
function drawRate(pen, page, top, row, boxes) {
  const { points, from } = page.data.why;
  const y = (rate) => top + row.height - 6 - rate * (row.height - 14);
  pen.fillStyle = ink.line;
  for (const rate of [0, 0.5, 1]) pen.fillRect(LEFT, Math.round(y(rate)), view.width - RIGHT - LEFT, 1);
  pen.globalAlpha = 0.16;
  pen.fillStyle = ink.blame;
  pen.beginPath();
  for (const [at, , , , high] of points) pen.lineTo(view.x(at), y(high));
  for (const [at, , , low] of [...points].reverse()) pen.lineTo(view.x(at), y(low));
  pen.fill();
  pen.globalAlpha = 1;
  pen.strokeStyle = ink.blame;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const [at, failed, runs] of points) pen.lineTo(view.x(at), y(failed / runs));
  pen.stroke();
  if (from !== null) {
    const x = Math.round(view.x(from)) + 0.5, text = "inevitable";
    pen.strokeStyle = pen.fillStyle = ink.ink;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, top + row.height);
    pen.stroke();
    const wide = pen.measureText(text).width + 5;
    pen.fillText(text, x + wide > view.width - RIGHT ? x - wide : x + 5, y(0.25));
  }
  for (const [at, failed, runs, low, high] of points) {
    const x = view.x(at), rate = y(failed / runs);
    pen.fillStyle = ink.blame;
    pen.beginPath();
    pen.arc(x, rate, 3, 0, 2 * Math.PI);
    pen.fill();
    const lines = [
      `${failed} of ${runs} runs fail in the same way`,
      `if everything until ${seconds(at)} stays the same and random draws after it change`,
      `95 % interval ${Math.round(low * 100)} to ${Math.round(high * 100)} %`,
    ];
    boxes.add(x - 5, top, x + 5, top + row.height, { lines, click: () => page.selectFact("rate of failure", lines, at) });
  }
}

const selectFault = (page, fault) => page.selectFact(`fault ${fault.id}`, faultLines(fault), fault.start);
const selectReign = (page, reign) => page.selectFact(`${reign.node} leads${inTerm(reign)}`, reignLines(page, reign), reign.start);

function faultLines(fault) {
  const lines = [fault.id, fault.note];
  lines.push(fault.targets.length ? `targets: ${fault.targets.join(", ")}` : "no target");
  lines.push(`from ${seconds(fault.start)} ${fault.end === null ? "on; the history has no heal" : `to ${seconds(fault.end)}, ${duration(fault.end - fault.start)}`}`);
  if (fault.bite) lines.push(`measured effect: ${fault.bite}`);
  return lines.filter((line) => line);
}

function drawMarks(pen, page, top, row, boxes) {
  const marks = [...page.data.marks, ...page.focusFacts.map(([, time, f]) => [time, f, "named by a checker", true])];
  for (const [time, f, text, blamed] of marks) {
    if (time < view.from || time > view.to) continue;
    const x = view.x(time), y = top + row.height / 2;
    pen.fillStyle = blamed ? ink.blame : ink.soft;
    pen.beginPath();
    pen.moveTo(x, y - 5);
    pen.lineTo(x + 5, y);
    pen.lineTo(x, y + 5);
    pen.lineTo(x - 5, y);
    pen.fill();
    const lines = [f, text, `at ${seconds(time)}`];
    boxes.add(x - 5, top, x + 5, top + row.height, { lines, click: () => selectMark(page, time, f, text) });
  }
}

const selectMark = (page, time, f, text) => page.selectFact(f, [text, `at ${seconds(time)}`], time);

function drawNode(pen, page, top, row, boxes) {
  const middle = Math.round(top + row.height / 2) + 0.5;
  pen.strokeStyle = ink.line;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(LEFT, middle);
  pen.lineTo(view.width - RIGHT, middle);
  pen.stroke();
  for (const reign of row.reigns) {
    const end = reign.end === null ? page.data.end : reign.end;
    const last = Math.max(end, reign.answered || 0);
    if (last < view.from || reign.start > view.to) continue;
    const lines = reignLines(page, reign);
    const thing = { lines, click: () => selectReign(page, reign) };
    boxes.add(...bar(pen, reign.start, end, top + 3, row.height - 8, ink.lead, reign.term ? `term ${reign.term}` : "leads", ink.paper), thing);
    if (reign.answered) {
      const box = bar(pen, end, reign.answered, top + 3, row.height - 8, hatch(pen, ink.lead), "", "");
      hatchedText(pen, stillAnswers(reign), box);
      pen.strokeStyle = ink.lead;
      pen.lineWidth = 1;
      pen.strokeRect(box[0] + 0.5, box[1] + 0.5, box[2] - box[0] - 1, box[3] - box[1] - 1);
      boxes.add(...box, thing);
    }
  }
  for (const state of row.states) {
    const end = state.end === null ? page.data.end : state.end;
    if (end < view.from || state.start > view.to) continue;
    const lines = [`${state.node} is ${state.kind}`, `${seconds(state.start)} to ${state.end === null ? "the end" : seconds(end)}, ${duration(end - state.start)}`, state.why];
    const thing = { lines, click: () => page.selectFact(lines[0], lines, state.start) };
    const colour = state.kind === "down" ? ink.down : ink.paused;
    boxes.add(...bar(pen, state.start, end, top + 3, row.height - 8, colour, state.kind, ink.paper), thing);
  }
}

// Draw one common lane for all nodes that, according to the history, never led and were never down
// or paused.
function drawQuiet(pen, page, top, row, boxes) {
  const middle = Math.round(top + row.height / 2) + 0.5;
  pen.fillStyle = ink.line;
  pen.fillRect(LEFT, middle - 1, view.width - RIGHT - LEFT, 2);
  const lines = [row.quiet.join(", "), "only answers of these nodes and faults that hit them are recorded"];
  boxes.add(LEFT, top, view.width, top + row.height, { lines, click: () => page.selectFact(plural(row.quiet.length, "node"), lines, view.from) });
}

// Draw a text on a plain background over a hatched bar, if the whole text fits.
function hatchedText(pen, text, [x0, top, x1, bottom]) {
  const from = Math.max(x0, LEFT) + 4, wide = pen.measureText(text).width + 6;
  if (x1 - from < wide + 4) return;
  pen.fillStyle = ink.paper;
  pen.fillRect(from, top + 1, wide, bottom - top - 2);
  pen.fillStyle = ink.ink;
  pen.fillText(text, from + 3, (top + bottom) / 2 + 0.5);
}

const inTerm = (reign) => (reign.term ? ` in term ${reign.term}` : "");
const stillAnswers = (reign) => (reign.in_term ? `still answers in term ${reign.term}` : "still answers");

function reignLines(page, reign) {
  const lines = [`${reign.node} led${inTerm(reign)}`];
  if (reign.asked) lines.push("the target does not announce leaders: the harness polled for this one, and may have missed changes between two polls");
  if (reign.contested) lines.push("another node led in this term or a later one");
  lines.push(reign.end === null ? `from ${seconds(reign.start)} to the end` : `from ${seconds(reign.start)} to ${seconds(reign.end)}, when ${reign.until}`);
  if (reign.answered) lines.push(`but it still answered ${reign.in_term ? `in term ${reign.term} ` : ""}at ${seconds(reign.answered)} (hatched)`);
  return lines;
}
