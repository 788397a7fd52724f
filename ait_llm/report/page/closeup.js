// One failing tensor closely: where its errors are, how its values are spread, what stands around the worst.

const CLOSEUPS = new Map(source.closeups.map(([row, shape, cells, errors, low, high, goldenCounts, myCounts, worst, goldenWindows, myWindows]) => [row, {
  shape, cells, codes: Uint8Array.from(atob(errors), (char) => char.charCodeAt(0)), low: Number(low), high: Number(high), goldenCounts, myCounts,
  worst, golden: goldenWindows.map(Number), mine: myWindows.map(Number),
}]));
const WINDOW = [3, 5], DECADES = [-9, 3];

const errorOfCode = (code) => (code === 0 ? 0 : code === 255 ? Infinity : 10 ** (DECADES[0] + ((code - 1) / 253) * (DECADES[1] - DECADES[0])));

// The element of that number in row-major order.
function placeOf(number, shape) {
  const place = [];
  for (const length of [...shape].reverse()) { place.unshift(number % length); number = Math.floor(number / length); }
  return `[${place.join(", ")}]`;
}

function errorMap(closeup) {
  const { cells: [down, across], codes, shape } = closeup;
  const columns = shape.length ? shape.at(-1) : 1, rows = shape.slice(0, -1).reduce((a, b) => a * b, 1);
  const tall = Math.max(5, Math.min(16, Math.floor(200 / down))), wide = Math.max(4, Math.min(16, Math.floor(330 / across)));
  const scale = errorScale([...codes].map(errorOfCode));
  const said = h("p", { class: "hint", "aria-live": "polite" }, say("over golden's root mean square; arrow keys move"));
  const span = (name, place, count, length) => {
    const first = Math.ceil(place * length / count), last = Math.max(first, Math.ceil((place + 1) * length / count) - 1);
    return first === last ? say(`${name} {0}`, first) : say(`${name}s {0} to {1}`, first, last);
  };
  const tell = (row, column) => {
    const top = placeOf(Math.ceil(row * rows / down), shape.slice(0, -1));
    said.textContent = `${span("row", row, down, rows)}${shape.length > 2 ? ` (${say("from {0}", top)})` : ""}, ${span("channel", column, across, columns)}: ${short(errorOfCode(codes[row * across + column]))}`;
    for (const [name, value] of Object.entries({ x: column * wide, y: row * tall, visibility: "visible" })) cursor.setAttribute(name, value);
    at = [row, column];
  };
  let at = null;
  const cursor = s("rect", { class: "cell-cursor", width: wide, height: tall, visibility: "hidden", "pointer-events": "none" });
  const parts = [];
  for (let row = 0; row < down; row += 1) {
    for (let column = 0; column < across;) { // equal neighbours are one rectangle
      const code = codes[row * across + column];
      let end = column + 1;
      while (end < across && codes[row * across + end] === code) end += 1;
      parts.push(s("rect", { x: column * wide, y: row * tall, width: (end - column) * wide, height: tall, fill: heatColour(code === 0 ? 0 : scale.share(errorOfCode(code))) }));
      column = end;
    }
  }
  const from = (event) => {
    const box = svg.getBoundingClientRect();
    const place = (part, size, count) => Math.min(count - 1, Math.max(0, Math.floor(part / size * count)));
    return [place(event.clientY - box.top, box.height, down), place(event.clientX - box.left, box.width, across)];
  };
  const svg = s("svg", {
    class: "error-map", width: across * wide, height: down * tall, viewBox: `0 0 ${across * wide} ${down * tall}`, role: "application", tabindex: 0,
    "aria-label": say("Errors of this tensor, rows down and channels across: arrow keys move"), onmousemove: (event) => tell(...from(event)),
    onkeydown: (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!move) return;
      event.preventDefault();
      const [row, column] = at || [0, -1 * (move[1] > 0)];
      tell(Math.min(down - 1, Math.max(0, row + move[0])), Math.min(across - 1, Math.max(0, column + move[1])));
    },
  }, parts, cursor);
  return h("div", {}, h("h3", {}, rows === 1
    ? say("Where it differs: one row, {0} channels across", columns.toLocaleString("en"))
    : say("Where it differs: {0} rows down, {1} channels across", rows.toLocaleString("en"), columns.toLocaleString("en"))), svg, said);
}

