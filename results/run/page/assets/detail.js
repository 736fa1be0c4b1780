// Detail: shows everything about the selection, next to the panels, as text and never as markup.

const LIST_MAX = 200;
const LOG_LINES = 6; // log lines shown before and after the selected moment

// Make an element with properties and children; strings become text.
function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function fill(id, ...children) {
  const place = byId(id);
  place.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
  return place;
}

// Return the address of a file of the run, relative to the page, with each part of its path quoted.
const fileAddress = (path) => `./${path.split("/").map(encodeURIComponent).join("/")}`;

const row = (name, ...value) => el("div", { class: "row" }, el("dt", {}, name), el("dd", {}, ...value));

function opButton(page, position, text) {
  return el("button", { class: "link", type: "button", onclick: () => page.select(position, true) }, text);
}

function showOp(page, i) {
  const { ops, data } = page;
  const rows = [
    row("outcome", el("b", { class: `is-${OUTCOMES[ops.type[i]]}` }, OUTCOMES[ops.type[i]]), outcomeNote(ops, i)),
    row("invoked", seconds(ops.start[i], 1e3)),
    row("ended", ops.end[i] === Infinity ? "never" : `${seconds(ops.end[i], 1e3)}, after ${duration(ops.end[i] - ops.start[i])}`),
    ops.node[i] ? row("node", data.strings[ops.node[i]]) : null,
    ops.call[i] ? row("asked", pretty(data.strings[ops.call[i]])) : null,
    ops.back[i] ? row("answer", pretty(data.strings[ops.back[i]])) : null,
    ops.error[i] ? row("error", data.strings[ops.error[i]]) : null,
  ];
  const [before, after] = neighbours(page, i);
  fill("detail",
    el("h2", {}, `op ${ops.index[i]}: ${opLabel(page, i)}`),
    el("p", { class: "soft" }, `process ${ops.process[i]}`,
      before >= 0 ? opButton(page, before, "‹ before") : null, after >= 0 ? opButton(page, after, "after ›") : null),
    page.focusSet.has(i) ? el("p", { class: "blame" }, blameWords(page)[1]) : null,
    el("dl", {}, ...rows.filter((one) => one)), attemptTable(page, i), meanwhile(page, ops.start[i]), logsAt(page, ops.start[i]));
  say(`${opLines(page, i).join(". ")}`);
}

function outcomeNote(ops, i) {
  if (ops.type[i] === INFO) return " it may take effect at any later time, or never";
  return ops.type[i] === FAIL ? " it certainly did nothing" : "";
}

function pretty(json) {
  let text = json;
  try { if (json.length > 90) text = JSON.stringify(JSON.parse(json), null, 1); } catch { /* cut: shown as it is */ }
  return el("pre", {}, text);
}

function neighbours(page, i) {
  const positions = page.ops.byLane[page.ops.lane[i]];
  const at = positions.indexOf(i);
  return [at > 0 ? positions[at - 1] : -1, at + 1 < positions.length ? positions[at + 1] : -1];
}

function attemptTable(page, i) {
  const { ops, data } = page;
  const from = ops.attemptAt[i], to = ops.attemptAt[i + 1];
  if (from === to) return el("p", { class: "soft" }, "No RPC attempt is recorded.");
  const body = el("tbody");
  for (let a = from; a < to; a++) {
    body.append(el("tr", {},
      el("td", {}, data.strings[ops.attemptNode[a]]),
      el("td", {}, seconds(ops.start[i] + ops.attemptStart[a], 1e4)),
      el("td", {}, duration(ops.attemptTook[a])),
      el("td", {}, data.strings[ops.attemptOutcome[a]])));
  }
  return el("section", {}, el("h3", {}, plural(to - from, "RPC attempt")), el("table", { class: "attempts" },
    el("thead", {}, el("tr", {}, ...["to", "sent", "took", "outcome"].map((name) => el("th", { scope: "col" }, name)))), body));
}

// Describe the leader at a moment: the last leader seen, unless its reign has ended.
function leading(reign, time) {
  if (!reign) return "no leader seen yet";
  if (reign.end === null || reign.end > time) return `${reign.node} ${reign.asked ? "was the last seen to lead" : "leads"}${inTerm(reign)}`;
  return `no leader: ${reign.node} led${inTerm(reign)} until ${seconds(reign.end)}, when ${reign.until}`;
}

// Describe the state of the run at a moment: phase, faults, leader, nodes that did not run.
function meanwhile(page, time) {
  const { data } = page;
  const phase = data.phases.filter(([start]) => start <= time).pop();
  const faults = data.faults.filter((fault) => fault.targets.length && fault.start <= time && (fault.end === null || fault.end >= time));
  const reign = data.reigns.filter((one) => one.start <= time && !one.contested).pop();
  const states = data.states.filter((state) => state.start <= time && (state.end === null || state.end >= time));
  const items = [
    phase ? `phase ${phase[1]}` : null,
    leading(reign, time),
    ...data.reigns.filter((one) => one.answered && one.end <= time && one.answered >= time).map((one) => `${one.node} ${stillAnswers(one)}`),
    ...faults.slice(0, 20).map((fault) => `${fault.id}: ${fault.note}`),
    ...states.slice(0, 20).map((state) => `${state.node} is ${state.kind}`),
  ];
  return el("section", {}, el("h3", {}, `At ${seconds(time)}`), el("ul", {}, ...items.filter((item) => item).map((item) => el("li", {}, item))));
}

