// Words: the reasons of the verdict, and the coverage of the run. The rest of the head is in the HTML.

const BLAME = { // by verdict: the button to the blamed operations, and words about one operation
  invalid: ["Anomaly", "A checker names this operation in its counterexample."],
  permitted: ["Deviation", "A checker names this operation; the profile permits the deviation."],
  unknown: ["Doubt", "A checker names this operation as a reason why the verdict is unknown."],
};
const blameWords = (page) => BLAME[page.data.verdict] || BLAME.invalid;
const SENTENCES_MAX = 8; // further sentences of a checker are folded
const KINDS_MAX = 200; // maximum rows of the table of kinds, and choices of the filter

function showWords(page) {
  const { data } = page;
  fill("why", ...data.checkers.filter((one) => one.verdict !== "valid").map((one, n) => checkerStory(page, one, n === 0)));
  fill("checkers", ...data.checkers.map((one) => el("tr", {},
    el("th", { scope: "row" }, one.name), el("td", {}, el("span", { class: `badge is-${one.verdict}` }, one.verdict)), el("td", {}, one.reason))));
  fill("certificate", ...data.certificate.map(([name, lines]) => row(name, ...listed(lines))));
  if (!data.certificate.length) fill("certificate", el("p", {}, "No checker reported what this run covered."));
  fill("facts", ...data.facts.map(([name, text]) => row(name, text)));
  fill("kinds", ...data.kinds.slice(0, KINDS_MAX).map((kind, n) => kindRow(page, kind, n)));
  if (data.kinds.length > KINDS_MAX) byId("kinds").append(el("tr", {}, el("td", {}, `and ${plural(data.kinds.length - KINDS_MAX, "more kind")}`)));
  fill("links", ...data.links.map((name) => el("a", { href: fileAddress(name) }, name)), ...data.logs.map((log) => el("a", { href: fileAddress(log.path) }, log.path)));
}

function listed(lines) {
  if (lines.length === 1) return [lines[0]];
  return [el("ul", {}, ...lines.map((line) => el("li", {}, line)))];
}

// Show the sentences of a checker that did not find the run valid; each `op N` is a link.
function checkerStory(page, checker, open) {
  const story = el("details", { open, class: `story is-${checker.verdict}` },
    el("summary", {}, el("b", {}, checker.name), ` says ${checker.verdict}`, open ? null : `: ${checker.reason}`));
  const sentences = checker.sentences.length ? checker.sentences : [checker.reason];
  const items = sentences.map((sentence) => sentenceItem(page, sentence));
  const first = items.length > SENTENCES_MAX + 1 ? SENTENCES_MAX : items.length;
  const words = el("div", {}, el("ol", {}, ...items.slice(0, first)));
  if (first < items.length) words.append(el("details", { class: "more" }, el("summary", {}, plural(items.length - first, "more line")), el("ol", { start: first + 1 }, ...items.slice(first))));
  const picture = pictureOf(page, checker);
  story.append(el("div", { class: picture ? "body pictured" : "body" }, words, picture));
  const named = checker.operations.map((index) => positionOf(page.ops, index)).filter((position) => position >= 0);
  if (named.length) {
    const most = checker.verdict === "permitted" ? 12 : 60;
    const shown = named.slice(0, most).map((position) => storyButton(page, position, `op ${page.ops.index[position]}`));
    const rest = checker.operations_total - shown.length;
    words.append(el("p", { class: "ops" }, "Operations: ", ...shown, rest > 0 ? ` and ${rest} more` : null));
  }
  return story;
}

// Make the list item of a sentence. Log lines that follow the sentence are folded below it.
function sentenceItem(page, sentence) {
  const [words, ...log] = sentence.split("\n");
  if (!log.length) return el("li", {}, ...withOps(page, words));
  return el("li", {}, el("details", {}, el("summary", {}, words), el("pre", { class: "log" }, log.join("\n"))));
}

// Make a button that selects an operation and scrolls to the timeline, which may be out of sight.
function storyButton(page, position, text) {
  const button = opButton(page, position, text);
  button.addEventListener("click", showTimeline);
  return button;
}

function showTimeline() { byId("operations").scrollIntoView({ block: "nearest" }); }

const OP = /\b[Oo]p (\d{1,9})\b/g;

function opsNamed(page, sentence) {
  return [...sentence.matchAll(OP)].map((match) => positionOf(page.ops, Number(match[1]))).filter((position) => position >= 0);
}

function withOps(page, sentence) {
  const parts = [];
  let done = 0;
  for (const match of sentence.matchAll(OP)) {
    const position = positionOf(page.ops, Number(match[1]));
    if (position < 0) continue;
    // Results of old versions name an operation by its completion; show the index of its invocation.
    parts.push(sentence.slice(done, match.index), storyButton(page, position, `${match[0][0]}p ${page.ops.index[position]}`));
    done = match.index + match[0].length;
  }
  return [...parts, sentence.slice(done)];
}

function kindRow(page, kind, n) {
  const swatch = el("i", { class: "swatch" });
  swatch.style.background = kindStyle(n);
  const filterOn = () => page.setFilter({ kind: filter.kind === kind.f ? "" : kind.f });
  return el("tr", {},
    el("th", { scope: "row" }, swatch, el("button", { class: "link", type: "button", title: "show only this kind", onclick: filterOn }, kind.f)),
    ...[kind.ok, kind.fail, kind.info].map((count) => el("td", {}, count.toLocaleString("en"))),
    ...(kind.ms.length ? kind.ms.map((ms) => el("td", {}, ms.toLocaleString("en", { maximumSignificantDigits: 4 }))) : Array.from({ length: 4 }, () => el("td", {}, "–"))));
}
