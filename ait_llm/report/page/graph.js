// The two graphs drawn: golden on the left, mine on the right, what relates them in between.

const graph = { byHand: new Map(), zoom: 1, at: null, laid: null, svg: null, drawn: null, wanted: false };
const VERDICT_CLASS = (verdict) => (verdict === undefined ? "none" : VERDICTS[verdict].toLowerCase());
const isWide = /[\u1100-\uffdc]/;
const textWidth = (text) => [...text].reduce((sum, char) => sum + (isWide.test(char) ? 12 : 6.6), 0);
function shortened(text, room) {
  let rest = text;
  while (rest.length > 1 && textWidth(rest) > room) rest = rest.slice(1);
  return rest === text ? text : `\u2026${rest.slice(1)}`;
}
const sideName = (side) => say(side === GOLDEN ? "golden" : "mine");

// A name that fits into its box: the last parts of a path, and where that is.
const LONGEST = 23;
function namesOf(node) {
  const parts = node.op.split(" (")[0].split(".");
  if (parts.length < 2) {
    const [, type, id] = node.op.match(/^(.*?)_(\d+(?:_\d+)*)$/) || [null, node.op, node.operation?.type || ""];
    return [type.length > LONGEST ? type.replace(/Operation$/, "") : type, id];
  }
  const own = parts.length > 3 && /^(aten|prims|torch|npu)$/.test(parts.at(-3)) ? 2 : /^\d+$/.test(parts.at(-1)) ? 2 : 1;
  return [parts.slice(-own).join("."), parts.slice(0, -own).join(".")];
}
function subOf(node) {
  if (!node.members.length) return namesOf(node)[1];
  const failing = failingWithin(node);
  return plural(within(node), "operator") + (failing ? `, ${say("{0} failing", failing)}` : "");
}
function describe(node) {
  const others = [...node.links.values()].filter((each) => each.isSure || node.links.size === 1).map((each) => `${(node.side === MINE ? each.golden : each.mine).op}${each.row.relation ? ` (${each.row.relation})` : ""}`);
  const verdict = verdictOfNode(node);
  return [`${sideName(node.side)}: ${node.op}`, verdict === undefined ? say("not captured") : VERDICTS[verdict], hasOrigin(node) && say("origin of the error"),
    others.length ? say("answers {0}", others.slice(0, 4).join(say(", "))) : say("no counterpart"), node.members.length && subOf(node)].filter(Boolean).join(say(", "));
}

const chosenNodes = (nodes) => {
  const { row } = state;
  if (!row) return [];
  const own = nodes.filter((node) => node.rows.includes(row));
  return distinct(own.flatMap((node) => [node, ...[...node.links.values()].filter((each) => each.isSure).map((each) => (node.side === MINE ? each.golden : each.mine))]));
};

// The node of what is chosen, mine before golden's; of an open group the first within.
function chosenVisible() {
  const { visible } = graph.laid, [mine, golden] = [MINE, GOLDEN].map((side) => visible.filter((node) => node.side === side));
  const own = (nodes) => nodes.find((node) => node.rows.includes(state.row)) || nodes.find((node) => [...outer(node)].some((group) => group.rows.includes(state.row)));
  return own(mine) || own(golden) || visible[0];
}

function layGraph() {
  if (!graph.wanted || by("graph").hidden) return;
  const nodes = shownNodes();
  graph.laid = nodes.length ? { ...layOut(nodes, chosenNodes(nodes), graph.byHand), nodes } : null;
  graph.at = null;
  by("programs-count").textContent = graph.laid ? `${say("token {0}", nodes.find((node) => node.side === MINE)?.step ?? nodes[0].step)}: ${plural(nodes.filter((node) => !node.members.length).length, "operator")}` : "";
  if (!graph.laid) return fill("graph", h("p", { class: "hint" }, say("No operator fits these filters.")));
  graph.svg = s("svg", { id: "graph-svg", role: "application", tabindex: 0, onkeydown: graphKey, "aria-describedby": "graph-text", "aria-label": say("Both programs as graphs: arrow keys move, Enter shows or opens, Backspace closes, plus and minus zoom") });
  fill("graph", graph.svg);
  graph.drawn = null;
  zoomGraph(graph.zoom);
  centreGraph();
}

