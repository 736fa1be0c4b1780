// Main: the page's state, the pointer, the keyboard, and the start.

const TEXT_FIELDS = ["process", "table", "text"];
const CHOICES = ["kind", "outcome", "node"];
const TOGETHER_MAX = 8; // up to this many blamed operations are shown together, however far apart

function makePage(data) {
  const ops = unpackOps(data);
  const named = [...new Set(data.focus.map((index) => positionOf(ops, index)).filter((i) => i >= 0))];
  const focus = Array.from(named).sort((a, b) => a - b); // in the order of time
  return {
    data, ops, focus, blamed: blamedOf(data, ops, named), focusSet: new Set(focus), focusFacts: data.focus_facts,
    selected: -1, moment: null, colourBy: "kind", showRpc: false, quantile: 0.99, filterCount: 0,
    fact: null, theme: 0, visibleOps: 0, exact: false, tablesSeen: 0, tablesHidden: 0, opening: "",

    select(position, bring = false) {
      this.selected = position;
      this.fact = null;
      this.moment = ops.start[position];
      const end = Math.min(ops.end[position], data.end);
      if (bring) bringOp(ops.start[position], end); else view.reveal(ops.start[position], end);
      showOp(this, position);
      redraw();
    },
    selectIndex(index) { const position = positionOf(ops, index); if (position >= 0) this.select(position, true); },
    selectFact(title, lines, start) {
      this.selected = -1;
      this.fact = null;
      this.moment = start;
      showFact(this, title, lines, start);
      redraw();
    },
    selectTable(lane) { this.selected = -1; showTable(this, lane); redraw(); },
    clear() {
      this.selected = -1;
      this.fact = null;
      this.moment = null;
      fill("detail", el("p", { class: "soft" }, "Select an operation, a fault, a leader or a table to see its details. Press ? for the keys."));
      redraw();
    },
    setFilter(changes) {
      Object.assign(filter, changes);
      for (const name of [...TEXT_FIELDS, ...CHOICES]) if (byId(name).value !== filter[name]) byId(name).value = filter[name];
      runFilter(this);
      this.filterCount++;
      byId("count").textContent = filter.active ? `${filter.found.length.toLocaleString("en")} of ${ops.count.toLocaleString("en")} operations` : plural(ops.count, "operation");
      showMatches(this);
      redraw();
    },
  };
}

// Return the operation to select first: the first blamed operation in the checker's first sentence.
function blamedOf(data, ops, named) {
  const story = data.checkers.find((one) => one.operations.length && one.verdict === data.verdict);
  const told = story && story.sentences.length ? opsNamed({ ops }, story.sentences[0]).filter((i) => named.includes(i)) : [];
  return told.length ? told[0] : named.length ? named[0] : -1;
}

// Show an interval with some time around it: enough to see neighbouring operations and its place in
// the run.
function bringOp(start, end) {
  const span = view.to - view.from, length = Math.max(end - start, 1e5);
  if (span > length * 400 || span < length * 1.2) view.show(start, end, length * 20);
  else view.reveal(start, end);
}

// Return the blamed operations to show together. A checker may blame operations of several distant
// anomalies, but its sentences explain one anomaly. So take the operations that the sentences name,
// if they are few, else the operations around the first blamed operation.
function together(page) {
  const { ops, focus, blamed, data } = page;
  const blaming = data.checkers.find((one) => one.operations.length && one.verdict === data.verdict);
  const told = new Set(blaming ? blaming.sentences.flatMap((line) => opsNamed(page, line)) : []);
  if (told.size && told.size <= TOGETHER_MAX) return [...told, blamed];
  if (focus.length <= TOGETHER_MAX) return focus;
  const gap = data.end * 0.05, middle = focus.indexOf(blamed);
  let from = middle, to = middle;
  while (from > 0 && ops.start[focus[from]] - ops.start[focus[from - 1]] <= gap) from--;
  while (to + 1 < focus.length && ops.start[focus[to + 1]] - ops.start[focus[to]] <= gap) to++;
  return focus.slice(from, to + 1);
}

