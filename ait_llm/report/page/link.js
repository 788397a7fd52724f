// What is shown is in the address, so that it can be sent on; and what the page says can be copied.

const CHOICES = { token: "step", layer: "layer", search: "search", role: "role" };

function addressOf() {
  const parts = new URLSearchParams();
  const { operation, row } = state;
  if (operation) {
    for (const [name, value] of Object.entries({ op: operation.op, id: operation.id, step: operation.step, call: operation.call || "" })) {
      if (value !== "") parts.set(name, value);
    }
    if (row && row.operation === operation) parts.set("tensor", `${row.role} ${row.name}`);
  }
  if (source.metrics[state.metric] !== source.headline) parts.set("metric", source.metrics[state.metric]);
  for (const [name, of] of Object.entries(CHOICES)) {
    if (state[of] !== null && state[of] !== "") parts.set(name, state[of]);
  }
  if (state.verdicts.size < VERDICTS.length) parts.set("verdicts", [...state.verdicts].map((verdict) => VERDICTS[verdict]).join(" "));
  if (sides.as !== "graph") parts.set("programs", sides.as);
  for (const [group, isOpen] of [...graph.byHand].slice(-LONGEST_LIST)) parts.append(isOpen ? "open" : "closed", group);
  return parts.toString();
}
const LONGEST_LIST = 60;  // of groups: an address of some thousand characters is taken everywhere
const showAddress = () => { if (document.documentElement.dataset.ready) history.replaceState(null, "", `#${addressOf()}`); };

// What an address asks for; nothing where it names nothing that this report has.
function asked(address) {
  const parts = new URLSearchParams(address), changes = {};
  const is = (name, value) => !parts.has(name) || parts.get(name) === String(value);
  const metric = source.metrics.indexOf(parts.get("metric"));
  if (metric >= 0) changes.metric = metric;
  if (STEPS.includes(Number(parts.get("token") || NaN))) changes.step = Number(parts.get("token"));
  if (LAYERS.includes(parts.get("layer"))) changes.layer = parts.get("layer");
  if (parts.get("search")) changes.search = parts.get("search");
  if (["out", "in", "weight"].includes(parts.get("role"))) changes.role = parts.get("role");
  const verdicts = (parts.get("verdicts") || "").split(" ").map((name) => VERDICTS.indexOf(name)).filter((verdict) => verdict >= 0);
  if (verdicts.length) changes.verdicts = new Set(verdicts);
  const found = parts.has("op") && operations.find((o) => o.op === parts.get("op") && is("id", o.id) && is("step", o.step) && is("call", o.call || ""));
  if (found) Object.assign(changes, { operation: found, row: found.rows.find((row) => is("tensor", `${row.role} ${row.name}`)) || found.rows[0] });
  return changes;
}

// Groups of the graphs that somebody opened or closed.
function askedGroups() {
  const parts = new URLSearchParams(location.hash.slice(1));
  return new Map([["open", true], ["closed", false]].flatMap(([name, isOpen]) => parts.getAll(name).slice(-LONGEST_LIST).map((group) => [group, isOpen])));
}
const askedSides = () => (new URLSearchParams(location.hash.slice(1)).get("programs") === "list" ? "list" : "graph");

function showChoices() {
  by("metric").value = state.metric;
  by("token").value = state.step === null ? "" : state.step;
  by("layer").value = state.layer === null ? "" : LAYERS.indexOf(state.layer);
  by("search").value = state.search;
  by("role").value = state.role;
  for (const box of by("verdicts").querySelectorAll("input")) box.checked = state.verdicts.has(Number(box.value));
}

// The head of the page, for a message or a ticket.
function summary(marked) {
  const said = ["sentence", "evidence", "kind", "next"].map((id) => (by(id).dataset.text || by(id).textContent).trim().replace(/\s+/g, " "));
  const [sentence, evidence, kind, next] = said;
  const sides = [...document.querySelectorAll(".sides div")].map((side) => [side.children[0].textContent, side.children[1].textContent]);
  const fence = "`".repeat(1 + Math.max(0, ...(sides.flat().join(" ").match(/`+/g) || []).map((ticks) => ticks.length)));
  const code = (text) => (marked ? `${fence}${text}${fence}` : text);
  const verdict = by("verdict").textContent;
  const head = [marked ? `**${verdict}** ${sentence}` : `${verdict}: ${sentence}`, evidence, kind].filter(Boolean);
  const list = [...sides, ...(next ? [[say("next"), next]] : [])].map(([name, text]) => `${name}: ${code(text)}`);
  return marked ? [...head, list.map((line) => `- ${line}`).join("\n")].join("\n\n") : [...head, ...list].join("\n");
}

function connectLinks() {
  by("copy-text").addEventListener("click", (event) => copy(event.target, summary(false)));
  by("copy-markdown").addEventListener("click", (event) => copy(event.target, summary(true)));
  by("copy-link").addEventListener("click", (event) => copy(event.target, `${location.href.split("#")[0]}#${addressOf()}`));
  by("copy-next").addEventListener("click", (event) => copy(event.target, by("next").textContent));
  by("copy-next").hidden = !by("next").textContent;
  window.addEventListener("hashchange", () => { graph.byHand = askedGroups(); change({ ...asked(location.hash.slice(1)), redraw: true }); showChoices(); showSides(askedSides()); });
}
views.push(() => { by("show-all").hidden = state.step === null && state.layer === null; showAddress(); });