// What is in sight is drawn, and as much above and below.
function drawGraph() {
  const { laid, svg } = graph, box = by("graph");
  if (!laid) return;
  const tall = box.clientHeight / graph.zoom, top = box.scrollTop / graph.zoom;
  if (graph.drawn && top >= graph.drawn[0] + tall * 0.2 && top + tall <= graph.drawn[1] - tall * 0.2) return;
  const band = [top - tall, top + 2 * tall];
  graph.drawn = [band[0] <= 0 ? -Infinity : band[0], band[1] >= laid.height ? Infinity : band[1]];
  paintGraph(svg, band);
}
function paintGraph(svg, [first, last]) {
  const { laid } = graph, parts = [];
  const isSeen = (from, to) => Math.max(from, to) >= first && Math.min(from, to) <= last;
  const words = fittingWords();
  for (const { group, depth, top, bottom } of laid.brackets) if (isSeen(top, bottom)) parts.push(bracket(group, depth, top, bottom));
  for (const edge of laid.edges) if (isSeen(edge.from.y, edge.to.y)) parts.push(flowLine(edge));
  const places = new Map();
  for (const each of [...laid.links].sort((a, b) => a.golden.y + a.mine.y - b.golden.y - b.mine.y)) if (isSeen(each.golden.y, each.mine.y)) parts.push(relationLine(each, places));
  for (const node of laid.visible) if (isSeen(node.y, node.y + BOX.height)) parts.push(nodeBox(node, !words || words(node)));
  const middle = laid.left + laid.middle / 2;
  parts.push(s("text", { class: "strong", x: laid.left, y: 20, "text-anchor": "end" }, say("golden")), s("text", { class: "strong", x: middle, y: 20, "text-anchor": "middle" }, say("relation")), s("text", { class: "strong", x: laid.left + laid.middle, y: 20 }, say("mine")));
  svg.replaceChildren(...parts);
  pointNode(graph.at);
}

function bracket(group, depth, top, bottom) {
  const { laid } = graph, outside = group.side === GOLDEN ? depth * BRACKET + 12 : laid.width - depth * BRACKET - 12;
  const name = group.op.split(".").slice(-2).join("."), room = Math.max(3, Math.floor((bottom - top) / 6.8));
  const turn = `translate(${outside + (group.side === GOLDEN ? -3 : 10)},${(top + bottom) / 2}) rotate(-90)`;
  return s("g", { class: `hit bracket is-${VERDICT_CLASS(verdictOfNode(group))}`, onclick: () => toggleGroup(group, false) },
    s("path", { d: group.side === GOLDEN ? `M${outside + 6} ${top}h-4v${bottom - top}h4` : `M${outside - 6} ${top}h4v${bottom - top}h-4` }),
    s("text", { transform: turn, "text-anchor": "middle" }, ellipsis(name, room)), s("title", {}, `${describe(group)}\n${say("click to close")}`));
}
function flowLine({ from, to, isGuess, verdict }) {
  const outward = from.side === GOLDEN ? -1 : 1, [x1, x2] = [from.x + BOX.width / 2, to.x + BOX.width / 2];
  let d = `M${x1} ${from.y + BOX.height}C${x1} ${from.y + BOX.height + 12} ${x2} ${to.y - 12} ${x2} ${to.y}`;
  if (to.rank === from.rank && to.y === from.y) { // neighbours
    const [left, right] = from.x < to.x ? [from, to] : [to, from];
    d = `M${left.x + BOX.width} ${left.y + BOX.height * 0.75}H${right.x}`;
  } else if (to.rank - from.rank !== 1) { // past what lies between
    const edge = outward < 0 ? Math.min(from.x, to.x) : Math.max(from.x, to.x) + BOX.width;
    const side = (node) => (outward < 0 ? node.x : node.x + BOX.width);
    const bulge = edge + outward * Math.min(BULGE - 4, 16 + 5 * Math.abs(to.rank - from.rank));
    d = `M${side(from)} ${from.y + BOX.height * 0.7}C${bulge} ${from.y + BOX.height + 10} ${bulge} ${to.y - 10} ${side(to)} ${to.y + BOX.height * 0.3}`;
  }
  return s("path", { class: `flow is-${VERDICT_CLASS(verdict)}${isGuess ? " guess" : ""}${to.rank - from.rank > 12 ? " far" : ""}`, d }, s("title", {}, isGuess ? say("{0} to {1}, through code that was not captured", from.op, to.op) : say("{1} reads what {0} computed", from.op, to.op)));
}
function relationLine({ golden, mine, row, isSure }, places) {
  const [x1, y1, x2, y2] = [golden.x + BOX.width, golden.y + BOX.height / 2, mine.x, mine.y + BOX.height / 2], middle = graph.laid.left + graph.laid.middle / 2;
  let y = (y1 + y2) / 2;
  while ([...places.keys()].some((other) => Math.abs(other - y) < 18)) y += 18;
  places.set(y, true);
  const text = isSure ? shortened(row.relation || "", graph.laid.middle - 66) : "", wide = textWidth(text) + 26;
  return s("g", { class: `hit relation is-${VERDICT_CLASS(row.verdict)}${isSure ? "" : " guess"}`, onclick: () => choose(row) },
    s("path", { d: `M${x1} ${y1}C${x1 + 30} ${y1} ${middle - 80} ${y} ${middle - wide / 2} ${y}M${middle + wide / 2} ${y}C${middle + 80} ${y} ${x2 - 30} ${y2} ${x2} ${y2}` }),
    s("rect", { x: middle - wide / 2, y: y - 9, width: wide, height: 18, rx: 5 }),
    s("text", { x: middle, y: y + 4, "text-anchor": "middle" }, `${SIGNS[row.verdict]} ${text}`.trim()),
    s("title", {}, `${row.golden}\n${titleOf(row.operation)} ${row.name}\n${row.relation}${row.why ? `: ${row.why}` : ""}${row.reason ? `\n${row.reason}` : ""}`));
}
function nodeBox(node, fits) {
  const [name] = namesOf(node), verdict = verdictOfNode(node), room = LONGEST + 1 - (hasOrigin(node) ? 2 : 0);
  return s("g", { class: `hit node-box is-${VERDICT_CLASS(verdict)}${fits ? "" : " faint"}${node.rows.includes(state.row) ? " chosen" : ""}`, transform: `translate(${node.x},${node.y})`, onclick: () => useNode(node), "data-key": node.key },
    s("rect", { width: BOX.width, height: BOX.height, rx: 6 }),
    s("text", { class: "verdict", x: 9, y: 16 }, verdict === undefined ? "\u00b7" : SIGNS[verdict]),
    s("text", { class: "strong", x: 22, y: 16 }, ellipsis(`${node.members.length ? "\u25b8 " : ""}${name}`, room)),
    s("text", { x: 22, y: 31 }, ellipsis(subOf(node), 28)),
    hasOrigin(node) && s("text", { class: "star", x: BOX.width - 16, y: 17 }, "\u2605"),
    s("title", {}, describe(node)));
}

