"use strict";
/* Cursor, pinned keys, copy buttons, long lists. Every text is data: written by textContent only. */
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (query) => document.querySelectorAll(query);
  const make = (tag, cls, text) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  document.documentElement.classList.add("js");

  const select = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  };
  for (const button of all("[data-copy]")) {
    const label = button.textContent;
    button.addEventListener("click", async () => {
      const node = byId(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(node.textContent);
        button.textContent = "Copied";
      } catch {
        select(node); /* a file without clipboard: the text is selected, Ctrl+C takes it */
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = label; }, 1600);
    });
  }

  for (const button of all("[data-all]")) {
    const label = button.textContent;
    button.addEventListener("click", () => {
      const open = byId(button.dataset.all).classList.toggle("all");
      button.textContent = open ? button.dataset.few : label;
      button.setAttribute("aria-expanded", String(open));
    });
  }

  addEventListener("beforeprint", () => {
    for (const node of all("details")) { node.dataset.was = String(node.open); node.open = true; }
  });
  addEventListener("afterprint", () => {
    for (const node of all("details")) node.open = node.dataset.was === "true";
  });

  if (!byId("data")) return;
  const D = JSON.parse(byId("data").textContent);
  const field = byId("field"), read = byId("read"), cursor = byId("cursor"), band = byId("band");

  /* A mark: [row, column, slot, state, ...]. By key: ref hash, type, dut hash, type. By layer:
     keys that are not the same, first of them (of the masked ones where all are the same). */
  const marks = D.marks;
  const found = new Map(marks.map((mark, index) => [mark.slice(0, 3).join(), index]));
  const tag = (mark) => {
    if (D.by_layer) return mark[5];
    const [label, layer, fields] = D.cols[mark[1]];
    const where = layer === null ? "" : "l" + layer + "_";
    return D.rows[mark[0]][1] + "_" + where + fields[mark[2]];
  };
  const segment = (mark) => D.rows[mark[0]][0];
  const address = (mark) => (segment(mark) ? segment(mark) + "/" : "") + tag(mark);

  const hex = (text) => {
    const node = make("span", "m hx");
    for (let at = 0; at < text.length; at += 4) node.append(make("i", "", text.slice(at, at + 4)));
    return node;
  };
  const side = (hash, type, hide) => {
    const node = make("span");
    if (!hash) { node.textContent = "absent"; return node; }
    node.append(hex(hash));
    if (!hide && D.types[type]) node.append(" ", make("span", "m", D.types[type]));
    return node;
  };
  const sides = (mark) => {
    const [ref, type] = [mark[4], mark[5]];
    const equal = mark.length < 8;
    const [dut, other] = equal ? [ref, type] : [mark[6], mark[7]];
    const common = ref && dut && type !== other ? "" : D.types[ref ? type : other];
    return {
      equal, type: common || "", ref: side(ref, type, common), dut: side(dut, other, common),
    };
  };
  const word = (mark) => {
    const index = marks.indexOf(mark), source = D.from[index];
    const from = source >= 0 ? " from " + D.sources[source] : "";
    return D.states[mark[3]][0] + from + (index === D.first ? ", first" : "");
  };

  const labelled = (name, node) => {
    const line = make("span", "", name + " ");
    line.append(node);
    return line;
  };
  const facts = (mark) => {
    const where = segment(mark) ? [make("span", "", "segment " + segment(mark))] : [];
    if (D.by_layer) {
      const place = D.rows[mark[0]][1] + ", " + D.names[mark[1]];
      const number = mark[4].toLocaleString("en") + " keys not the same";
      const text = D.states[mark[3]][0] + ", " + number + ", first";
      return [make("b", "m", place), ...where, make("span", "", text), make("b", "m", tag(mark))];
    }
    const s = sides(mark), line = [make("b", "m", tag(mark)), ...where];
    line.push(make("span", "", word(mark)));
    if (s.type) line.push(make("span", "m", s.type));
    if (s.equal) line.push(labelled("both", s.ref));
    else line.push(labelled("ref", s.ref), labelled("dut", s.dut));
    return line;
  };

  /* The place under the cursor: a mark, or an empty cell of a map by layer. */
  let at = null, pinned = null;
  const show = (row, col, slot) => {
    const index = found.get([row, col, slot].join());
    at = [row, col, slot];
    cursor.setAttribute("x", 100 * D.edges[col] / D.width + "%");
    cursor.setAttribute("y", row * D.pitch + slot * D.slot - 4);
    band.setAttribute("x", D.edges[col]);
    band.setAttribute("y", row * D.pitch - 2);
    for (const node of [cursor, band]) node.removeAttribute("visibility");
    if (index !== undefined) read.replaceChildren(...facts(marks[index]));
    else read.replaceChildren(make("b", "m", D.rows[row][1] + ", " + D.names[col]),
      make("span", "", "no difference listed here"));
  };

  const slots = (col) => D.by_layer ? 1 : D.cols[col][2].length;
  const has = (row, col, slot) => D.by_layer || found.has([row, col, slot].join());
  /* The nearest place with a mark in a cell, or null. */
  const near = (row, col, slot) => {
    if (row < 0 || row >= D.rows.length || col < 0 || col >= D.edges.length) return null;
    const places = [...Array(slots(col)).keys()].filter((place) => has(row, col, place));
    places.sort((a, b) => Math.abs(a - slot) - Math.abs(b - slot));
    return places.length ? [row, col, places[0]] : null;
  };
  const go = (row, col, slot, down, right) => {
    const [rows, cols] = [D.rows.length, D.edges.length];
    for (; row >= 0 && row < rows && col >= 0 && col < cols; row += down, col += right) {
      const place = near(row, col, slot);
      if (place) { show(...place); return; }
    }
  };
  const along = (step) => {
    if (D.by_layer) { go(at[0] + step, at[1], 0, step, 0); return; }
    const next = marks[found.get(at.join()) + step];
    if (next) show(...next);
  };
  const under = (event) => {
    const box = field.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * D.width, y = event.clientY - box.top;
    const row = Math.max(0, Math.min(D.rows.length - 1, Math.floor((y + D.gap / 2) / D.pitch)));
    let col = D.edges.findLastIndex((edge) => edge <= x);
    col = Math.max(0, col);
    return near(row, col, Math.floor((y - row * D.pitch) / D.slot));
  };

  /* Keep a key: in the address, and, where its panel is on the page, below the map. */
  const strip = byId("first-key-strip");
  const open = (index, write) => {
    const mark = marks[index];
    pinned = index;
    show(...mark);
    if (write) {
      try { history.replaceState(null, "", "#" + encodeURIComponent(address(mark))); } catch { /**/ }
    }
    if (strip && !D.by_layer) panel(index, mark);
  };
  const panel = (index, mark) => {
    const col = D.cols[mark[1]], row = D.rows[mark[0]];
    const where = col[1] === null ? D.names[mark[1]] : "layer " + col[1];
    byId("first-key-place").textContent = row[1] + " " + where +
      (row[0] ? " in segment " + row[0] : "");
    const list = make("ol", "strip");
    for (let slot = 0; slot < col[2].length; slot++) {
      const other = found.get([mark[0], mark[1], slot].join());
      if (other === undefined) continue;
      const state = D.states[marks[other][3]];
      const item = make("li", state[1] + (other === D.first ? " first" : ""));
      const button = make("button");
      button.type = "button";
      button.append(make("span", "m", col[2][slot]), " ", make("span", "", state[2]));
      if (other === index) {
        item.classList.add("chosen");
        button.setAttribute("aria-current", "true");
      }
      button.addEventListener("click", () => {
        open(other, true);
        const chosen = strip.querySelector("[aria-current]");
        if (chosen) chosen.focus();
      });
      item.append(button);
      list.append(item);
    }
    strip.replaceChildren(list);
    byId("first-key-first").hidden = index !== D.first;
    byId("other").hidden = index === D.first;
    const s = sides(mark);
    byId("other-key").textContent = tag(mark);
    byId("other-state").textContent = word(mark);
    byId("other-type").textContent = s.type;
    byId("other-ref").replaceChildren(s.ref);
    byId("other-dut").replaceChildren(s.dut);
  };

  /* The next birth in dataflow order, or with -1 the one before, from the place of the cursor. */
  const birth = (step) => {
    const here = found.get(at.join()) ?? -1;
    const born = step > 0 ? D.born : [...D.born].reverse();
    const next = born.find((index) => (index - here) * step > 0);
    if (next !== undefined) show(...marks[next]);
  };
  const pin = () => {
    const index = found.get(at.join());
    if (index !== undefined) open(index, true);
  };
  const moves = {
    ArrowLeft: () => go(at[0], at[1] - 1, at[2], 0, -1),
    ArrowRight: () => go(at[0], at[1] + 1, at[2], 0, 1),
    ArrowUp: () => along(-1),
    ArrowDown: () => along(1),
    PageUp: () => go(at[0] - 1, at[1], at[2], -1, 0),
    PageDown: () => go(at[0] + 1, at[1], at[2], 1, 0),
    Home: () => go(at[0], 0, at[2], 0, 1),
    End: () => go(at[0], D.edges.length - 1, at[2], 0, -1),
    f: () => { if (D.first !== null) show(...marks[D.first]); },
    n: () => birth(1),
    p: () => birth(-1),
    Enter: pin,
    " ": pin,
  };
  field.tabIndex = 0;
  field.setAttribute("role", "application");
  field.setAttribute("aria-roledescription", "map of keys");
  field.addEventListener("pointermove", (event) => {
    const place = under(event);
    if (place) show(...place);
  });
  field.addEventListener("pointerleave", () => { if (pinned !== null) show(...marks[pinned]); });
  field.addEventListener("click", (event) => {
    const place = under(event);
    if (place) { show(...place); pin(); }
  });
  field.addEventListener("keydown", (event) => {
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  });
  if (byId("back")) byId("back").addEventListener("click", () => open(D.first, true));

  const wanted = () => {
    let text = location.hash.slice(1);
    try { text = decodeURIComponent(text); } catch { /* as it stands */ }
    return text ? marks.findIndex((mark) => address(mark) === text) : -1;
  };
  addEventListener("hashchange", () => { if (wanted() >= 0) open(wanted(), false); });
  if (wanted() >= 0) {
    open(wanted(), false);
    byId("map").scrollIntoView();
  } else if (D.start !== null) open(D.start, false);
  else { show(...near(0, 0, 0)); }
})();
