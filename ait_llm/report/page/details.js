// One operator: its tensors, their numbers, where the errors are and how large.

const numberRow = (name, ...cells) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", { class: "n" }, cell)));

function sidesTable(golden, mine) {
  const line = (name, get) => {
    const [left, right] = [golden, mine].map((side) => (side ? get(side) : ""));
    return left || right ? h("tr", {}, h("th", { scope: "row" }, say(name)), h("td", {}, left), h("td", {}, right)) : null;
  };
  const statistics = ["max", "min", "mean", "norm", "NaN", "Inf"].map((name) => line(name, (side) => (side.summary ? short(side.summary[name]) : "")));
  return h("table", { class: "small" }, h("thead", {}, h("tr", {}, h("th", {}), h("th", {}, say("golden")), h("th", {}, say("mine")))),
    h("tbody", {}, line("type", (side) => side.dtype), line("shape", (side) => side.shape), line("taken", (side) => side.view), statistics, line("file", (side) => side.path)));
}

function metricsTable(row) {
  const known = source.metrics.map((name, place) => [name, row.values[place]]).filter(([name, value]) => value !== null || row.missing[name]);
  for (const name of Object.keys(row.tolerance)) { // limits of what is no metric of the report
    if (!source.metrics.includes(name) && row.needed[name] !== undefined) known.push([name, row.needed[name]]);
  }
  if (!known.length) return null;
  return h("table", { class: "small" },
    h("thead", {}, h("tr", {}, h("th", {}, say("metric")), h("th", { class: "n" }, say("value")), h("th", { class: "n" }, say("limit")), h("th", { class: "n" }, say("would pass")))),
    h("tbody", {}, known.map(([name, value]) => {
      const limit = row.tolerance[name], needed = row.needed[name];
      const missed = limit !== undefined && needed > limit;
      if (value === null) return h("tr", {}, h("th", { scope: "row" }, name), h("td", { colspan: 3, class: "muted" }, `n/a: ${row.missing[name]}`));
      return numberRow(name, h("span", { class: missed ? "bad" : null }, short(value)), limit === undefined ? "" : short(limit), needed === undefined ? "" : needed === Infinity ? say("none") : short(needed));
    })));
}

function histogram(row) {
  const counts = row.histogram;
  if (!counts || !counts.some(Boolean)) return null;
  const power = (edge) => `1e${Math.round(Math.log10(edge))}`;
  const edges = source.edges;
  const names = [say("equal"), `< ${power(edges[0])}`, ...edges.slice(1).map((edge, place) => say("{0} to {1}", power(edges[place]), power(edge))), `\u2265 ${power(edges.at(-1))}`, say("not finite")];
  const total = counts.reduce((a, b) => a + b, 0), most = Math.max(...counts);
  const [bar, height, base] = [24, 92, 96];
  const y = (count) => (count ? Math.max(2, height * Math.log1p(count) / Math.log1p(most)) : 0);
  const width = counts.length * bar;
  return h("div", {}, h("h3", {}, say("Histogram of relative errors")),
    s("svg", { class: "histogram", width, height: base + 30, viewBox: `0 0 ${width} ${base + 30}`, role: "img", "aria-label": counts.map((count, place) => (count ? `${names[place]}: ${count}` : "")).filter(Boolean).join(", ") },
      counts.map((count, place) => s("rect", { class: "bars", x: place * bar + 1, y: base - y(count), width: bar - 3, height: y(count), rx: 1.5 },
        s("title", {}, `${names[place]}: ${plural(count, "element")}, ${(100 * count / total).toPrecision(3)} %`))),
      s("line", { class: "axis", x1: 0, x2: width, y1: base, y2: base }),
      [[0, "0"], [4, "1e-8"], [8, "1e-4"], [12, "1"], [15, "Inf"]].map(([place, text]) => s("text", { x: place * bar + (place === 15 || place === 0 ? bar / 2 : 0), y: base + 14, "text-anchor": "middle" }, text))),
    h("p", { class: "muted" }, say(sampled(row, total) ? "A sample of {0}; bars grow with the logarithm of their number" : "{0}; bars grow with the logarithm of their number", plural(total, "element"))));
}

// Large tensors are counted in a sample; shapes are texts such as [11, 64].
function sampled(row, total) {
  const side = sideOf(row.goldenRaw);
  const size = side ? side.shape.slice(1, -1).split(",").filter((part) => part.trim()).reduce((a, b) => a * Number(b), 1) : 0;
  return total < size && size > 65536;
}

