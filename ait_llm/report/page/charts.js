// Scales and colours that the curve and the heat map share.

const themeColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A logarithmic scale of errors; zero has a place of its own below the smallest error.
function errorScale(errors) {
  const positive = errors.filter((error) => error > 0 && Number.isFinite(error));
  let low = positive.reduce((a, b) => Math.min(a, b), Infinity);
  let high = positive.reduce((a, b) => Math.max(a, b), 0);
  if (!positive.length) { low = 1e-6; high = 1; }
  let first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  if (last - first < 2) { first -= 1; last += last - first < 2 ? 1 : 0; }
  const share = (error) => {
    if (error === 0) return 0;
    if (!Number.isFinite(error)) return 1;
    return 0.06 + 0.88 * Math.min(1, Math.max(0, (Math.log10(error) - first) / (last - first)));
  };
  const stride = Math.max(1, Math.ceil((last - first) / 6));
  const ticks = [];
  for (let exponent = first; exponent <= last; exponent += stride) ticks.push([Number(`1e${exponent}`), exponent === 0 ? "1" : `1e${exponent}`]);
  const hasZero = errors.includes(0), hasInfinite = errors.some((error) => !Number.isFinite(error));
  if (hasZero) ticks.push([0, "0"]);
  if (hasInfinite) ticks.push([Infinity, say("not finite")]);
  return { share, ticks };
}

// Colours of equal steps in lightness, from calm to alarming; printed grey they keep their order.
const RAMPS = {
  light: [[238, 243, 250], [178, 205, 233], [110, 160, 210], [250, 196, 92], [236, 120, 52], [190, 30, 45], [98, 8, 40]],
  dark: [[34, 43, 56], [39, 74, 112], [60, 115, 165], [176, 138, 52], [222, 120, 56], [240, 82, 82], [255, 176, 190]],
};
function heatColour(share) {
  const ramp = isDark() ? RAMPS.dark : RAMPS.light;
  const place = Math.min(0.9999, Math.max(0, share)) * (ramp.length - 1);
  const index = Math.floor(place), rest = place - index;
  const mixed = ramp[index].map((value, channel) => Math.round(value + (ramp[index + 1][channel] - value) * rest));
  return `rgb(${mixed.join(",")})`;
}

const LINES = { light: ["#2457c5", "#0f8a7e", "#a0522d", "#8a3fb0", "#5f6b00", "#c2185b"], dark: ["#7fa8ff", "#4fd0c0", "#e0a070", "#c99bf0", "#c5d04a", "#ff8fb8"] };
function lineColour(place, count) {
  const colours = isDark() ? LINES.dark : LINES.light;
  if (count <= colours.length) return colours[place];
  const share = place / (count - 1);
  return isDark() ? `hsl(${215 - 170 * share} 75% 68%)` : `hsl(${215 - 170 * share} 70% 42%)`;
}

// Names below a chart, slanted; the room that they take to the left of the first and below.
const SLANT = 38 * Math.PI / 180, LETTER = 6.1, LONGEST_NAME = 28;
function slantedRoom(names) {
  const length = (name) => LETTER * Math.min(LONGEST_NAME, name.length);
  const longest = names.reduce((size, name) => Math.max(size, length(name)), 0);
  const over = names.slice(0, 3).map((name, place) => 6 + Math.cos(SLANT) * length(name) - 20 * place);
  return { left: Math.max(74, ...over), bottom: 22 + Math.sin(SLANT) * longest };
}
const slanted = (name, x, y) => s("text", { transform: `translate(${x + 3},${y}) rotate(-38)`, "text-anchor": "end" },
  ellipsis(name, LONGEST_NAME), s("title", {}, name));

const ellipsis = (text, length) => (text.length > length ? `\u2026${text.slice(1 - length)}` : text);
