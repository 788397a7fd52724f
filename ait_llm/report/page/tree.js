// The topology as a tree: every operation by its id, every module by its path.

function topology() {
  const root = { key: "", children: new Map(), operations: [] };
  for (const operation of operations) {
    if (!operation.mine) continue;
    const dotted = isModule(operation);
    const parts = dotted ? operation.op.split(".") : operation.id ? operation.id.split("_") : [operation.op];
    let node = root;
    parts.forEach((part, depth) => {
      const key = parts.slice(0, depth + 1).join(dotted ? "." : "_");
      if (!node.children.has(part)) node.children.set(part, { key, part, children: new Map(), operations: [], parent: node });
      node = node.children.get(part);
    });
    node.operations.push(operation);
  }
  return root;
}
const tree = topology();
const nodeOf = new Map();
(function index(node) {
  for (const operation of node.operations) nodeOf.set(operation, node);
  for (const child of node.children.values()) index(child);
  node.measured = [...node.children.values()].some((child) => child.measured || child.operations.some(isMeasured));
})(tree);
function isMeasured(operation) {
  return operation.rows.some((row) => row.role !== "in" && row.values.some((value) => value !== null));
}
// What is drawn in execution order: a graph only where nothing in it was measured.
const isInnermost = (operation) => operation.mine && !nodeOf.get(operation).measured;
const isDrawn = (operation) => inStep(operation) && isInnermost(operation);
const isChosen = (operation) => inStep(operation) && inLayer(operation);
const expanded = new Set();

function judge(node) {
  const found = new Set(node.operations.filter(isChosen).map((operation) => operation.verdict));
  node.failing = node.operations.filter((operation) => isChosen(operation) && operation.verdict === FAIL).length;
  node.skipped = node.operations.filter((operation) => isChosen(operation) && operation.verdict === SKIPPED).length;
  node.origin = node.operations.some((operation) => operation.origin && isChosen(operation));
  node.hasOrigin = node.origin;
  for (const child of node.children.values()) {
    judge(child);
    for (const verdict of child.found) found.add(verdict);
    node.failing += child.failing;
    node.skipped += child.skipped;
    node.hasOrigin = node.hasOrigin || child.hasOrigin;
  }
  node.found = found;
  node.verdict = worstOf(found);
}

function drawNode(node, depth) {
  const first = node.operations[0];
  const open = expanded.has(node), leaf = !node.children.size;
  const chosen = state.operation && nodeOf.get(state.operation) === node;
  const name = first && !isModule(first) ? first.type || first.op : node.part;
  const aside = first ? (isModule(first) ? first.type : node.key) : "";
  const item = h("li", {
    role: "treeitem", "aria-expanded": leaf ? null : String(open), "aria-level": depth, "aria-selected": String(Boolean(chosen)),
    tabindex: chosen ? 0 : -1, "data-key": node.key, onkeydown: (event) => { event.stopPropagation(); treeKey(event, node); },
    "aria-label": `${name} ${aside}, ${node.verdict === undefined ? say("not captured") : VERDICTS[node.verdict]}${node.origin ? `, ${say("origin of the error")}` : ""}`,
  }, h("div", { class: `node${chosen ? " chosen" : ""}`, onclick: () => activate(node) },
  h("span", { class: "twig", onclick: (event) => { event.stopPropagation(); toggle(node); } }, leaf ? "" : open ? "\u25be" : "\u25b8"), sign(node.verdict),
  h("span", {}, name), h("small", {}, aside), node.origin && originBadge(),
  !open && !leaf && node.hasOrigin && !node.origin && h("span", { class: "bad", title: say("the origin is inside") }, "\u2605"),
  !leaf && node.failing > 0 && h("small", { class: "bad" }, say("{0} failing", node.failing)),
  !leaf && node.skipped > 0 && h("small", {}, say("{0} not compared", node.skipped))));
  if (open && !leaf) item.append(h("ul", { role: "group" }, visible(node).map((child) => drawNode(child, depth + 1))));
  return item;
}
const visible = (node) => [...node.children.values()].filter((child) => (state.layer === null || child.found.size) && (!state.onlyFailed || (child.verdict !== undefined && child.verdict !== PASS)));

function drawTree() {
  judge(tree);
  const kept = by("tree").scrollTop;
  const top = visible(tree);
  fill("tree", top.length ? h("ul", { role: "tree", "aria-labelledby": "tree-title" }, top.map((node) => drawNode(node, 1)))
    : h("p", { class: "muted" }, state.onlyFailed ? say("Everything passed.") : say("No operator of my side was found.")));
  const items = by("tree").querySelectorAll("[role=treeitem]");
  if (items.length && !by("tree").querySelector("[tabindex='0']")) items[0].setAttribute("tabindex", 0);
  by("tree").scrollTop = kept;
}
// Only the tree is scrolled: the page begins with its verdict.
function showChosen() {
  const box = by("tree"), chosen = box.querySelector(".chosen");
  if (!chosen) return;
  const [outside, inside] = [box.getBoundingClientRect(), chosen.getBoundingClientRect()];
  if (inside.top < outside.top || inside.bottom > outside.bottom) box.scrollTop += inside.top - outside.top - box.clientHeight / 2;
}
function focusNode(node) {
  const found = [...by("tree").querySelectorAll("[role=treeitem]")].find((item) => item.dataset.key === node.key);
  if (found) { found.focus(); found.scrollIntoView({ block: "nearest" }); }
}
function toggle(node) {
  if (expanded.has(node)) expanded.delete(node); else expanded.add(node);
  drawTree();
  focusNode(node);
}
function activate(node) {
  const operation = node.operations.find((o) => inStep(o) && o.verdict === node.verdict) || node.operations.find(inStep);
  if (operation) {
    change({ operation, row: operation.rows.find((row) => row.role !== "in") || operation.rows[0] });
    focusNode(node);
  } else toggle(node);
}
function reveal(operation) {
  for (let node = nodeOf.get(operation)?.parent; node && node !== tree; node = node.parent) expanded.add(node);
}
function treeKey(event, node) {
  const items = [...by("tree").querySelectorAll("[role=treeitem]")], place = items.indexOf(event.currentTarget);
  const go = (item) => { if (item) { event.currentTarget.setAttribute("tabindex", -1); item.setAttribute("tabindex", 0); item.focus(); } };
  const keys = {
    ArrowDown: () => go(items[place + 1]), ArrowUp: () => go(items[place - 1]), Home: () => go(items[0]), End: () => go(items.at(-1)),
    ArrowRight: () => (node.children.size && !expanded.has(node) ? toggle(node) : go(items[place + 1])),
    ArrowLeft: () => (expanded.has(node) ? toggle(node) : node.parent !== tree && focusNode(node.parent)),
    Enter: () => activate(node), " ": () => activate(node),
  };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
}
views.push((changes) => {
  if ("operation" in changes && changes.operation) reveal(changes.operation);
  if (["operation", "step", "layer", "onlyFailed", "redraw"].some((name) => name in changes)) drawTree();
  if ("operation" in changes) showChosen();
});