// Show the lines of every node's log around a moment of the history.
function logsAt(page, time) {
  const { data } = page;
  if (!data.logs.length) return el("section", { class: "logs" }, el("h3", {}, "Logs"), el("p", { class: "soft" }, data.log_clock));
  const parts = data.logs.map((log) => logExcerpt(log, time));
  return el("section", { class: "logs" }, el("h3", {}, `Logs around ${seconds(time)}`), el("p", { class: "soft" }, data.log_clock), ...parts);
}

function logExcerpt(log, time) {
  const link = el("a", { href: fileAddress(log.path), target: "_blank", rel: "noopener" }, log.path);
  const timed = log.times.some((at) => at !== null);
  let middle = 0;
  if (timed) while (middle < log.lines.length && (log.times[middle] === null || log.times[middle] < time)) middle++;
  const from = timed ? Math.max(0, middle - LOG_LINES) : Math.max(0, log.lines.length - 2 * LOG_LINES);
  const to = timed ? Math.min(log.lines.length, middle + LOG_LINES) : log.lines.length;
  const lines = [];
  for (let n = from; n < to; n++) {
    if (timed && n === middle) lines.push(el("div", { class: "now" }, `— ${seconds(time)} —`));
    const at = log.times[n];
    lines.push(el("div", {}, el("span", { class: "soft" }, `${log.first + n}  ${at === null ? "" : seconds(at)}  `), logText(log.lines[n])));
  }
  if (timed && middle >= to) lines.push(el("div", { class: "now" }, `— ${seconds(time)} —`));
  const cut = log.lines.length < log.total ? ` Lines ${log.first} to ${log.first + log.lines.length - 1} of ${log.total} are on this page.` : "";
  const note = [timed ? "" : "Its lines have no times: these are the last ones.", cut, log.note].join(" ").trim();
  return el("details", { id: `log-${log.node}`, open: timed && to > from }, el("summary", {}, log.node, " "),
    el("p", { class: "soft" }, link, `, ${plural(log.total, "line")}. ${note}`), el("pre", { class: "log" }, ...lines));
}

// Return a log line without the time, which the page shows next to the line.
function logText(line) {
  if (!line.startsWith('{"ts_ns"')) return line.replace(/^@?\d+\.\d+ /, "");
  try {
    const { event, level, data } = JSON.parse(line);
    return `${event || level} ${data === undefined ? "" : JSON.stringify(data)}`;
  } catch { return line; }
}

function showFact(page, title, lines, time) {
  fill("detail", el("h2", {}, title), ...lines.map((line) => el("p", {}, line)), meanwhile(page, time), logsAt(page, time));
  say(lines.join(". "));
}

function showTable(page, lane) {
  const events = lane.events.map((event) => el("li", {}, `${seconds(event[2])}: ${event[4]} `,
    el("button", { class: "link", type: "button", onclick: () => page.selectIndex(event[3]) }, `op ${event[3]}`)));
  fill("detail", el("h2", {}, lane.names.length ? `table ${lane.names[lane.names.length - 1]}, id ${lane.id.slice(0, 6)}…` : `table ${lane.id}`), ...tableLines(lane).map((line) => el("p", {}, line)),
    el("p", {}, el("button", { type: "button", onclick: () => page.setFilter({ table: lane.id }) }, "Show only operations on this table")),
    el("h3", {}, "Acknowledged changes"), events.length ? el("ul", {}, ...events) : el("p", {}, "none: only reads or the masters' snapshot show this table"));
}

// Show the list of matching operations, which readers without a pointer use to select operations.
function showMatches(page) {
  const { ops } = page, found = filter.found;
  const items = [];
  for (let n = 0; n < Math.min(LIST_MAX, found.length); n++) {
    const i = found[n];
    items.push(el("li", {}, opButton(page, i, `op ${ops.index[i]} ${opLabel(page, i)}`), ` ${OUTCOMES[ops.type[i]]}, ${seconds(ops.start[i])}`));
  }
  const more = found.length > LIST_MAX ? el("p", { class: "soft" }, `The first ${LIST_MAX} of ${found.length.toLocaleString("en")}; narrow the filter for others.`) : null;
  fill("matches", el("summary", {}, filter.active ? `${found.length.toLocaleString("en")} match${found.length === 1 ? "" : "es"}` : `All ${plural(found.length, "operation")}`), more, el("ol", {}, ...items));
}

function say(text) { byId("said").textContent = text; }