function tensorCard(row) {
  const golden = sideOf(row.goldenRaw), mine = sideOf(row.mineRaw);
  const index = (place) => `[${place.join(", ")}]`;
  const facts = [];
  if (row.worst && row.worstValues && !(row.firstBad && row.worstValues[0] === row.worstValues[1])) facts.push(say("Largest absolute error at {0}: golden {1}, mine {2}.", index(row.worst), short(row.worstValues[0]), short(row.worstValues[1])));
  if (row.firstBad) facts.push(say("First element that differs where one is not finite: {0}.", index(row.firstBad)));
  const shares = [[row.inherited, "{0} inherited from the inputs"], [row.introduced, "{0} introduced here"]].filter(([value]) => value !== null);
  if (shares.length) facts.push(say("Relative error: {0}.", shares.map(([value, text]) => say(text, short(value))).join(say(", "))));
  if (row.rule) facts.push(say(row.why ? "Matched with {0} by {1}, confidence {2}: {3}." : "Matched with {0} by {1}, confidence {2}.", row.golden, row.rule, short(row.confidence), row.why));
  const roles = { in: say("input"), out: say("output"), weight: say("weight"), file: say("file") };
  return h("div", { class: `tensor${row === state.row ? " chosen" : ""}` },
    h("h3", {}, badge(row.verdict), " ", row.name || "tensor", row.label ? ` (${row.label})` : "", " ", h("span", { class: "muted" }, roles[row.role] || "")),
    row.reason && h("p", { class: `reason${row.verdict === FAIL ? " bad" : ""}` }, row.reason),
    facts.map((fact) => h("p", { class: "reason muted" }, fact)),
    closeupOf(row),
    h("div", { class: "pair" }, h("div", {}, metricsTable(row), histogram(row)), sidesTable(golden, mine)));
}

function drawDetails() {
  const operation = state.operation;
  if (!operation) return fill("details", h("p", { class: "muted" }, say("Choose an operator in the tree, the charts or the table.")));
  const twins = operations.filter((o) => o.op === operation.op && o.id === operation.id && o.mine === operation.mine && o.device === operation.device && o.pid === operation.pid);
  const ordered = [...operation.rows].sort((a, b) => (a.role === "out" ? 0 : 1) - (b.role === "out" ? 0 : 1));
  const facts = [operation.type, operation.id && `id ${operation.id}`, say("token {0}", operation.step), operation.call && say("call {0}", operation.call),
    operation.pid >= 0 && say("process {0}", `${operation.device}_${operation.pid}`), !operation.mine && say("golden side only")];
  fill("details",
    h("div", {}, badge(operation.verdict), " ", h("b", {}, operation.op), " ", operation.origin && originBadge()),
    h("p", { class: "muted" }, facts.filter(Boolean).join(" \u00b7 ")),
    operation.origin && h("p", { class: "reason" }, withNames(operation.origin.evidence), operation.origin.certain ? "" : say(" It may also have started at {0}.", operation.origin.candidates.join(", "))),
    operation.origin && operation.origin.kind && h("p", { class: "reason kind" }, say("Kind of bug: {0}", operation.origin.kind), operation.origin.kind_evidence ? withNames(`: ${operation.origin.kind_evidence}`) : ""),
    twins.length > 1 && h("div", { class: "steps", role: "group", "aria-label": say("executions") }, twins.slice(0, 400).map((twin) => h("button", {
      type: "button", "aria-pressed": String(twin === operation), title: VERDICTS[twin.verdict],
      onclick: () => change({ operation: twin, row: twin.rows.find((row) => row.role !== "in") || twin.rows[0] }),
    }, `${SIGNS[twin.verdict]} ${say("token {0}", twin.step)}${twin.call ? ` ${say("call {0}", twin.call)}` : ""}`))),
    ordered.slice(0, 60).map(tensorCard),
    ordered.length > 60 && h("p", { class: "muted" }, say("and {0} more in the table", ordered.length - 60)));
  const chosen = by("details").querySelector(".tensor.chosen");
  by("details").scrollTop = chosen && chosen !== by("details").querySelector(".tensor") ? chosen.offsetTop - by("details").offsetTop - 8 : 0;
}
views.push((changes) => {
  if ("operation" in changes || "row" in changes) drawDetails();
});
