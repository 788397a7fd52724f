// Every comparison, sorted and filtered; a page of rows at a time keeps any number of them quick.

const PAGE = 50;
const rank = new Map(WORST_FIRST.map((verdict, place) => [verdict, place]));
const byNumber = (get) => (row) => { const value = get(row); return Number.isNaN(value) ? Infinity : value; }; // null: no number, always last
const METRIC_ORDER = source.metrics.map((name, place) => [name, place]).sort((a, b) => (b[0] === source.headline) - (a[0] === source.headline));
const METRICS = METRIC_ORDER.map(([name, place]) => ({ name, numeric: true, key: byNumber((row) => row.values[place]), cell: (row) => (row.values[place] === null ? "" : short(row.values[place])) }));
const COLUMNS = [ // the number that the verdict rests on stands where no window is too narrow for it
  { name: "verdict", key: (row) => rank.get(row.verdict) - (row.operation.origin && row.verdict === FAIL && row.role !== "in" ? 0.5 : 0), cell: (row) => [badge(row.verdict), row.operation.origin && row.role !== "in" && [" ", originBadge()]] },
  { name: "token", numeric: true, key: (row) => row.operation.step, cell: (row) => row.operation.step },
  { name: "operator", key: (row) => row.operation.op, cell: (row) => h("button", { type: "button", class: "link", onclick: (event) => { event.stopPropagation(); choose(row); } }, titleOf(row.operation)) },
  { name: "tensor", key: (row) => row.name, cell: (row) => row.name },
  ...METRICS.slice(0, 1),
  { name: "golden", key: (row) => row.golden, cell: (row) => row.golden },
  { name: "reason", wide: true, key: (row) => row.reason, cell: (row) => h("div", { title: row.reason }, row.reason) },
  ...METRICS.slice(1),
  { name: "inherited", numeric: true, key: byNumber((row) => row.inherited), cell: (row) => (row.inherited === null ? "" : short(row.inherited)) },
  { name: "introduced", numeric: true, key: byNumber((row) => row.introduced), cell: (row) => (row.introduced === null ? "" : short(row.introduced)) },
].filter((column) => !/inherited|introduced/.test(column.name) || rows.some((row) => row[column.name] !== null));
const sorting = { column: 0, down: false, page: 0 };
let shown = [];

const haystacks = new Map();
function haystack(row) {
  if (!haystacks.has(row)) haystacks.set(row, [row.operation.op, row.operation.id, row.operation.type, row.name, row.label, row.golden, row.reason].join("\n").toLowerCase());
  return haystacks.get(row);
}
function filterRows() {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const column = COLUMNS[sorting.column], factor = sorting.down ? -1 : 1;
  shown = rows.filter((row) => state.verdicts.has(row.verdict) && inStep(row.operation) && inLayer(row.operation)
    && (!state.role || row.role === state.role) && words.every((word) => haystack(row).includes(word)));
  const keys = new Map(shown.map((row) => [row, column.key(row)]));
  shown.sort((a, b) => {
    const [left, right] = [keys.get(a), keys.get(b)];
    if (left === null || right === null) return left === right ? a.place - b.place : left === null ? 1 : -1;
    return left < right ? -factor : left > right ? factor : a.place - b.place;
  });
}
function drawTable() {
  const pages = Math.max(1, Math.ceil(shown.length / PAGE));
  sorting.page = Math.min(pages - 1, Math.max(0, sorting.page));
  by("table").tHead.replaceChildren(h("tr", {}, COLUMNS.map((column, place) => h("th", {
    scope: "col", class: column.numeric ? "n" : null, "aria-sort": place === sorting.column ? (sorting.down ? "descending" : "ascending") : null,
  }, h("button", { type: "button", "data-column": column.name, onclick: () => sortBy(place) }, say(column.name), place === sorting.column ? (sorting.down ? " \u25be" : " \u25b4") : "")))));
  const part = shown.slice(sorting.page * PAGE, (sorting.page + 1) * PAGE);
  by("table").tBodies[0].replaceChildren(...(part.length ? part.map((row) => h("tr", {
    class: row === state.row ? "chosen" : null, "data-place": row.place, "data-origin": row.operation.origin && row.role !== "in" ? "yes" : null, onclick: () => choose(row),
  }, COLUMNS.map((column) => h("td", { class: column.numeric ? "n" : column.wide ? "wide" : null }, column.cell(row)))))
    : [h("tr", {}, h("td", { class: "empty", colspan: COLUMNS.length }, rows.length ? say("No comparison fits these filters.") : say("Nothing was compared.")))]));
  const first = sorting.page * PAGE + 1;
  by("page").textContent = shown.length ? say("{0} to {1} of {2}", ...[first, first + part.length - 1, shown.length].map((count) => count.toLocaleString("en"))) : say("none");
  by("page-previous").disabled = sorting.page === 0;
  by("page-next").disabled = sorting.page >= pages - 1;
}
function sortBy(place) {
  const numeric = COLUMNS[place].numeric;
  sorting.down = place === sorting.column ? !sorting.down : Boolean(numeric);
  sorting.column = place;
  refilter();
  by("table").tHead.querySelectorAll("button")[place].focus();
}
function choose(row) {
  select(row);
  by("details").closest("section").scrollIntoView({ block: "nearest" });
}
function refilter() { sorting.page = 0; filterRows(); drawTable(); }
function turn(pages) { sorting.page += pages; drawTable(); }

views.push((changes) => {
  if (["search", "verdicts", "step", "layer", "role", "redraw"].some((name) => name in changes)) refilter();
  else if ("row" in changes) {
    const place = shown.indexOf(changes.row);
    if (place >= 0) sorting.page = Math.floor(place / PAGE);
    drawTable();
  }
});