function showAnomaly(page) {
  if (page.focus.length) {
    const shown = together(page);
    const starts = shown.map((i) => page.ops.start[i]);
    const ends = shown.map((i) => Math.min(page.ops.end[i], page.data.end));
    view.show(Math.min(...starts), Math.max(...ends), 1e7);
  } else if (page.focusFacts.length) {
    const times = page.focusFacts.flatMap(([, time, , begin]) => [begin, time]);
    const begin = Math.min(...times), end = Math.max(...times), room = Math.max(0.06 * (end - begin), 2e9);
    view.set(begin - room, end + room);
  } else view.fit();
}

// Select the operation that the checker blames first, or else the first note that it blames.
function openAtFinding(page) {
  if (page.blamed >= 0) page.select(page.blamed);
  else if (page.focusFacts.length) selectMark(page, page.focusFacts[0][1], page.focusFacts[0][2], "named by a checker");
}

// Select the next (or previous) of the given positions after the selection, by time.
function step(page, positions, by) {
  if (!positions.length) return;
  const ordered = Array.from(positions).sort((a, b) => a - b);
  const { selected, ops } = page; // without a selection, start at the edge of the view
  let at;
  if (by > 0) at = ordered.findIndex((i) => (selected >= 0 ? i > selected : ops.start[i] >= view.from));
  else at = ordered.findLastIndex((i) => (selected >= 0 ? i < selected : ops.start[i] <= view.to));
  if (at < 0) at = by > 0 ? 0 : ordered.length - 1;
  page.select(ordered[at], true);
}

// Select the next (or previous) fault or leader from the selected moment on. Without this function
// the keyboard could not reach these lanes.
function stepFact(page, facts, select, by) {
  if (!facts.length) return;
  const ordered = [...facts].sort((a, b) => a.start - b.start);
  const last = ordered.indexOf(page.fact);
  let at = last < 0 ? -1 : last + by;
  if (last < 0) {
    const moment = page.moment === null ? (by > 0 ? -Infinity : Infinity) : page.moment;
    at = by > 0 ? ordered.findIndex((fact) => fact.start > moment) : ordered.findLastIndex((fact) => fact.start < moment);
  }
  const fact = ordered[at < 0 || at >= ordered.length ? (by > 0 ? 0 : ordered.length - 1) : at];
  select(page, fact);
  page.fact = fact; // remember the fact, not only its time, since several facts may begin at one time
  const end = fact.end === null ? page.data.end : Math.min(fact.end, page.data.end);
  bringOp(fact.start, end);
  redraw();
}

function onPointer(page, panel) {
  const { canvas } = panel;
  const tip = byId("tip");
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    dragged = { x: event.clientX, from: view.from, to: view.to, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (dragged) {
      const by = (event.clientX - dragged.x) / view.scale();
      if (Math.abs(event.clientX - dragged.x) > 3) dragged.moved = true;
      if (dragged.moved) { tip.hidden = true; view.set(dragged.from - by, dragged.to - by); }
      return;
    }
    const thing = panel.hit(event.offsetX, event.offsetY);
    canvas.style.cursor = thing ? "pointer" : "grab";
    showTip(tip, thing, event);
  });
  canvas.addEventListener("pointerup", (event) => {
    const still = dragged && !dragged.moved;
    dragged = null;
    if (!still) return;
    const thing = panel.hit(event.offsetX, event.offsetY);
    if (thing) thing.click(); else page.clear();
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("pointercancel", () => { dragged = null; });
  canvas.addEventListener("dblclick", (event) => view.zoom(0.4, view.time(event.offsetX)));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      view.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.008), view.time(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      view.pan((event.deltaX || event.deltaY) / 900);
    }
  }, { passive: false });
}

