// The error ledger: how the error grows along the model, and who introduced which part of it.

const LISTED = 12, MAX_COLUMNS = 1500;
const ledger = source.ledger.map((raw) => ({
  op: texts[raw[0]], id: texts[raw[1]], step: raw[2], output: texts[raw[3]], layer: texts[raw[4]], introduced: toNumber(raw[5]),
  inherited: toNumber(raw[6]), total: toNumber(raw[7]), excess: toNumber(raw[8]), row: raw[9] === null ? null : rows[raw[9]],
  reason: texts[raw[10]], order: raw[11],
}));
const isBeyond = (entry) => !(entry.excess <= 1);
const inView = (entry) => (state.step === null || entry.step === state.step) && (state.layer === null || entry.layer === state.layer);

// Columns in execution order: layers, or the operators of the chosen layer.
function ledgerColumns(entries) {
  const kind = by("ledger-by").value;
  const columns = new Map();
  for (const entry of [...entries].sort((a, b) => a.order - b.order)) {
    const name = kind === "layer" ? entry.layer : entry.op;
    const key = `${name}\n${entry.step}`;
    if (!columns.has(key)) columns.set(key, { name, step: entry.step, total: null, squares: 0, worst: entry, first: entry });
    const column = columns.get(key);
    if (entry.total !== null) column.total = entry.total;
    if (entry.introduced !== null) column.squares += entry.introduced ** 2;
    if (entry.excess > column.worst.excess) column.worst = entry;
  }
  return [...columns.values()].slice(0, MAX_COLUMNS);
}

function drawWaterfall(entries) {
  const columns = ledgerColumns(entries);
  if (!columns.length) return fill("waterfall", h("p", { class: "muted" }, say("No operator of this selection was computed again.")));
  const introduced = columns.map((column) => Math.sqrt(column.squares));
  const scale = errorScale([0, ...introduced, ...columns.map((column) => column.total).filter((total) => total !== null)]);
  const [right, top, { left, bottom }] = [16, 14, slantedRoom(columns.map((column) => column.name))];
  const room = Math.max(280, by("waterfall").clientWidth - 28);
  const width = Math.max(room, left + right + columns.length * 7);
  const height = 222 + bottom, pitch = (width - left - right) / columns.length;
  const x = (place) => left + place * pitch, y = (error) => top + (1 - scale.share(error)) * (height - top - bottom);
  const parts = scale.ticks.flatMap(([value, text]) => [
    s("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
    s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, text)]);
  const every = Math.max(1, Math.ceil(26 / pitch));
  let before = 0;
  columns.forEach((column, place) => {
    if (column.first.inherited === 0) before = 0; // what it gets is right: another pass begins
    const after = column.total === null ? before : column.total;
    const ends = [y(before), y(after)];
    const failed = isBeyond(column.worst);
    const text = [say("{0}, token {1}", column.name, column.step), say("error {0} comes in, {1} goes out", short(before), short(after)), say("its operators introduce {0}, at most {1} times what is allowed ({2})", short(introduced[place]), short(column.worst.excess), column.worst.op)].join("\n");
    parts.push(s("g", { class: "hit fall-group", onclick: () => column.worst.row && select(column.worst.row) },
      s("rect", { class: `fall ${failed ? "fall-fail" : after < before ? "fall-down" : ""}`, x: x(place) + pitch * 0.12, width: Math.max(1, pitch * 0.76), y: Math.min(...ends), height: Math.max(2, Math.abs(ends[0] - ends[1])) }),
      s("circle", { class: failed ? "own own-fail" : "own", cx: x(place) + pitch / 2, cy: y(introduced[place]), r: Math.min(4.5, Math.max(1.5, pitch / 4)) }),
      s("title", {}, text)));
    if (place + 1 < columns.length) parts.push(s("line", { class: "axis", x1: x(place) + pitch * 0.88, x2: x(place + 1) + pitch * 0.12, y1: ends[1], y2: ends[1] }));
    if (place % every === 0) parts.push(slanted(column.name, x(place) + pitch / 2, height - bottom + 12));
    before = after;
  });
  const key = (shape, text) => h("span", {}, s("svg", { width: 14, height: 10, "aria-hidden": "true" }, shape), text);
  fill("waterfall", s("svg", {
    id: "waterfall-svg", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": say("Error that comes in and goes out of {0} columns; {1} of them with an operator beyond its contract", columns.length, columns.filter((column) => isBeyond(column.worst)).length),
  }, parts), h("div", { class: "legend" },
    key(s("rect", { class: "fall", x: 1, y: 1, width: 12, height: 8 }), say("from the error that comes in to the one that goes out")),
    key(s("rect", { class: "fall fall-down", x: 1, y: 1, width: 12, height: 8 }), say("smaller than before")),
    key(s("circle", { class: "own", cx: 7, cy: 5, r: 4 }), say("introduced by its own operators")),
    key(s("rect", { class: "fall fall-fail", x: 1, y: 1, width: 12, height: 8 }), say("an operator beyond its contract"))));
}

function drawRanking(entries) {
  const cell = (value) => h("td", { class: "n" }, value === null ? "" : short(value));
  fill("ranking", h("table", { class: "small" },
    h("thead", {}, h("tr", {}, ["", say("operator"), say("token"), say("introduced"), say("inherited"), say("total"), say("of what is allowed")].map((name, place) => h("th", { class: place > 1 && "n" }, name)))),
    h("tbody", {}, entries.slice(0, LISTED).map((entry) => h("tr", {},
      h("td", {}, badge(isBeyond(entry) ? FAIL : PASS)),
      h("td", {}, entry.row ? h("button", { type: "button", class: "link", title: entry.reason, onclick: () => select(entry.row) }, `${entry.op} ${entry.output}`) : `${entry.op} ${entry.output}`),
      h("td", { class: "n" }, entry.step), cell(entry.introduced), cell(entry.inherited), cell(entry.total),
      h("td", { class: `n ${isBeyond(entry) ? "bad" : ""}` }, entry.excess === Infinity ? say("not finite, or nothing is") : say("{0} times", entry.excess < 10 ? entry.excess.toFixed(2) : short(entry.excess))))))),
    entries.length > LISTED && h("p", { class: "muted" }, say("and {0} more with less; the table ait_cmp_ledger has all", entries.length - LISTED)));
}

function drawLedger() {
  if (!ledger.length) return;
  const entries = ledger.filter(inView);
  drawWaterfall(entries);
  drawRanking(entries);
}
if (ledger.length) {
  by("ledger").hidden = false;
  by("ledger-by").value = LAYERS.length > 2 ? "layer" : "operation";
  by("ledger-by").addEventListener("change", drawLedger);
  views.push((changes) => {
    if ("step" in changes || "layer" in changes || "redraw" in changes) drawLedger();
  });
}