function fittingWords() {
  const words = sides.search.toLowerCase().split(/\s+/).filter(Boolean), wanted = wantedRows();
  if (!words.length && !wanted) return null;
  const fits = (row) => (!wanted || wanted(row)) && inSearch(row, words);
  return (node) => node.rows.some(fits) || node.members.some((member) => member.rows.some(fits));
}

function useNode(node) {
  pointNode(node);
  if (node.members.length) return toggleGroup(node, true);
  const row = node.rows.find((each) => each.role !== "in" && each.verdict === verdictOfNode(node)) || node.rows[0];
  if (row) choose(row);
}
function toggleGroup(group, open) {
  const pair = [group, ...[...group.links.values()].filter((each) => each.isSure).map((each) => (group.side === MINE ? each.golden : each.mine)).filter((other) => other.members.length)];
  for (const each of pair) {
    graph.byHand.delete(`${each.side} ${each.op}`);  // the last one is the youngest
    graph.byHand.set(`${each.side} ${each.op}`, open);
  }
  showAddress();
  const inner = open ? group.members[0] : group;
  layGraph();
  const shown = graph.laid.visible.find((node) => node === inner || [...outer(node)].includes(group));
  centreGraph(shown);
  pointNode(shown);
}

function pointNode(node) {
  if (!graph.svg) return;
  graph.at = node && graph.laid.visible.includes(node) ? node : null;
  graph.svg.querySelector(".cell-cursor")?.remove();
  if (!graph.at) return;
  graph.svg.append(s("rect", { class: "cell-cursor", x: node.x - 2, y: node.y - 2, width: BOX.width + 4, height: BOX.height + 4, rx: 7, "pointer-events": "none" }));
}
function graphKey(event) {
  const { laid } = graph;
  const at = graph.at || chosenVisible();
  const nearest = (nodes, distance) => nodes.reduce((best, node) => (!best || distance(node) < distance(best) ? node : best), null);
  const along = (step) => nearest(laid.visible.filter((node) => node.side === at.side && (node.y - at.y) * step > 0), (node) => Math.abs(node.y - at.y) + Math.abs(node.x - at.x) / 1000);
  const across = (step) => nearest(laid.visible.filter((node) => Math.abs(node.y - at.y) < 1 && (node.x - at.x) * step > 0), (node) => Math.abs(node.x - at.x))
    || (step < 0 === (at.side === MINE) ? nearest(laid.visible.filter((node) => node.side !== at.side), (node) => (laid.links.some((each) => [each.golden, each.mine].includes(node) && [each.golden, each.mine].includes(at)) ? 0 : 1e6) + Math.abs(node.y - at.y)) : null);
  const ends = laid.visible.filter((node) => node.side === at.side).sort((a, b) => a.y - b.y);
  const moves = { ArrowDown: () => along(1), ArrowUp: () => along(-1), ArrowLeft: () => across(-1), ArrowRight: () => across(1), Home: () => ends[0], End: () => ends.at(-1) };
  const others = { Enter: () => useNode(at), " ": () => useNode(at), Backspace: () => at.parent && toggleGroup(at.parent, false), "+": () => zoomGraph(graph.zoom * 1.25, at), "=": () => zoomGraph(graph.zoom * 1.25, at), "-": () => zoomGraph(graph.zoom / 1.25, at), 0: () => fitGraph() };
  if (event.ctrlKey || event.metaKey || event.altKey || !(moves[event.key] || others[event.key])) return;
  event.preventDefault();
  if (moves[event.key]) {
    const next = graph.at ? moves[event.key]() || at : at;
    showNode(next);
    pointNode(next);
  } else {
    others[event.key]();
    graph.svg.focus({ preventScroll: true });
  }
  if (graph.at) by("graph-text").textContent = describe(graph.at);
}