function valueHistogram(closeup) {
  const { goldenCounts, myCounts, low, high } = closeup;
  const most = Math.max(...goldenCounts, ...myCounts);
  if (!most) return null;
  const [width, height] = [320, 90], bar = width / goldenCounts.length;
  const y = (count) => height - (count ? Math.max(2, (height - 4) * Math.log1p(count) / Math.log1p(most)) : 0);
  const outline = (counts) => `M0 ${height}${counts.map((count, place) => `V${y(count).toFixed(1)}H${((place + 1) * bar).toFixed(1)}`).join("")}V${height}`;
  return h("div", {}, h("h3", {}, say("Values")),
    s("svg", { class: "histogram", width, height: height + 18, viewBox: `0 0 ${width} ${height + 18}`, role: "img", "aria-label": say("Values of both sides from {0} to {1}", short(low), short(high)) },
      s("path", { class: "value-golden", d: outline(goldenCounts) }), s("path", { class: "value-mine", d: outline(myCounts) }),
      s("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }),
      s("text", { x: 0, y: height + 14 }, short(low)), s("text", { x: width, y: height + 14, "text-anchor": "end" }, short(high))),
    h("p", { class: "muted legend" }, h("span", { class: "key-golden" }, say("golden")), h("span", { class: "key-mine" }, say("mine")), say("heights grow with the logarithm of the number")));
}

function worstElements(closeup) {
  const { worst, shape } = closeup;
  if (!worst.length) return null;
  const size = WINDOW[0] * WINDOW[1], middle = Math.floor(size / 2);
  const columns = shape.length ? shape.at(-1) : 1, rows = shape.slice(0, -1).reduce((a, b) => a * b, 1);
  const isInside = (number, place) => { // of a window: beyond the edges there is nothing, which is no NaN
    const row = Math.floor(number / columns) + Math.floor(place / WINDOW[1]) - Math.floor(WINDOW[0] / 2);
    const column = number % columns + place % WINDOW[1] - Math.floor(WINDOW[1] / 2);
    return row >= 0 && row < rows && column >= 0 && column < columns;
  };
  const windows = worst.map((_, order) => [closeup.golden, closeup.mine].map((side) => side.slice(order * size, (order + 1) * size)));
  const around = h("div", { class: "around" });
  const show = (order) => {
    around.replaceChildren(...[say("golden"), say("mine")].map((name, side) => h("table", { class: "small" }, h("caption", {}, name),
      h("tbody", {}, Array.from({ length: WINDOW[0] }, (_, row) => h("tr", {}, Array.from({ length: WINDOW[1] }, (__, column) => {
        const place = row * WINDOW[1] + column;
        const [theirs, ours] = [windows[order][0][place], windows[order][1][place]];
        const differs = isInside(worst[order], place) && Math.abs(theirs - ours) > 0.01 * Math.abs(theirs);
        return h("td", { class: `n${place === middle ? " middle" : ""}${side && differs ? " bad" : ""}` }, isInside(worst[order], place) ? short(windows[order][side][place]) : "");
      })))))));
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === order)));
  };
  const buttons = worst.map((number, order) => h("button", { type: "button", onclick: () => show(order) }, placeOf(number, shape)));
  show(0);
  return h("div", {}, h("h3", {}, say("Worst elements and their neighbours")), h("div", { class: "steps", role: "group", "aria-label": say("worst elements") }, buttons), around);
}

function closeupOf(row) {
  const closeup = CLOSEUPS.get(row.index);
  return closeup ? h("div", { class: "closeup" }, errorMap(closeup), h("div", {}, valueHistogram(closeup), worstElements(closeup))) : null;
}
