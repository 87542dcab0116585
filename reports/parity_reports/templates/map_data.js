"use strict";
/* What the page was given: states by place, hashes, types and sources of the keys it holds.
   A place counts rows, then columns, then fields, so that it grows in dataflow order. */
const byId = (id) => document.getElementById(id);
const make = (tag, cls, text) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text !== undefined) node.textContent = text;
  return node;
};
const D = JSON.parse(byId("data").textContent);
const BLANK = D.looks.length;
const ABSENT = "-";

const fieldsOf = D.cols.map((col) => col[2]);
const begins = [];
let stride = 0;
for (const fields of fieldsOf) {
  begins.push(stride);
  stride += fields.length;
}
const slots = Math.max(...fieldsOf.map((fields) => fields.length));
const cols = D.cols.length;

const segments = [], positions = [];
for (const [segment, first, number] of D.rows) {
  for (let at = 0; at < number; at++) {
    segments.push(segment);
    positions.push(first + at);
  }
}
const rows = positions.length;

/* Runs [value, how many, ...] written out. */
const unrolled = (runs, into) => {
  let at = 0;
  for (let run = 0; run < runs.length; run += 2) {
    into.fill(runs[run], at, at + runs[run + 1]);
    at += runs[run + 1];
  }
  return into;
};
const states = unrolled(D.states, new Uint8Array(rows * stride));
const isBorn = D.looks.map((look, state) => D.born.includes(state));
isBorn.push(false);

const held = [];
for (let run = 0, place = 0; run < D.held.length; run += 2) {
  place += D.held[run];
  for (let left = D.held[run + 1]; left > 0; left--) held.push(place++);
}
const from = D.from.length ? unrolled(D.from, new Int32Array(held.length)) : null;
const others = new Map(D.others.map(([index, ref, dut]) => [index, [ref, dut]]));

/* Index of the last of ascending numbers that is not above a value. */
const upTo = (numbers, value) => {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
};
const heldIndex = (place) => {
  const index = upTo(held, place);
  return held[index] === place ? index : -1;
};

const rowOf = (place) => Math.floor(place / stride);
const colOf = (place) => upTo(begins, place % stride);
const slotOf = (place) => place % stride - begins[colOf(place)];
const placeOf = (row, col, slot) => row * stride + begins[col] + slot;
const has = (place) => place >= 0 && place < states.length && states[place] !== BLANK;

const layerPrefix = (col) => D.cols[col][1].startsWith("layer ") ? `l${D.cols[col][0]}_` : "";
const tag = (place) => {
  const col = colOf(place);
  return `t${positions[rowOf(place)]}_${layerPrefix(col)}${fieldsOf[col][slotOf(place)]}`;
};
const segment = (place) => segments[rowOf(place)];
const address = (place) => (segment(place) ? `${segment(place)}/` : "") + tag(place);

/* The place of an address, or -1. */
const placeAt = (text) => {
  for (let row = 0; row < rows; row++) {
    const start = (segments[row] ? `${segments[row]}/` : "") + `t${positions[row]}_`;
    if (!text.startsWith(start)) continue;
    const rest = text.slice(start.length);
    for (let col = 0; col < cols; col++) {
      const prefix = layerPrefix(col);
      const slot = rest.startsWith(prefix) ? fieldsOf[col].indexOf(rest.slice(prefix.length)) : -1;
      if (slot >= 0 && has(placeOf(row, col, slot))) return placeOf(row, col, slot);
    }
  }
  return -1;
};

/* Both sides of a key, or null where the file does not hold its hashes. */
const sidesOf = (place) => {
  const index = heldIndex(place);
  if (index < 0) return null;
  const [ref, dut = ref] = D.hashes[index].split(" ");
  const usual = D.typed[place % stride];
  const types = (others.get(index) || [usual, usual]).map((type) => D.types[type]);
  return { ref, dut, types };
};
const nameOf = (place) => {
  const index = from ? heldIndex(place) : -1;
  const source = index >= 0 && from[index] >= 0 ? ` from ${D.sources[from[index]]}` : "";
  return D.looks[states[place]][0] + source + (place === D.first ? ", first" : "");
};