function showTip(tip, thing, event) {
  tip.hidden = !thing;
  if (!thing) return;
  tip.replaceChildren(...thing.lines.map((line) => el("div", {}, line)));
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18}px`;
}

function onMinimap(panel) {
  const { canvas } = panel;
  let grip = null;
  const move = (event) => {
    const time = panel.time(event.offsetX);
    if (grip.edge === "from") view.set(Math.min(time, grip.to - SPAN_MIN), grip.to);
    else if (grip.edge === "to") view.set(grip.from, Math.max(time, grip.from + SPAN_MIN));
    else { const half = (view.to - view.from) / 2; view.set(time - half, time + half); }
  };
  canvas.addEventListener("pointerdown", (event) => {
    const near = (time) => Math.abs(panel.x(time) - event.offsetX) < 6;
    const wide = panel.x(view.to) - panel.x(view.from) > 16;
    grip = { from: view.from, to: view.to, edge: wide && near(view.from) ? "from" : wide && near(view.to) ? "to" : "" };
    canvas.setPointerCapture(event.pointerId);
    move(event);
  });
  canvas.addEventListener("pointermove", (event) => { if (grip) move(event); });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { grip = null; });
}

function actions(page) {
  const near = () => {
    const middle = (view.from + view.to) / 2, { ops } = page;
    let best = -1;
    for (const i of filter.found) if (best < 0 || Math.abs(ops.start[i] - middle) < Math.abs(ops.start[best] - middle)) best = i;
    if (best >= 0) page.select(best);
  };
  const neighbour = (by) => { if (page.selected >= 0) { const next = neighbours(page, page.selected)[by]; if (next >= 0) page.select(next, true); } else near(); };
  return {
    ArrowLeft: () => view.pan(-0.15), ArrowRight: () => view.pan(0.15), ArrowUp: () => view.zoom(0.75), ArrowDown: () => view.zoom(1 / 0.75),
    "+": () => view.zoom(0.5), "=": () => view.zoom(0.5), "-": () => view.zoom(2), PageUp: () => view.pan(-0.9), PageDown: () => view.pan(0.9),
    Home: () => view.pan(-1e6), End: () => view.pan(1e6), 0: () => view.fit(),
    a: () => { showAnomaly(page); showTimeline(); }, n: () => { step(page, page.focus, 1); showTimeline(); }, p: () => { step(page, page.focus, -1); showTimeline(); },
    f: () => stepFact(page, page.data.faults, selectFault, 1), F: () => stepFact(page, page.data.faults, selectFault, -1),
    l: () => stepFact(page, page.data.reigns, selectReign, 1), L: () => stepFact(page, page.data.reigns, selectReign, -1),
    j: () => step(page, filter.found, 1), k: () => step(page, filter.found, -1), "[": () => neighbour(0), "]": () => neighbour(1), Enter: near,
    "/": () => byId("text").focus(), r: () => { byId("rpc").click(); }, c: () => { byId("colour").click(); }, t: () => toggleTheme(page),
    x: () => page.setFilter({ kind: "", outcome: "", process: "", node: "", table: "", text: "" }),
    "?": () => byId("help").showModal(),
    Escape: () => page.clear(),
  };
}

function onKeys(page) {
  const keys = actions(page);
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    if (["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName) && target.type !== "checkbox") {
      if (key === "Escape") target.blur();
      return;
    }
    // Ignore keys that the focused control handles itself.
    if (key === "Enter" && target.tagName !== "CANVAS" && target !== document.body) return;
    const scrolls = key.startsWith("Page") || key === "Home" || key === "End" || key === "ArrowUp" || key === "ArrowDown";
    if (scrolls && target.tagName !== "CANVAS") return;
    const act = keys[key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function toggleTheme(page) {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  newColours(page);
}

function newColours(page) {
  readColours();
  hatches.clear();
  page.theme++;
  redraw();
}

function onControls(page) {
  const { data, ops } = page;
  const options = { kind: ops.kinds, outcome: OUTCOMES, node: data.nodes };
  for (const name of CHOICES) {
    byId(name).append(...options[name].slice(0, KINDS_MAX).map((value) => el("option", { value }, value)));
    byId(name).addEventListener("change", (event) => page.setFilter({ [name]: event.target.value }));
  }
  byId("tables").append(...data.names.slice(1, 2001).map((value) => el("option", { value })));
  for (const name of TEXT_FIELDS) byId(name).addEventListener("input", (event) => page.setFilter({ [name]: event.target.value.trim() }));
  const click = (id, act) => byId(id).addEventListener("click", act);
  const keys = actions(page);
  for (const [id, key] of [["anomaly", "a"], ["in", "+"], ["out", "-"], ["fit", "0"], ["next", "j"], ["previous", "k"], ["reset", "x"], ["theme", "t"], ["keys", "?"]]) click(id, keys[key]);
  byId("anomaly").textContent = blameWords(page)[0];
  byId("anomaly").hidden = !page.focus.length && !page.focusFacts.length;
  click("colour", () => { page.colourBy = page.colourBy === "kind" ? "outcome" : "kind"; byId("colour").textContent = `Colour: ${page.colourBy}`; redraw(); });
  byId("rpc").addEventListener("change", (event) => { page.showRpc = event.target.checked; redraw(); });
  byId("quantile").addEventListener("change", (event) => { page.quantile = Number(event.target.value); redraw(); });
  click("close-help", () => byId("help").close());
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copyText(button));
  if (data.log) click("log-link", (event) => { event.preventDefault(); showLog(page); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => newColours(page));
}

async function copyText(button) {
  const source = byId(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
  } catch { // without a clipboard, select the text, so that the usual key copies it
    const fold = source.closest("details");
    if (fold) fold.open = true;
    getSelection().selectAllChildren(source);
    button.textContent = "Selected: press the copy key";
  }
}

// Show the log of the node that answered the blamed operation, in the details of this operation.
function showLog(page) {
  openAtFinding(page);
  const log = byId(`log-${page.data.log.node}`);
  log.open = true;
  log.scrollIntoView({ block: "nearest" });
}

function legend(page) {
  fill("outcomes", ...OUTCOMES.map((name) => { const swatch = el("i", { class: "swatch" }); swatch.style.background = `var(--${name})`; return el("span", {}, swatch, name); }));
  const sample = (name, colour) => { const swatch = el("i", { class: `swatch form-${name}` }); if (colour) swatch.style.background = colour; return swatch; };
  fill("legend", ...OUTCOMES.map((name) => el("span", {}, sample(name), { ok: "ok", fail: "fail: did nothing", info: "info: outcome unknown, open end" }[name])),
    ...page.ops.kinds.slice(0, 30).map((kind, n) => el("span", {}, sample("", kindStyle(n)), kind)));
}

function cuts({ data }) {
  const { values_cut: values, value_chars_max: most, attempts_cut: attempts } = data.ops;
  const parts = [];
  if (values) parts.push(`${plural(values, "value")} cut after ${most.toLocaleString("en")} characters.`);
  if (data.lanes > LANES_PIXELS) parts.push(`${plural(data.lanes - LANES_PIXELS, "lane")} not drawn; filters find their operations.`);
  if (attempts) parts.push(`${plural(attempts, "RPC attempt")} left out.`);
  byId("cuts").textContent = parts.length ? `${parts.join(" ")} The complete data is in history.parquet.` : "";
}

function status(page) {
  const from = Math.max(0, view.from), to = Math.min(view.to, page.data.end);
  byId("status").textContent = `${seconds(from)} to ${seconds(to)} (${duration(to - from)})`
    + ` · ${plural(page.visibleOps, "operation")} in view${page.exact ? "" : ", merged into columns: zoom in to see each"}`;
}

// The address of the page has the selection, the view and the filter, unless they are the initial
// ones: report.html#op=623&at=8.1..9.2&kind=get
const ADDRESS_MS = 250; // browsers refuse frequent changes of the address
let addressTimer = 0;

function addressOf(page) {
  const parts = [];
  if (page.selected >= 0) parts.push(`op=${page.ops.index[page.selected]}`);
  if (view.from > view.begin || view.to < view.end) parts.push(`at=${(view.from / 1e9).toFixed(6)}..${(view.to / 1e9).toFixed(6)}`);
  for (const name of [...CHOICES, ...TEXT_FIELDS]) if (filter[name] !== "") parts.push(`${name}=${encodeURIComponent(filter[name])}`);
  return parts.join("&");
}

function noteAddress(page) {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => {
    const address = addressOf(page), plain = location.href.split("#")[0];
    const wanted = address === page.opening ? plain : `${plain}#${address}`;
    // In a frame, the browser may refuse to change the address.
    try { if (wanted !== location.href) history.replaceState(null, "", wanted); } catch { clearTimeout(addressTimer); }
  }, ADDRESS_MS);
}

