// Where the nodes of both graphs stand: what answers each other in one row, what reads below what it reads.

const BOX = { width: 204, height: 38, gap: 14, lanes: 3 }, MIDDLE = [120, 240], BULGE = 64, BRACKET = 18;
const AT_ONCE = 40; // operations of one side that are shown before a group is opened

// Groups of mine are open that lead to what is chosen, and as many more, the largest first, as a reader can
// look over; golden's are, unless they answer a closed one.
function openGroups(inside, chosen, byHand) {
  const open = new Set(), isOpen = (node) => open.has(node);
  const tops = (side) => [...inside].filter((node) => node.side === side && !node.parent);
  const wish = (node) => byHand.get(`${node.side} ${node.op}`);
  for (const node of chosen) for (const around of outer(node)) open.add(around);
  for (const node of inside) if (wish(node)) open.add(node);
  for (;;) {
    const shown = frontier(tops(MINE), isOpen, inside);
    const fitting = shown.filter((node) => node.members.length && wish(node) !== false && shown.length - 1 + node.members.length <= AT_ONCE);
    if (!fitting.length) break;
    open.add(fitting.reduce((largest, node) => (within(node) > within(largest) ? node : largest)));
  }
  const closed = new Set(frontier(tops(MINE), isOpen, inside).filter((node) => node.members.length));
  const hasLinks = (node) => node.links.size > 0 || node.members.some(hasLinks);
  const answersClosed = (node) => [...node.links.values()].some((each) => each.isSure && closed.has(each.mine));
  for (const node of inside) if (node.side === GOLDEN && node.members.length && !answersClosed(node) && hasLinks(node)) open.add(node);
  for (const node of inside) if (wish(node) === false) open.delete(node);
  return open;
}
function frontier(nodes, isOpen, inside) {
  return nodes.flatMap((node) => (!inside.has(node) ? [] : node.members.length && isOpen(node) ? frontier(node.members, isOpen, inside) : [node]));
}
const shower = (visible) => (node) => {
  for (let each = node; each; each = each.parent) if (visible.has(each)) return each;
  return null;
};

// Edges among what is visible; a value that code without a capture made comes from what nobody read before it.
function visibleEdges(inside, visible, open, showing) {
  const edges = new Map(), read = new Set();
  const add = (from, to, by, isGuess) => {
    if (!from || !to || from === to) return;
    if (!edges.has(from)) edges.set(from, new Map());
    if (!edges.get(from).has(to)) edges.get(from).set(to, { from, to, isGuess, verdict: verdictOfNode(by) });
    read.add(from);
  };
  for (const node of inside) if (!open.has(node)) for (const by of node.reads) if (!open.has(by)) add(showing(by), showing(node), by, false);
  const order = [...visible].sort((a, b) => a.order - b.order);
  const unread = (group, to) => order.filter((node) => node.side === to.side && node.pass === to.pass && node.order < to.order && !read.has(node) && [...outer(node)].includes(group));
  for (const to of order) {
    for (const by of to.reads) if (open.has(by)) for (const from of unread(by, to)) add(from, to, from, true);
    if (to.unwritten && to.parent) for (const from of unread(to.parent, to)) add(from, to, from, true);
  }
  return [...edges.values()].flatMap((each) => [...each.values()]);
}

// What answers what among the visible: outputs each other; inputs, and what is inside a closed group, only where nothing else does.
function visibleLinks(inside, visible, showing) {
  const found = new Map();
  for (const node of inside) {
    for (const each of node.side === MINE ? node.links.values() : []) {
      const [mine, golden] = [showing(node), showing(each.golden)];
      const hidden = (mine !== node) + (golden !== each.golden);
      if (!mine || !golden || hidden === 2) continue;
      const key = `${mine.key}\n${golden.key}`, known = found.get(key), isSure = each.isSure && !hidden;
      if (!known || known.isSure < isSure) found.set(key, { mine, golden, isSure, row: each.row });
      else if (known.isSure === isSure) known.row = worse(known.row, each.row);
    }
  }
  const all = [...found.values()], sure = new Set(all.filter((each) => each.isSure).flatMap((each) => [each.mine, each.golden]));
  const more = new Map(); // of what is no counterpart a few are enough
  const isWanted = (each) => !sure.has(each.mine) && more.set(each.mine, (more.get(each.mine) || 0) + 1).get(each.mine) <= 2;
  return all.filter((each) => each.isSure || isWanted(each));
}

// Counterparts are one stop of the way through both programs.
function stopsOf(visible, links) {
  const stopOf = new Map(visible.map((node) => [node, { nodes: [node] }]));
  for (const { mine, golden, isSure } of links) {
    const [one, two] = [stopOf.get(mine), stopOf.get(golden)];
    if (!isSure || one === two) continue;
    one.nodes.push(...two.nodes);
    for (const each of two.nodes) stopOf.set(each, one);
  }
  let before = 0; // golden's own follow what they follow in golden
  for (const node of visible.filter((each) => each.side === GOLDEN).sort((a, b) => a.order - b.order)) {
    const stop = stopOf.get(node), ours = stop.nodes.filter((each) => each.side === MINE);
    if (ours.length) before = Math.min(...ours.map((each) => each.order)); else stop.turn = before + 0.5;
  }
  for (const node of visible) if (node.side === MINE) stopOf.get(node).turn = Math.min(stopOf.get(node).turn ?? Infinity, node.order);
  return stopOf;
}

