// Reads the report back from its compact form; page_data.py is the other side of this contract.

const texts = source.texts;
const [PASS, FAIL, SKIPPED, ERROR] = [0, 1, 2, 3];
const VERDICTS = source.verdicts;
const SIGNS = ["\u2713", "\u2717", "\u2013", "!"];
const WORST_FIRST = [FAIL, ERROR, SKIPPED, PASS];
const LOUDEST = [FAIL, ERROR, PASS, SKIPPED]; // of a graph: what was skipped in it does not hide what passed

const toNumber = (value) => (value === null || value === undefined ? null : Number(value));
const numbersOf = (object) => Object.fromEntries(Object.entries(object || {}).map(([key, value]) => [key, Number(value)]));

function sideOf(raw) {
  if (!raw) return null;
  const [dtype, shape, path, view] = raw.slice(0, 4).map((place) => texts[place]);
  const summary = raw.length > 4
    ? { max: toNumber(raw[4]), min: toNumber(raw[5]), mean: toNumber(raw[6]), norm: toNumber(raw[7]), NaN: raw[8], Inf: raw[9] }
    : null;
  return { dtype, shape, path, view, summary };
}

// Execution ranks are told as differences to the one before.
const summing = (sum = 0) => (step) => (step === null ? -1 : (sum += step));
const [myOrder, goldenOrder] = [summing(), summing()];
const operations = source.operations.map((raw, index) => ({
  index, op: texts[raw[0]], id: texts[raw[1]], type: texts[raw[2]], step: raw[3], call: raw[4], device: raw[5],
  pid: raw[6], layer: texts[raw[7]], verdict: raw[8], mine: raw[9] === 1, order: myOrder(raw[10]), rows: [], origin: null,
}));

const rows = source.rows.map((raw, index) => {
  const operation = operations[raw[0]];
  const row = {
    index, operation, place: raw[1], name: texts[raw[2]], label: texts[raw[3]], role: texts[raw[4]], verdict: raw[5],
    reason: texts[raw[6]], golden: texts[raw[7]], rule: texts[raw[8]], confidence: raw[9], why: texts[raw[10]],
    goldenRaw: raw[11], mineRaw: raw[12], values: raw[13].map(toNumber), missing: raw[14] ? texts[raw[14]] : {},
    tolerance: raw[15] ? numbersOf(texts[raw[15]]) : {}, needed: numbersOf(raw[16]), worst: raw[17],
    worstValues: raw[18] ? raw[18].map(toNumber) : null, firstBad: raw[19], inherited: toNumber(raw[20]),
    introduced: toNumber(raw[21]), histogram: raw[22] || null, goldenOp: texts[raw[23]], goldenName: texts[raw[24]],
    goldenOrder: goldenOrder(raw[25]), relation: texts[raw[26]], goldenProcess: raw[27] || 0,
  };
  operation.rows.push(row);
  return row;
});

for (const origin of source.origins) {
  const operation = operations.find((o) => o.mine && o.op === origin.op && o.id === origin.op_id && o.step === origin.step
    && o.device === origin.device && o.pid === origin.pid) || (origin.row !== null ? rows[origin.row].operation : null);
  origin.operation = operation;
  if (operation) operation.origin = origin;
}

const distinct = (values) => [...new Set(values)];
const allLayers = distinct(operations.filter((o) => o.mine).map((o) => o.layer));
// A module that holds the layers is none itself: its output is that of the last one.
const holders = new Set(allLayers.flatMap((layer) => layer.split(".").slice(0, -1).map((_, place, parts) => parts.slice(0, place + 1).join("."))));
const LAYERS = allLayers.filter((layer) => !holders.has(layer));
const isLayer = new Set(LAYERS);
const roots = new Set(operations.filter((o) => o.op.includes(".")).map((o) => o.op.split(".")[0]));
const isModule = (operation) => operation.op.includes(".") || roots.has(operation.op);
const STEPS = distinct(operations.map((o) => o.step)).sort((a, b) => a - b);

// Where more is better, the distance from 1 is the error.
const counted = (name) => /cosine|similarity|pass_rate/.test(name);
const errorName = (name) => (counted(name) ? `1 - ${name}` : name);
function errorOf(row, metric) {
  if (row.firstBad && row.verdict === FAIL) return Infinity; // metrics leave out what is not finite
  const value = row.values[metric];
  if (value === null || value === undefined) return row.verdict === FAIL ? Infinity : null;
  if (Number.isNaN(value)) return Infinity;
  return counted(source.metrics[metric]) ? Math.max(0, 1 - value) : Math.abs(value);
}

function short(value) {
  if (value === null || value === undefined) return "n/a";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "Inf" : "-Inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(size > 0.9 && size < 1 ? 6 : 4)));
}
const worstOf = (verdicts) => LOUDEST.find((verdict) => verdicts.has(verdict));
const plural = (count, noun) => say(`{0} ${noun}${count === 1 ? "" : "s"}`, count.toLocaleString("en"));
const titleOf = (operation) => operation.op + (operation.call ? ` (${say("call {0}", operation.call)})` : "");

// What is shown. Views redraw themselves when it changes.
const state = {
  metric: Math.max(0, source.metrics.indexOf(source.headline)), step: null, layer: null, search: "", role: "",
  verdicts: new Set([PASS, FAIL, SKIPPED, ERROR]), operation: null, row: null, onlyFailed: false,
};
const views = [];
function change(changes) {
  Object.assign(state, changes);
  for (const view of views) view(changes);
}
const select = (row) => change({ row, operation: row.operation });
const inStep = (operation) => state.step === null || operation.step === state.step;
const inLayer = (operation) => state.layer === null || operation.layer === state.layer;
