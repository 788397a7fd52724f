// The page of a summary is whole without this script, which finds, copies and recolours.

const lines = [...document.querySelectorAll("tbody tr[id]")];
const hays = new Map(lines.map((line) => [line, line.textContent.toLowerCase()]));
function find() {
  const words = by("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const line of lines) {
    line.hidden = !words.every((word) => hays.get(line).includes(word));
    shown += !line.hidden;
  }
  for (const card of document.querySelectorAll("section.card")) {
    const own = [...card.querySelectorAll("tbody tr[id]")];
    card.hidden = own.length > 0 && own.every((line) => line.hidden);
  }
  by("count").textContent = lines.length ? say("{0} of {1}", shown, lines.length) : "";
}

function text(marked) {
  const code = (value) => (marked ? `\`${value}\`` : value);
  const [verdict, sentence, evidence, about, next] = ["verdict", "sentence", "evidence", "about", "next"].map((id) => by(id).textContent.trim());
  const head = [marked ? `**${verdict}** ${sentence}` : `${verdict}: ${sentence}`, evidence, about].filter(Boolean);
  return [...head, ...(next ? [`${say("next")}: ${code(next)}`] : [])].join(marked ? "\n\n" : "\n");
}

const root = document.documentElement;
root.dataset.theme = preferredTheme();
by("theme").addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; });
by("copy-text").addEventListener("click", (event) => copy(event.target, text(false)));
by("copy-markdown").addEventListener("click", (event) => copy(event.target, text(true)));
by("copy-next").addEventListener("click", (event) => copy(event.target, by("next").textContent));
by("copy-next").hidden = !by("next").textContent;
by("search").addEventListener("input", find);
// A line that is linked to stands out: its address is the same in every run.
function mark() {
  for (const line of lines) line.classList.toggle("chosen", `#${line.id}` === location.hash);
}
window.addEventListener("hashchange", mark);
find();
mark();
root.dataset.ready = "yes";
