// Errors as colours: layer by token, operator by token, or operator by layer.

const MAX_HEAT_ROWS = 300, MAX_HEAT_COLUMNS = 400;

// An operator's place in its layer, the same in all layers: its type or path without the layer's own part.
function placeInLayer(operation) {
  if (operation.op.startsWith(`${operation.layer}.`)) return operation.op.slice(operation.layer.length + 1);
  const tail = operation.id.includes("_") ? operation.id.slice(operation.id.indexOf("_") + 1) : "";
  return `${operation.type || operation.op}${tail ? ` ${tail}` : ""}`;
}
const HEAT_KINDS = {
  "layer-token": [say("layer by token"), (o) => o.layer, (o) => o.step],
  "operator-token": [say("operator by token"), (o) => titleOf(o), (o) => o.step],
  "operator-layer": [say("operator by layer"), placeInLayer, (o) => o.layer],
};
let heat = null; // what is drawn, for the keyboard

function heatCells(kind) {
  const [, rowOf, columnOf] = HEAT_KINDS[kind];
  // What a cell filters by is no filter of the map itself: the other cells stay, paler.
  const isIn = { "layer-token": (o) => o.mine && isLayer.has(o.layer), "operator-token": (o) => isInnermost(o) && inLayer(o), "operator-layer": isDrawn }[kind];
  const shown = operations.filter(isIn);
  const cells = new Map();
  const names = distinct(shown.map(rowOf)).slice(0, MAX_HEAT_ROWS);
  const all = distinct(shown.map(rowOf)).length;
  let columns = distinct(shown.map(columnOf));
  columns = (kind === "operator-layer" ? columns : columns.sort((a, b) => a - b)).slice(0, MAX_HEAT_COLUMNS);
  const rowPlaces = new Map(names.map((name, place) => [name, place])), columnPlaces = new Map(columns.map((name, place) => [name, place]));
  for (const operation of shown) {
    const row = rowPlaces.get(rowOf(operation)), column = columnPlaces.get(columnOf(operation));
    if (row === undefined || column === undefined) continue;
    const key = row * columns.length + column;
    const cell = cells.get(key) || { row, column, error: null, failed: false, worst: null, origin: false, out: true };
    if (inStep(operation) && inLayer(operation)) cell.out = false;
    for (const item of operation.rows) {
      if (item.role === "in") continue;
      const error = errorOf(item, state.metric);
      if (item.verdict === FAIL) cell.failed = true;
      if (cell.origin) { if (error !== null && error > cell.error) cell.error = error; continue; } // Enter leads to the origin
      if (cell.worst === null || (error !== null && (cell.error === null || error > cell.error))) { cell.worst = item; cell.error = error; }
    }
    if (operation.origin) { cell.origin = true; cell.worst = operation.rows.find((item) => item.role !== "in") || cell.worst; }
    if (cell.worst) cells.set(key, cell);
  }
  return { names, columns, cells, left: all - names.length };
}

