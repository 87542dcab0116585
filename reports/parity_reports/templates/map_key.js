/* The line under the map, the strip of a layer and the panel of a key. Every text is data. */
const hex = (text) => {
  const node = make("span", "m hx");
  for (let at = 0; at < text.length; at += 4) node.append(make("i", "", text.slice(at, at + 4)));
  return node;
};
const sideNode = (hash, type) => {
  const node = make("span");
  if (hash === ABSENT) { node.textContent = "absent"; return node; }
  node.append(hex(hash));
  if (type) node.append(" ", make("span", "m", type));
  return node;
};
/* The type both sides share, and a node for each side, with its type where they differ. */
const shownSides = (place) => {
  const sides = sidesOf(place);
  if (!sides) return null;
  const there = [sides.ref, sides.dut].map((hash) => hash !== ABSENT);
  const common = there[0] && there[1] && sides.types[0] !== sides.types[1]
    ? "" : sides.types[there[0] ? 0 : 1];
  const nodes = [sides.ref, sides.dut].map((hash, at) =>
    sideNode(hash, common === sides.types[at] ? "" : sides.types[at]));
  return { common, nodes, equal: sides.ref === sides.dut && Boolean(common) };
};
const NOT_HELD = "hashes are in the JSON, not in this file";

const labelled = (name, node) => {
  const line = make("span", "", `${name} `);
  line.append(node);
  return line;
};
const readout = (place) => {
  const line = [make("b", "m", tag(place))];
  if (segment(place)) line.push(make("span", "", `segment ${segment(place)}`));
  line.push(make("span", "", nameOf(place)));
  const shown = shownSides(place);
  if (!shown) return [...line, make("span", "", NOT_HELD)];
  if (shown.common) line.push(make("span", "m", shown.common));
  if (shown.equal) line.push(labelled("both", shown.nodes[0]));
  else D.names.forEach((name, side) => line.push(labelled(name, shown.nodes[side])));
  return line;
};

const stripOf = (chosen, open) => {
  const list = make("ol", "strip"), row = rowOf(chosen), col = colOf(chosen);
  fieldsOf[col].forEach((field, slot) => {
    const place = placeOf(row, col, slot);
    if (!has(place)) return;
    const [, kind, word] = D.looks[states[place]];
    const item = make("li", kind + (place === D.first ? " first" : ""));
    const button = make("button");
    button.type = "button";
    button.append(make("span", "m", field), " ", make("span", "", word));
    if (place === chosen) {
      item.classList.add("chosen");
      button.setAttribute("aria-current", "true");
    }
    button.addEventListener("click", () => {
      open(place);
      const again = byId("first-key-strip").querySelector("[aria-current]");
      if (again) again.focus();
    });
    item.append(button);
    list.append(item);
  });
  return list;
};

const fact = (name, node, cls) => {
  const line = make("div"), value = make("dd", cls || "");
  value.append(node);
  line.append(make("dt", "", name), value);
  return line;
};
/* The keys of its position that a key's op reads, where the map has them. */
const inputsOf = (place) => {
  const col = colOf(place), row = rowOf(place), own = fieldsOf[col];
  let feeds = D.ops[own[slotOf(place)]][4];
  /* A gated layer projects the gated value, not the attention's own. */
  if (own.includes("gated") && feeds.includes("gated")) feeds = feeds.filter((n) => n !== "attn");
  return feeds.map((name) => {
    const from = name.endsWith("<") ? col - 1 : col, field = name.replace("<", "");
    const slot = from >= 0 ? fieldsOf[from].indexOf(field) : -1;
    return slot < 0 ? -1 : placeOf(row, from, slot);
  }).filter(has);
};
const inputText = (place, input) => {
  const near = colOf(input) === colOf(place) ? fieldsOf[colOf(input)][slotOf(input)] : tag(input);
  return `${near} ${D.looks[states[input]][0]}`;
};
const factsOf = (place) => {
  const shown = shownSides(place), found = [];
  if (shown && shown.common) found.push(fact("dtype, shape", shown.common, "m"));
  if (shown) D.names.forEach((name, side) => found.push(fact(name, shown.nodes[side])));
  else found.push(fact("hashes", NOT_HELD));
  const [op, ref, dut, files] = D.ops[fieldsOf[colOf(place)][slotOf(place)]];
  if (op) found.push(fact("made by", op));
  const inputs = inputsOf(place);
  if (inputs.length) {
    found.push(fact("inputs", inputs.map((input) => inputText(place, input)).join(", ")));
  }
  if (ref && ref === dut) found.push(fact("ran", `${ref} on both sides`, "m"));
  else if (ref || dut) {
    found.push(fact("ran", `ref ${ref || "not recorded"}, dut ${dut || "not recorded"}`, "m"));
  }
  for (const [side, file] of files) found.push(fact(`${side} twin`, file, "m"));
  return found;
};
/* Elements that the page has for another key: those of a birth, below. */
const detailOf = (key) =>
  [...document.querySelectorAll("details[data-key]")].find((node) => node.dataset.key === key);

const showKey = (place, open) => {
  const strip = byId("first-key-strip"), panel = byId("first-key-panel");
  if (!strip || !byId("other")) return;
  const col = colOf(place), row = rowOf(place);
  byId("first-key-place").textContent = `t${positions[row]} ${D.cols[col][1]}` +
    (segments[row] ? ` in segment ${segments[row]}` : "");
  strip.replaceChildren(stripOf(place, open));
  const own = place === D.start && panel.dataset.key === tag(place);
  panel.hidden = !own;
  byId("other").hidden = own;
  byId("other-key").textContent = tag(place);
  byId("other-state").textContent = nameOf(place);
  byId("other-facts").replaceChildren(...factsOf(place));
  const detail = detailOf(tag(place)), more = byId("other-more");
  const equal = D.looks[states[place]][1] === "same";
  more.replaceChildren(make("p", "lead", detail ? "Its elements, both sides on the ref's inputs:"
    : equal ? "" : "Elements are kept for the first key and the first births."));
  if (detail) {
    const button = make("button", "", "Show them");
    button.type = "button";
    button.addEventListener("click", () => {
      detail.open = true;
      detail.scrollIntoView({ block: "nearest" });
      detail.querySelector("summary").focus();
    });
    more.append(button);
  }
};
