// The error along the model: one line for each token, from the first layer or operator to the last.

const MAX_DOTS = 3000, MAX_LINES = 60;

function curvePoints(kind) {
  const measured = operations.filter((operation) => (kind === "layer" ? operation.mine && inStep(operation) && isLayer.has(operation.layer) : isDrawn(operation) && inLayer(operation)));
  const names = kind === "layer" ? LAYERS : distinct(measured.map((o) => `${o.op}\n${o.call}`));
  const places = new Map(names.map((name, place) => [name, place]));
  const lines = new Map();
  for (const operation of measured) {
    const place = places.get(kind === "layer" ? operation.layer : `${operation.op}\n${operation.call}`);
    for (const row of operation.rows) {
      if (row.role === "in") continue;
      const error = errorOf(row, state.metric);
      if (error === null) continue;
      if (!lines.has(operation.step)) lines.set(operation.step, new Map());
      const line = lines.get(operation.step), old = line.get(place);
      if (!old || error > old.error) line.set(place, { error, row, failed: row.verdict === FAIL || Boolean(old && old.failed) });
      else if (row.verdict === FAIL) old.failed = true;
    }
  }
  return { names: names.map((name) => name.split("\n")[0]), places, lines: [...lines].sort((a, b) => a[0] - b[0]) };
}

function drawCurve() {
  const kind = by("curve-by").value;
  const { names, places, lines } = curvePoints(kind);
  const points = lines.flatMap(([, line]) => [...line.values()]);
  if (!points.length) return fill("curve", h("p", { class: "muted" }, say("No output was measured with this metric in this selection.")));
  const limits = distinct(points.map((point) => point.row.tolerance[source.metrics[state.metric]]).filter((limit) => limit > 0))
    .map((limit) => (counted(source.metrics[state.metric]) ? 1 - limit : limit)).slice(0, 3);
  const scale = errorScale([...points.map((point) => point.error), ...limits]);
  const [right, top, { left, bottom }] = [16, 18, slantedRoom(names)];
  const room = Math.max(280, by("curve").clientWidth - 28);
  const width = Math.max(room, Math.min(8000, left + right + names.length * (names.length > 200 ? 4 : 7)));
  const height = 232 + bottom;
  const x = (place) => left + (names.length < 2 ? 0.5 : place / (names.length - 1)) * (width - left - right);
  const y = (error) => top + (1 - scale.share(error)) * (height - top - bottom);
  const parts = [];
  for (const [value, text] of scale.ticks) {
    parts.push(s("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  const every = Math.max(1, Math.ceil(names.length / ((width - left - right) / 26)));
  names.forEach((name, place) => {
    if (place % every) return;
    parts.push(slanted(name, x(place), height - bottom + 12));
  });
  for (const limit of limits) {
    parts.push(s("line", { class: "limit", x1: left, x2: width - right, y1: y(limit), y2: y(limit) }, s("title", {}, say("limit {0}", short(limit)))));
  }
  if (limits.length === 1) parts.push(s("text", { x: width - right, y: y(limits[0]) - 4, "text-anchor": "end" }, say("limit {0}", short(limits[0]))));
  for (const origin of source.origins) {
    const operation = origin.operation;
    const place = operation && inStep(operation) ? places.get(kind === "layer" ? operation.layer : `${operation.op}\n${operation.call}`) : undefined;
    if (place === undefined) continue;
    const end = x(place) > width - 70;
    parts.push(s("line", { class: "mark", x1: x(place), x2: x(place), y1: top - 6, y2: height - bottom }),
      s("text", { class: "strong", x: x(place) + (end ? -4 : 4), y: top + 2, "text-anchor": end ? "end" : "start" }, say("origin"), s("title", {}, titleOf(operation))));
  }
  const drawn = lines.slice(0, MAX_LINES);
  drawn.forEach(([step, line], order) => {
    const sorted = [...line].sort((a, b) => a[0] - b[0]);
    const path = sorted.map(([place, point], i) => `${i ? "L" : "M"}${x(place).toFixed(1)} ${y(point.error).toFixed(1)}`).join("");
    parts.push(s("path", { d: path, fill: "none", stroke: lineColour(order, drawn.length), "stroke-width": 1.6, "data-step": step }));
  });
  let dots = 0;
  drawn.forEach(([step, line], order) => {
    for (const [place, point] of line) {
      if (!point.failed && points.length > MAX_DOTS) continue;
      if (++dots > 2 * MAX_DOTS) break;
      parts.push(s("circle", {
        class: `hit${point.failed ? " dot-fail" : ""}`, cx: x(place), cy: y(point.error), r: point.failed ? 3.6 : 2.6,
        fill: point.failed ? null : lineColour(order, drawn.length), onclick: () => select(point.row),
      }, s("title", {}, `${names[place]}\n${say("token {0}: {1} at {2}", step, short(point.error), `${titleOf(point.row.operation)} ${point.row.name}`)}`)));
    }
  });
  const legend = drawn.length > 1 && h("div", { class: "legend" }, drawn
    .map(([step], order) => [step, order])
    .filter(([, order]) => drawn.length <= 8 || order === 0 || order === drawn.length - 1)
    .map(([step, order]) => h("span", {}, s("svg", { width: 18, height: 8, "aria-hidden": "true" },
      s("line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke: lineColour(order, drawn.length), "stroke-width": 2.5 })), say("token {0}", step))),
    lines.length > drawn.length && h("span", {}, say("the first {0} of {1} tokens", MAX_LINES, lines.length)));
  const failed = points.filter((point) => point.failed).length;
  fill("curve", s("svg", {
    id: "curve-svg", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": say("{0} of {1}, {2}; beyond the limit: {3}", errorName(source.metrics[state.metric]), kind === "layer" ? plural(names.length, "layer") : plural(names.length, "operator"), plural(lines.length, "token"), failed),
  }, parts), legend);
}
views.push((changes) => {
  if ("metric" in changes || "step" in changes || "layer" in changes || "redraw" in changes) drawCurve();
});