function drawHeat() {
  const kind = by("heat-by").value;
  const { names, columns, cells, left } = heatCells(kind);
  const before = heat && heat.at && heat.at.worst;
  heat = null;
  if (!cells.size) return fill("heat", h("p", { class: "muted" }, say("Nothing was measured in this selection.")));
  const errors = [...cells.values()].map((cell) => cell.error).filter((error) => error !== null);
  const scale = errorScale(errors);
  const label = Math.min(230, 12 + 6.3 * names.reduce((size, name) => Math.max(size, Math.min(34, String(name).length)), 4));
  const room = Math.max(240, by("heat").clientWidth - 28);
  const size = Math.max(12, Math.min(46, (room - label - 8) / columns.length));
  const tall = names.length > 40 ? 13 : 18;
  const labels = columns.map((name) => (kind === "operator-layer" ? ellipsis(String(name), 15) : String(name)));
  const longest = labels.reduce((length, text) => Math.max(length, text.length), 0);
  const turned = longest * 6.3 > size; // names side by side would cover each other
  const top = turned ? 24 + Math.min(80, 4.6 * longest + 8) : 52, width = Math.max(room, label + columns.length * size + 8), height = top + names.length * tall + 6;
  const parts = [];
  const every = Math.max(1, Math.ceil(18 / size));
  columns.forEach((name, place) => {
    if (place % every) return;
    parts.push(s("text", { transform: `translate(${label + place * size + size / 2 + 3},${top - 6}) rotate(${turned ? -50 : 0})`, "text-anchor": turned ? "start" : "middle" },
      labels[place], s("title", {}, String(name))));
  });
  parts.push(s("text", { x: 0, y: 12 }, `${kind === "layer-token" ? say("layer") : say("operator")} \u2193  ${kind === "operator-layer" ? say("layer") : say("token")} \u2192`));
  names.forEach((name, place) => parts.push(s("text", { x: label - 8, y: top + place * tall + tall - 5, "text-anchor": "end" },
    ellipsis(String(name), 34), s("title", {}, String(name)))));
  for (const cell of cells.values()) {
    const [cx, cy] = [label + cell.column * size, top + cell.row * tall];
    const box = { x: cx + 0.5, y: cy + 0.5, width: size - 1.5, height: tall - 1.5, rx: 2 };
    parts.push(s("rect", {
      ...box, class: `hit${cell.error === null ? " cell-none" : ""}${cell.out ? " cell-out" : ""}`, fill: cell.error === null ? null : heatColour(scale.share(cell.error)), onclick: () => filterBy(cell),
    }, s("title", {}, cellText(cell, names, columns, kind))));
    if (cell.failed) parts.push(s("rect", { ...box, class: "cell-fail", "pointer-events": "none" }));
    if (cell.origin) parts.push(s("text", { class: "star", x: cx + size / 2, y: cy + tall - 4, "text-anchor": "middle", "pointer-events": "none" }, "\u2605"));
  }
  const cursor = s("rect", { class: "cell-cursor", width: size - 1, height: tall - 1, rx: 2, visibility: "hidden", "pointer-events": "none" });
  parts.push(cursor);
  heat = { names, columns, cells, kind, cursor, at: null, place: (cell) => [label + cell.column * size, top + cell.row * tall] };
  fill("heat", s("svg", {
    id: "heat-svg", width, height, viewBox: `0 0 ${width} ${height}`, role: "application", tabindex: 0, onkeydown: heatKey,
    "aria-label": say("Heat map, {0}: arrow keys move, Enter shows only what the cell stands for", HEAT_KINDS[kind][0]),
  }, parts));
  const again = before && [...cells.values()].find((cell) => cell.worst === before);
  if (again) point(again);
  by("heat-text").textContent = say("{0}; framed: a limit is missed; \u2605: origin; a cell shows only its token and layer everywhere", errorName(source.metrics[state.metric]))
    + (left > 0 ? say("; {0} more: choose a layer to see its operators", left) : "");
}

function cellText(cell, names, columns, kind) {
  const column = kind === "operator-layer" ? columns[cell.column] : say("token {0}", columns[cell.column]);
  return say("{0}, {1}: {2} at {3}", names[cell.row], column, cell.error === null ? VERDICTS[cell.worst.verdict] : short(cell.error), titleOf(cell.worst.operation));
}

function point(cell) {
  heat.at = cell;
  const [x, y] = heat.place(cell);
  for (const [name, value] of Object.entries({ x, y, visibility: "visible" })) heat.cursor.setAttribute(name, value);
}

// Everything else shows only the token and the layer of a cell; the same cell once more shows all again.
function filterBy(cell) {
  const { step, layer } = cell.worst.operation;
  const wanted = heat.kind === "operator-layer" ? { step: state.step, layer } : { step, layer };
  const again = state.step === wanted.step && state.layer === layer;
  change({ ...(again ? { step: null, layer: null } : wanted), operation: cell.worst.operation, row: cell.worst });
  showChoices();
}

function heatKey(event) {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (!heat) return;
  if (event.key === "Enter" && heat.at) { filterBy(heat.at); by("heat-svg").focus(); }
  if (!moves[event.key]) return;
  event.preventDefault();
  let cell = heat.at;
  if (!cell) cell = heat.cells.values().next().value;
  else {
    const [down, right] = moves[event.key];
    let { row, column } = cell;
    do { row += down; column += right; }
    while (row >= 0 && row < heat.names.length && column >= 0 && column < heat.columns.length && !heat.cells.has(row * heat.columns.length + column));
    cell = heat.cells.get(row * heat.columns.length + column) || cell;
    if (column < 0 || column >= heat.columns.length) cell = heat.at;
  }
  point(cell);
  by("heat-text").textContent = cellText(cell, heat.names, heat.columns, heat.kind);
}
views.push((changes) => {
  if ("metric" in changes || "step" in changes || "layer" in changes || "redraw" in changes) drawHeat();
});