function showAddress(page) {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const changes = [...CHOICES, ...TEXT_FIELDS].filter((name) => wanted.has(name)).map((name) => [name, wanted.get(name)]);
  if (changes.length) page.setFilter(Object.fromEntries(changes));
  if (/^\d{1,15}$/.test(wanted.get("op") || "")) page.selectIndex(Number(wanted.get("op")));
  const at = /^(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)$/.exec(wanted.get("at") || "");
  if (at) view.set(Number(at[1]) * 1e9, Number(at[2]) * 1e9);
}

function start(data) {
  const page = makePage(data);
  readColours();
  chooseColours(page.ops.kinds);
  view.limit(0, data.end);
  const stage = byId("stage");
  const measure = () => {
    view.width = Math.max(320, stage.clientWidth);
    document.documentElement.style.setProperty("--bar", `${byId("bar").offsetHeight}px`); // the bar's height changes if it wraps
    redraw();
  };
  const canvas = (id) => byId(id);
  view.width = Math.max(320, stage.clientWidth);
  showWords(page);
  const map = minimapPanel(canvas("minimap"), page);
  axisPanel(canvas("axis"), page);
  const steered = [factsPanel(canvas("lanes"), page), opsPanel(canvas("operations"), page), latencyPanel(canvas("latency"), page), ratePanel(canvas("rate"), page)];
  byId("tables-part").hidden = !data.tables.length;
  if (data.tables.length) steered.push(tablesPanel(canvas("table-lanes"), page));
  byId("tables-note").textContent = data.tables_cut ? `${plural(data.tables_cut, "table")} not on this page, which has only the tables of the anomaly and the newest tables.` : "";
  for (const panel of steered) onPointer(page, panel);
  onMinimap(map);
  onControls(page);
  onKeys(page);
  legend(page);
  cuts(page);
  view.listeners.push(redraw);
  panels.push({ paint: () => { status(page); noteAddress(page); } });
  new ResizeObserver(measure).observe(stage);
  page.clear();
  page.setFilter({});
  showAnomaly(page);
  openAtFinding(page);
  page.opening = addressOf(page);
  showAddress(page);
  window.addEventListener("hashchange", () => showAddress(page));
  // Panels outside the window are not kept up to date, so draw all panels before printing.
  window.addEventListener("beforeprint", () => { for (const panel of panels) panel.paint(true); });
  // For tests and for users of the browser's console.
  window.harnessPage = { page, view, filter, panels, quantiles, rates, redraw };
  document.documentElement.dataset.ready = "yes";
}

loadData().then(start).catch((error) => {
  byId("fallback").hidden = false;
  byId("failed").hidden = false;
  byId("failed").textContent = `The timeline cannot be shown: ${error.message}`;
  console.error(error);
});
