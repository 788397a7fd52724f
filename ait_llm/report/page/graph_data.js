// Both programs as graphs: their operations, who is within whom, who reads what, and who answers whom.

const [GOLDEN, MINE] = [0, 1];
const isInput = (row) => / intensor\d+$/.test(row.golden);

// All operations of both sides, with the edges that the comparison found.
function readPrograms() {
  const byPlace = new Map();
  const place = (side, process, order) => `${side} ${process} ${order}`;
  const node = (side, process, order, op, step) => {
    const key = place(side, process, order);
    if (!byPlace.has(key)) byPlace.set(key, { key, side, process, order, op, step, pass: `${side} ${process} ${step}`, parent: null, members: [], reads: new Set(), readers: 0, links: new Map(), rows: [], operation: null, unwritten: false, isGroup: false });
    return byPlace.get(key);
  };
  for (const row of rows) {
    const { operation } = row;
    if (row.role === "file") continue;
    const own = `${operation.device}_${operation.pid}`;
    const ours = operation.mine && node(MINE, own, operation.order, titleOf(operation), operation.step);
    const theirs = row.goldenOrder >= 0 && node(GOLDEN, operation.mine ? source.golden_processes[row.goldenProcess].join("_") : own, row.goldenOrder, row.goldenOp, operation.step);
    if (ours) { ours.operation = operation; ours.rows.push(row); }
    if (theirs) { theirs.rows.push(row); if (!operation.mine) theirs.operation = operation; }
    if (ours && theirs) link(ours, theirs, row);
  }
  for (const [side, device, pid, first, edges] of source.flows) {
    const [parents, reads, unwritten] = texts[edges];
    const at = (number) => byPlace.get(place(side, `${device}_${pid}`, first + number));
    parents.forEach((_, number) => {
      const found = at(number);
      if (!found) return;
      found.pass = `${side} ${device}_${pid} from ${first}`;
      for (let outer = number; !found.parent && parents[outer]; ) found.parent = at(outer -= parents[outer]) || null;
      if (found.parent) found.parent.members.push(found);
      for (const back of reads[number]) if (at(number - back)) found.reads.add(at(number - back));
    });
    for (const number of unwritten) if (at(number)) at(number).unwritten = true;
  }
  groupOperators(byPlace);
  const found = [...byPlace.values()];
  pairGroups(found);
  return found;
}

// What answers what: outputs for outputs say that two operations are counterparts, other tensors only link them.
function link(ours, theirs, row) {
  const isSure = row.role === "out" && !isInput(row);
  const known = ours.links.get(theirs);
  if (known && (known.isSure > isSure || (known.isSure === isSure && rank.get(known.row.verdict) <= rank.get(row.verdict)))) return;
  const made = { row, isSure, golden: theirs, mine: ours };
  ours.links.set(theirs, made);
  theirs.links.set(ours, made);
}

// Operators that were captured without their modules stand within the paths that they are called by.
function groupOperators(byPlace) {
  const groups = new Map();
  for (const node of [...byPlace.values()]) {
    const path = node.op.split(" (")[0].split(".");
    if (node.parent || node.members.length || path.length < 5) continue; // a module, and three of aten.add.Tensor
    let inner = node;
    for (let length = path.length - 3; length > 0; length -= 1) {
      const op = path.slice(0, length).join("."), key = `${node.pass} within ${op}`;
      const known = groups.get(key);
      const group = known || { ...node, key, op, parent: null, members: [], reads: new Set(), links: new Map(), rows: [], operation: null, unwritten: false, isGroup: true };
      group.members.push(inner);
      inner.parent = group;
      if (known) break;
      groups.set(key, group);
      byPlace.set(key, group);
      inner = group;
    }
  }
}

// Groups without outputs of their own, or none that were compared, answer the group that most of their members answer.
function pairGroups(nodes) {
  const isPaired = (node) => [...node.links.values()].some((each) => each.isSure && each.golden.members.length && each.mine.members.length);
  const votes = [];
  const ask = (group) => {
    const found = new Map();
    for (const member of group.members) {
      if (member.members.length && !member.asked) ask(member);
      for (const each of member.links.values()) {
        const other = each.golden.parent;
        if (other) found.set(other, { row: worse(found.get(other)?.row, each.row), count: (found.get(other)?.count || 0) + 1 });
      }
    }
    group.asked = true;
    for (const [other, { row, count }] of found) votes.push({ mine: group, golden: other, row, count });
  };
  for (const node of nodes) if (node.side === MINE && node.members.length && !node.asked) ask(node);
  for (const { mine, golden, row } of votes.sort((a, b) => b.count - a.count)) {
    if (isPaired(mine) || isPaired(golden)) continue;
    const made = { row, isSure: true, golden, mine };
    mine.links.set(golden, made);
    golden.links.set(mine, made);
  }
}
const worse = (one, two) => (one && rank.get(one.verdict) <= rank.get(two.verdict) ? one : two);

let readOnce = null;
const programs = () => (readOnce ||= readPrograms());

// The pass of mine that is shown, and those of golden that answer it.
function shownNodes() {
  const all = programs();
  const wanted = state.operation && (state.step === null || state.operation.step === state.step) ? state.operation : null;
  const start = all.find((node) => wanted && node.operation === wanted) || all.find((node) => node.side === MINE && (state.step === null || node.step === state.step)) || all[0];
  if (!start) return [];
  const passes = new Set([start.pass]);
  const reach = (side) => { for (const node of all) if (node.side !== side && passes.has(node.pass)) for (const other of node.links.keys()) passes.add(other.pass); };
  if (start.side === GOLDEN) reach(MINE);
  if (!start.links.size && passes.size < 2) { for (const node of all) if (node.pass === start.pass) for (const other of node.links.keys()) passes.add(other.pass); }
  reach(GOLDEN);
  const shown = all.filter((node) => passes.has(node.pass));
  return state.layer === null ? shown : shown.filter(isOfLayer);
}
function isOfLayer(node) {
  if (node.members.length) return node.members.some(isOfLayer) || node.rows.some((row) => row.operation.layer === state.layer);
  return node.rows.some((row) => row.operation.layer === state.layer);
}

function verdictOfNode(node) {
  if (node.verdict !== undefined) return node.verdict;
  const outputs = node.rows.filter((row) => row.role !== "in");
  const found = new Set((outputs.length ? outputs : node.rows).map((row) => row.verdict));
  if (node.isGroup || !found.size) for (const member of node.members) found.add(verdictOfNode(member));
  return node.verdict = worstOf(found);
}
const within = (node) => (node.size ??= node.members.reduce((count, member) => count + (member.members.length ? within(member) : 1), 0));
const failingWithin = (node) => node.members.reduce((count, member) => count + (member.members.length ? failingWithin(member) : verdictOfNode(member) === FAIL), 0);
const hasOrigin = (node) => Boolean(node.side === MINE && node.operation?.origin) || node.members.some(hasOrigin);
function* outer(node) { for (let around = node.parent; around; around = around.parent) yield around; }
