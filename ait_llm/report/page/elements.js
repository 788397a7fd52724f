// Elements are made of text nodes only: nothing from a dump is ever parsed as HTML.

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}
const h = (tag, properties, ...children) => build(document.createElement(tag), properties, children);
const s = (tag, properties, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
const fill = (id, ...children) => by(id).replaceChildren(...children.flat(Infinity).filter(Boolean));
// What a sentence has between backquotes is a name.
const withNames = (text) => { const parts = text.split("`"); return parts.length % 2 ? parts.map((part, place) => (place % 2 ? h("code", {}, part) : part)) : [text]; };
const badge = (verdict) => h("span", { class: `badge ${VERDICTS[verdict].toLowerCase()}` }, VERDICTS[verdict]);
const originBadge = () => h("span", { class: "badge origin", title: say("the error starts here") }, say("origin"));
const sign = (verdict) => h("span", { class: `sign ${verdict === undefined ? "muted" : VERDICTS[verdict].toLowerCase()}`, "aria-hidden": "true" },
  verdict === undefined ? "\u00b7" : SIGNS[verdict]);
function options(id, entries, onchange) {
  fill(id, entries.map(([value, text]) => h("option", { value }, text)));
  by(id).addEventListener("change", onchange);
}
