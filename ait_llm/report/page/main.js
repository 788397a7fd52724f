// Puts the page together.

function drawHead() {
  const counts = [0, 0, 0, 0];
  for (const row of rows) counts[row.verdict] += 1;
  const left = source.meta.left_out;
  fill("tiles", h("div", { class: "tile" }, h("b", {}, rows.length.toLocaleString("en")), h("span", {}, rows.length === 1 ? say("tensor") : say("tensors"))),
    WORST_FIRST.filter((verdict) => counts[verdict]).map((verdict) => h("button", {
      type: "button", class: `tile is-${VERDICTS[verdict].toLowerCase()}`, title: say("show only {0}", VERDICTS[verdict]),
      onclick: () => { onlyVerdicts([verdict]); by("comparisons").scrollIntoView(); },
    }, h("b", {}, counts[verdict].toLocaleString("en")), h("span", {}, VERDICTS[verdict]))));
  const notices = [];
  if (source.meta.partial) notices.push(say("The comparison was interrupted; this is a part of the result."));
  if (left) notices.push(say("{0} comparisons that would not fit into a browser are left out, those that pass first; the csv and jsonl reports have all.", left.toLocaleString("en")));
  fill("notices", notices.map((text) => h("p", { class: "notice" }, text)));
  for (const id of ["evidence", "kind"]) {
    by(id).dataset.text = by(id).textContent;
    fill(id, withNames(by(id).textContent));
  }
  by("footer").textContent = say("{0}. This page loads nothing and sends nothing.", source.meta.tool);
}

function drawMissing() {
  if (!source.not_compared.length && !source.problems.length) return;
  by("missing").hidden = false;
  fill("missing-list", h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, say("what")), h("th", {}, say("tensors")), h("th", {}, say("why")), h("th", {}, say("such as")))),
    h("tbody", {}, source.not_compared.map(([reason, count, verdict, example]) => h("tr", {}, h("td", {}, badge(VERDICTS.indexOf(verdict))), h("td", {}, count.toLocaleString("en")), h("td", {}, reason), h("td", { class: "muted" }, example))),
      source.problems.map(([side, text, decides]) => h("tr", {}, h("td", {}, say(side)), h("td", {}), h("td", {}, text), h("td", { class: "muted" }, decides ? say("makes the result incomplete") : ""))))));
}

function onlyVerdicts(verdicts) {
  for (const box of by("verdicts").querySelectorAll("input")) box.checked = verdicts.includes(Number(box.value));
  change({ verdicts: new Set(verdicts) });
}

function connect() {
  options("metric", source.metrics.map((name, place) => [place, errorName(name)]), (event) => change({ metric: Number(event.target.value) }));
  by("metric").value = state.metric;
  options("token", [["", say("all")], ...STEPS.map((step) => [step, step])], (event) => change({ step: event.target.value === "" ? null : Number(event.target.value) }));
  options("layer", [["", say("all")], ...LAYERS.map((layer, place) => [place, layer])], (event) => change({ layer: event.target.value === "" ? null : LAYERS[Number(event.target.value)] }));
  options("heat-by", Object.entries(HEAT_KINDS).map(([kind, [text]]) => [kind, text]), drawHeat);
  by("heat-by").value = STEPS.length > 1 ? "layer-token" : LAYERS.length > 1 ? "operator-layer" : "operator-token";
  by("curve-by").value = LAYERS.length > 2 ? "layer" : "operation";
  by("curve-by").addEventListener("change", drawCurve);
  fill("verdicts", WORST_FIRST.map((verdict) => h("label", {}, h("input", {
    type: "checkbox", value: verdict, checked: true,
    onchange: () => change({ verdicts: new Set([...by("verdicts").querySelectorAll("input:checked")].map((box) => Number(box.value))) }),
  }), VERDICTS[verdict])));
  let typing = 0;
  by("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => change({ search: by("search").value }), 120); });
  by("role").addEventListener("change", (event) => change({ role: event.target.value }));
  by("reset").addEventListener("click", () => {
    change({ search: "", role: "", step: null, layer: null, verdicts: new Set(WORST_FIRST), redraw: true });
    showChoices();
  });
  by("page-previous").addEventListener("click", () => turn(-1));
  by("page-next").addEventListener("click", () => turn(1));
  by("tree-failed").addEventListener("change", (event) => change({ onlyFailed: event.target.checked }));
  by("theme").addEventListener("click", () => paint(isDark() ? "light" : "dark"));
  by("show-all").addEventListener("click", () => { change({ step: null, layer: null }); showChoices(); });
  const screen = { theme: null }; // paper is light
  window.addEventListener("beforeprint", () => { screen.theme ||= document.documentElement.dataset.theme; paint("light"); printGraph(); });
  window.addEventListener("afterprint", () => { if (screen.theme) paint(screen.theme); screen.theme = null; layGraph(); });
  let resizing = 0;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => { drawCurve(); drawHeat(); drawLedger(); graph.drawn = null; drawGraph(); }, 150); });
}
function paint(theme) {
  document.documentElement.dataset.theme = theme;
  drawCurve();
  drawHeat();
  drawDetails(); // its maps have colours of the theme, too
}

connect();
connectLinks();
connectGraph();
drawHead();
drawMissing();
document.documentElement.dataset.theme = preferredTheme();
const origin = source.origins.find((item) => item.operation)?.operation;
const start = origin || operations.find((operation) => operation.verdict === FAIL) || operations.find((operation) => operation.mine) || operations[0];
if (!origin && tree.children.size === 1) expanded.add(tree.children.values().next().value);
graph.byHand = askedGroups();
change({
  redraw: true, ...(start ? { operation: start, row: start.rows.find((row) => row.role !== "in") || start.rows[0] } : { operation: null }),
  ...asked(location.hash.slice(1)),
});
showChoices();
showSides(askedSides());
document.documentElement.dataset.ready = "yes";