// The row of each stop: below all that it reads from. Circles, where the programs run in another order, are cut.
function rankStops(stopOf, edges) {
  const stops = [...new Set(stopOf.values())].sort((a, b) => a.turn - b.turn);
  for (const stop of stops) Object.assign(stop, { before: new Set(), after: new Set(), rank: null });
  for (const { from, to } of edges) {
    const [one, two] = [stopOf.get(from), stopOf.get(to)];
    if (one !== two) { one.after.add(two); two.before.add(one); }
  }
  const waiting = new Map(stops.map((stop) => [stop, stop.before.size]));
  const ready = stops.filter((stop) => !stop.before.size);
  let next = 0, last = -1;
  while (waiting.size) {
    const stop = ready.length ? ready.shift() : stops.slice(next).find((each) => waiting.has(each));
    if (!waiting.delete(stop)) continue;
    while (next < stops.length && !waiting.has(stops[next])) next += 1;
    const known = [...stop.before].filter((each) => each.rank !== null).map((each) => each.rank);
    stop.rank = known.length ? Math.max(...known) + 1 : source.flows.length ? 0 : last + 1;
    last = stop.rank;
    for (const after of stop.after) {
      if (!waiting.has(after)) continue;
      waiting.set(after, waiting.get(after) - 1);
      if (!waiting.get(after)) ready.push(after);
    }
  }
  let around = 0; // what reads nothing stands where it is read, or beside what ran before it
  for (const stop of stops) {
    if (!stop.before.size && source.flows.length) stop.rank = stop.after.size ? Math.max(0, Math.min(...[...stop.after].map((each) => each.rank)) - 1) : around;
    around = stop.rank;
  }
  return stops;
}

function layOut(nodes, chosen, byHand) {
  const inside = new Set(nodes), open = openGroups(inside, chosen, byHand);
  const visible = frontier(nodes.filter((node) => !node.parent), (node) => open.has(node), inside);
  const showing = shower(new Set(visible));
  const edges = visibleEdges(inside, visible, open, showing), links = visibleLinks(inside, visible, showing);
  const stopOf = stopsOf(visible, links), stops = rankStops(stopOf, edges);
  const ranks = new Map();
  for (const stop of stops) {
    if (!ranks.has(stop.rank)) ranks.set(stop.rank, [[], []]);
    for (const node of stop.nodes) ranks.get(stop.rank)[node.side].push(node);
  }
  const lanes = [GOLDEN, MINE].map((side) => Math.max(1, ...[...ranks.values()].map((sides) => Math.min(BOX.lanes, sides[side].length))));
  const depth = [GOLDEN, MINE].map((side) => Math.max(0, ...visible.filter((node) => node.side === side).map((node) => [...outer(node)].length)));
  const laneWidth = BOX.width + BOX.gap;
  const middle = Math.min(MIDDLE[1], links.reduce((wide, each) => Math.max(wide, each.isSure ? textWidth(each.row.relation) + 66 : 0), MIDDLE[0]));
  const left = depth[GOLDEN] * BRACKET + BULGE + lanes[GOLDEN] * laneWidth;
  let y = 34;
  const perRank = new Map();
  for (const each of links.filter((one) => one.isSure)) { const row = stopOf.get(each.mine).rank; perRank.set(row, (perRank.get(row) || 0) + 1); }
  for (const key of [...ranks.keys()].sort((a, b) => a - b)) {
    const sides = ranks.get(key);
    sides.forEach((line, side) => {
      line.sort((a, b) => a.order - b.order).forEach((node, number) => {
        const first = number - number % BOX.lanes, count = Math.min(BOX.lanes, line.length - first), lane = number - first;
        node.x = side === GOLDEN ? left - (count - lane) * laneWidth + BOX.gap : left + middle + lane * laneWidth;
        node.y = y + Math.floor(number / BOX.lanes) * (BOX.height + 10);
        node.rank = key;
      });
    });
    const tall = Math.max(...sides.map((line) => Math.ceil(line.length / BOX.lanes) * (BOX.height + 10)), 20 * (perRank.get(key) || 0));
    y += tall + 16;
  }
  const brackets = new Map();
  for (const node of visible) {
    [...outer(node)].forEach((group, number, all) => {
      const known = brackets.get(group) || { group, depth: all.length - 1 - number, top: Infinity, bottom: 0, count: 0 };
      brackets.set(group, Object.assign(known, { count: known.count + 1, top: Math.min(known.top, node.y), bottom: Math.max(known.bottom, node.y + BOX.height) }));
    });
  }
  return { open, visible, edges, links, brackets: [...brackets.values()].filter((each) => each.count > 1), depth, left, middle, width: left + middle + lanes[MINE] * laneWidth + BULGE + depth[MINE] * BRACKET, height: y + 10 };
}
