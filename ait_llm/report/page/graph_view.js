// How the graphs are moved and zoomed, and when they are drawn.

const ZOOMS = [0.2, 3];

function zoomGraph(zoom, around) {
  const { laid, svg } = graph, box = by("graph");
  if (!laid) return;
  const before = graph.zoom, [x, y] = around ? [around.x, around.y] : [(box.scrollLeft + box.clientWidth / 2) / before, (box.scrollTop + box.clientHeight / 2) / before];
  const [left, top] = [x * before - box.scrollLeft, y * before - box.scrollTop];
  graph.zoom = Math.min(ZOOMS[1], Math.max(ZOOMS[0], zoom));
  for (const [name, value] of Object.entries({ width: Math.round(laid.width * graph.zoom), height: Math.round(laid.height * graph.zoom), viewBox: `0 0 ${laid.width} ${laid.height}` })) svg.setAttribute(name, value);
  box.scrollLeft = x * graph.zoom - left;
  box.scrollTop = y * graph.zoom - top;
  graph.drawn = null;
  drawGraph();
}
function fitGraph() {
  if (graph.laid) zoomGraph(by("graph").clientWidth / graph.laid.width);
}
function showNode(node) {
  const box = by("graph"), [x, y] = [node.x * graph.zoom, node.y * graph.zoom], edge = 30;
  if (x < box.scrollLeft + edge) box.scrollLeft = x - edge;
  else if (x + BOX.width * graph.zoom > box.scrollLeft + box.clientWidth - edge) box.scrollLeft = x + BOX.width * graph.zoom - box.clientWidth + edge;
  if (y < box.scrollTop + edge) box.scrollTop = y - edge;
  else if (y + BOX.height * graph.zoom > box.scrollTop + box.clientHeight - edge) box.scrollTop = y + BOX.height * graph.zoom - box.clientHeight + edge;
  drawGraph();
}
// What is chosen, and what relates it, in the middle of the window.
function centreGraph(node) {
  const { laid } = graph, box = by("graph");
  if (!laid) return;
  const chosen = node || chosenVisible();
  box.scrollTop = (chosen.y + BOX.height / 2) * graph.zoom - box.clientHeight / 2;
  box.scrollLeft = (laid.left + laid.middle / 2) * graph.zoom - box.clientWidth / 2;
  graph.drawn = null;
  drawGraph();
}
// At first both programs are seen whole in width, if they can still be read then.
function startGraph() {
  if (graph.wanted) return;
  graph.wanted = true;
  layGraph();
  if (!graph.laid) return;
  zoomGraph(Math.min(1, Math.max(0.75, by("graph").clientWidth / graph.laid.width)));
  centreGraph();
}

function showSides(as) {
  sides.as = as;
  by("programs-as").value = as;
  by("graph-view").hidden = as !== "graph";
  by("graph").hidden = as !== "graph";
  by("list-view").hidden = as === "graph";
  if (as === "graph") { if (graph.wanted) layGraph(); } else filterLines();
}

function connectGraph() {
  const box = by("graph");
  by("programs-as").addEventListener("change", (event) => { showSides(event.target.value); change({}); });
  by("graph-in").addEventListener("click", () => zoomGraph(graph.zoom * 1.25));
  by("graph-out").addEventListener("click", () => zoomGraph(graph.zoom / 1.25));
  by("graph-fit").addEventListener("click", fitGraph);
  by("graph-centre").addEventListener("click", () => { layGraph(); centreGraph(); });
  box.addEventListener("scroll", drawGraph);
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomGraph(graph.zoom * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
  }, { passive: false });
  let held = null; // dragging moves both graphs
  box.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0 && !event.target.closest(".hit")) held = [event.clientX + box.scrollLeft, event.clientY + box.scrollTop];
  });
  window.addEventListener("pointermove", (event) => {
    if (held) [box.scrollLeft, box.scrollTop] = [held[0] - event.clientX, held[1] - event.clientY];
  });
  window.addEventListener("pointerup", () => { held = null; });
  new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) startGraph(); }, { rootMargin: "300px" }).observe(by("programs"));
}
// On paper the graphs show what stands around the chosen operation, as wide as the paper.
function printGraph() {
  startGraph();
  const { laid, svg } = graph;
  if (!laid || by("graph").hidden) return;
  const chosen = chosenVisible();
  const tall = Math.min(laid.height, laid.width * 0.8), top = Math.max(0, Math.min(chosen.y - tall / 2, laid.height - tall));
  paintGraph(svg, [top, top + tall]);
  svg.setAttribute("viewBox", `0 ${top} ${laid.width} ${tall}`);
}
views.push((changes) => {
  if (!graph.wanted) return;
  const isShown = (row) => graph.laid && graph.laid.visible.some((node) => node.rows.includes(row) || [...outer(node)].some((group) => group.rows.includes(row)));
  if (["step", "layer", "redraw"].some((name) => name in changes) || (changes.row && !isShown(changes.row))) return layGraph();
  if (changes.row && graph.laid) {
    graph.drawn = null;
    drawGraph();
    showNode(chosenVisible());
  }
});
