// Filter: finds the operations that match all conditions that the reader has set.

const filter = {
  kind: "", outcome: "", process: "", node: "", table: "", text: "",
  active: false, match: new Uint8Array(0), found: new Uint32Array(0),
};

function runFilter(page) {
  const { ops, data } = page;
  filter.active = ["kind", "outcome", "process", "node", "table", "text"].some((name) => filter[name] !== "");
  const match = new Uint8Array(ops.count).fill(1);
  const narrow = (test) => { for (let i = 0; i < ops.count; i++) if (match[i] && !test(i)) match[i] = 0; };
  if (filter.kind !== "") { const kind = ops.kinds.indexOf(filter.kind); narrow((i) => ops.kind[i] === kind); }
  if (filter.outcome !== "") { const type = OUTCOMES.indexOf(filter.outcome); narrow((i) => ops.type[i] === type); }
  if (filter.process !== "") { const process = Number(filter.process); narrow((i) => ops.process[i] === process); }
  if (filter.node !== "") { const node = data.strings.indexOf(filter.node); narrow((i) => touchesNode(ops, i, node)); }
  if (filter.table !== "") narrow(tableTest(page, filter.table));
  if (filter.text !== "") narrow(textTest(page, filter.text));
  filter.match = match;
  let count = 0;
  for (let i = 0; i < ops.count; i++) count += match[i];
  filter.found = new Uint32Array(count);
  for (let i = 0, next = 0; i < ops.count; i++) if (match[i]) filter.found[next++] = i;
}

// Whether an operation was answered last by this node, or sent an RPC attempt to this node.
function touchesNode(ops, position, node) {
  if (ops.node[position] === node) return true;
  for (let a = ops.attemptAt[position]; a < ops.attemptAt[position + 1]; a++) if (ops.attemptNode[a] === node) return true;
  return false;
}

// Match the table with exactly this name or id, or else all tables whose name or id contains it.
function tableTest({ ops, data }, wanted) {
  const hit = new Uint8Array(data.names.length);
  const exact = data.names.indexOf(wanted);
  if (exact > 0) hit[exact] = 1;
  else data.names.forEach((name, i) => { if (i && name.includes(wanted)) hit[i] = 1; });
  return (i) => {
    for (let m = ops.mentionAt[i]; m < ops.mentionAt[i + 1]; m++) if (hit[ops.mention[m]]) return true;
    return false;
  };
}

// Match operations whose kind, values, error or node contain the text, ignoring case. The text
// `#12` matches the operation at index 12.
function textTest({ ops, data }, wanted) {
  const number = /^#(\d+)$/.exec(wanted);
  if (number) { const position = positionOf(ops, Number(number[1])); return (i) => i === position; }
  const text = wanted.toLowerCase();
  const hit = Uint8Array.from(data.strings, (string) => (string.toLowerCase().includes(text) ? 1 : 0));
  const kinds = ops.kinds.map((kind) => kind.toLowerCase().includes(text));
  const attempted = (i) => {
    for (let a = ops.attemptAt[i]; a < ops.attemptAt[i + 1]; a++) if (hit[ops.attemptNode[a]] || hit[ops.attemptOutcome[a]]) return true;
    return false;
  };
  return (i) => kinds[ops.kind[i]] || hit[ops.call[i]] || hit[ops.back[i]] || hit[ops.error[i]] || hit[ops.node[i]] || attempted(i);
}
