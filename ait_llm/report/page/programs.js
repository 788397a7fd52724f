// Both programs side by side as a list: golden on the left, mine on the right, what relates them in between.

const isNarrow = matchMedia("(max-width: 700px)"); // where the three cells of a line stand above each other
const lineHeight = () => (isNarrow.matches ? 76 : 26); // pixels; only the lines in sight are made, so that any number of them scrolls
const sides = { as: "graph", only: "", search: "", lines: [], first: -1 };

// My tensors in execution order; a golden one without a partner follows the first of mine that answers
// what golden ran last before it, with it or as one of its outputs.
function aligned() {
  const mine = rows.filter((row) => row.operation.mine);
  const alone = rows.filter((row) => !row.operation.mine).sort((a, b) => a.goldenOrder - b.goldenOrder);
  const places = new Map();
  mine.forEach((row, place) => {
    if (row.goldenOrder < 0) return;
    const known = places.get(row.goldenOrder);
    if (known === undefined || (row.role === "out" && mine[known].role !== "out")) places.set(row.goldenOrder, place);
  });
  const orders = [...places.keys()].sort((a, b) => a - b);
  const after = new Map();
  let next = 0;
  for (const row of alone) {
    while (next < orders.length && orders[next] <= row.goldenOrder) next += 1;
    const place = next ? places.get(orders[next - 1]) : -1;
    if (!after.has(place)) after.set(place, []);
    after.get(place).push(row);
  }
  const found = after.get(-1) || [];
  return found.concat(mine.flatMap((row, place) => [row, ...(after.get(place) || [])]));
}
let everyLine = null;
const hays = new Map();
function inSearch(row, words) {
  if (!words.length) return true;
  if (!hays.has(row)) hays.set(row, [haystack(row), row.goldenOp, row.goldenName, row.relation, row.why].join("\n").toLowerCase());
  return words.every((word) => hays.get(row).includes(word));
}

const wantedRows = () => ({ failed: (row) => row.verdict === FAIL || row.verdict === ERROR, alone: (row) => !row.mineRaw || !row.goldenRaw, related: (row) => row.relation && row.relation !== source.same }[sides.only]);
function filterLines() {
  if (sides.as !== "list") return;
  const words = sides.search.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = wantedRows();
  everyLine ||= aligned();
  sides.lines = everyLine.filter((row) => inStep(row.operation) && inLayer(row.operation) && (!wanted || wanted(row)) && inSearch(row, words));
  const box = by("programs-lines");
  box.firstElementChild.style.height = `${sides.lines.length * lineHeight()}px`;
  by("programs-count").textContent = plural(sides.lines.length, "tensor");
  sides.first = -1;
  drawLines();
}

function tensorCell(side, op, name, again, empty) {
  if (!side) return h("span", { class: "side muted", role: "cell", title: empty }, empty);
  const { dtype, shape } = sideOf(side);
  return h("span", { class: "side", role: "cell", title: `${op} ${name}\n${dtype} ${shape}` }, h("b", { class: again ? "again" : null }, op), " ", name, " ", h("small", {}, `${dtype} ${shape}`));
}

function line(row, before) {
  const both = row.goldenRaw && row.mineRaw;
  const operation = row.operation;
  const middle = both ? row.relation : say("no counterpart");
  const why = [`${VERDICTS[row.verdict]}${row.reason ? `: ${row.reason}` : ""}`, both && say("{0}, confidence {1}: {2}", row.rule, short(row.confidence), row.why)].filter(Boolean).join("\n");
  const sameMine = before && before.operation === operation && operation.mine;
  const sameGolden = before && before.goldenOp === row.goldenOp && before.operation.step === operation.step;
  const reason = row.reason || say("no counterpart");
  return h("div", {
    class: `line is-${VERDICTS[row.verdict].toLowerCase()}${row === state.row ? " chosen" : ""}`, role: "row",
    onclick: () => choose(row),
  }, tensorCell(row.goldenRaw, row.goldenOp, row.goldenName, sameGolden, reason),
  h("span", { class: "middle", role: "cell", title: why }, sign(row.verdict), " ", middle),
  tensorCell(row.mineRaw, titleOf(operation), /[^0-9]/.test(row.label) ? row.label : row.name, sameMine, reason));
}

function drawLines(force) {
  const box = by("programs-lines"), tall = lineHeight();
  const first = Math.max(0, Math.floor(box.scrollTop / tall) - 10);
  const count = Math.ceil((box.clientHeight || 520) / tall) + 20;
  if (!force && first === sides.first) return;
  sides.first = first;
  const layer = box.firstElementChild.firstElementChild;
  layer.style.transform = `translateY(${first * tall}px)`;
  const part = sides.lines.slice(first, first + count);
  layer.replaceChildren(...(part.length ? part.map((row, place) => line(row, place ? part[place - 1] : null))
    : [h("div", { class: "hint", role: "row" }, h("span", { role: "cell" }, say("No tensor fits these filters.")))]));
}

function revealLine(row) {
  const place = sides.lines.indexOf(row);
  const box = by("programs-lines"), tall = lineHeight();
  if (place >= 0 && (place * tall < box.scrollTop || (place + 1) * tall > box.scrollTop + box.clientHeight)) {
    box.scrollTop = Math.max(0, place * tall - box.clientHeight / 2);
  }
  drawLines(true);
}

by("programs-lines").addEventListener("scroll", () => drawLines(false));
// The list leaves out what does not fit, the graphs show it fainter.
function filterSides() {
  filterLines();
  graph.drawn = null;
  if (sides.as === "graph") drawGraph();
}
by("programs-only").addEventListener("change", (event) => { sides.only = event.target.value; filterSides(); });
let searching = 0;
by("programs-search").addEventListener("input", () => { clearTimeout(searching); searching = setTimeout(() => { sides.search = by("programs-search").value; filterSides(); }, 120); });
isNarrow.addEventListener("change", filterLines);
views.push((changes) => {
  if (["step", "layer", "redraw"].some((name) => name in changes)) filterLines();
  if ("row" in changes && sides.as === "list") revealLine(changes.row);
});
