/* The cursor: keyboard, pointer, address. One place at a time, told in one line that is live. */
const read = byId("read"), field = byId("field");
let at = null, pinned = null;

/* The place with a key in a cell that is nearest to a field, or -1. */
const nearest = (row, col, slot) => {
  if (row < 0 || row >= rows || col < 0 || col >= cols) return -1;
  let best = -1, far = Infinity;
  for (let other = 0; other < fieldsOf[col].length; other++) {
    const place = placeOf(row, col, other);
    if (has(place) && Math.abs(other - slot) < far) {
      far = Math.abs(other - slot);
      best = place;
    }
  }
  return best;
};

const drawn = D.detailed ? null : sheetOf();
const showMark = (place) => {
  const cursor = byId("cursor"), band = byId("band"), row = rowOf(place), col = colOf(place);
  cursor.setAttribute("x", `${100 * D.edges[col] / D.width}%`);
  cursor.setAttribute("y", row * D.pitch + slotOf(place) * D.slot - 4);
  band.setAttribute("x", D.edges[col]);
  band.setAttribute("y", row * D.pitch - 2);
  for (const node of [cursor, band]) node.removeAttribute("visibility");
};
/* follow: the canvas moves to where the cursor went; not under a pointer. */
const show = (place, follow = true) => {
  at = place;
  if (drawn) drawn.show(place, follow); else showMark(place);
  read.replaceChildren(...readout(place));
};

/* Keep a key: in the address, and below the map. */
const open = (place, write = true) => {
  pinned = place;
  show(place);
  if (write) {
    try { history.replaceState(null, "", `#${encodeURIComponent(address(place))}`); } catch { /**/ }
  }
  showKey(place, open);
};

const go = (row, col, down, right) => {
  for (; row >= 0 && row < rows && col >= 0 && col < cols; row += down, col += right) {
    const place = nearest(row, col, slotOf(at));
    if (place >= 0) { show(place); return; }
  }
};
const along = (step, wanted) => {
  for (let place = at + step; place >= 0 && place < states.length; place += step) {
    if (wanted(place)) { show(place); return; }
  }
};
const born = (place) => isBorn[states[place]];
const pin = () => {
  if (drawn && !drawn.written()) drawn.level("fields", at);
  open(at);
};
const zoomed = (factor) => drawn && drawn.zoom(factor, ...drawn.middle());
const moves = {
  ArrowLeft: () => go(rowOf(at), colOf(at) - 1, 0, -1),
  ArrowRight: () => go(rowOf(at), colOf(at) + 1, 0, 1),
  ArrowUp: () => along(-1, has),
  ArrowDown: () => along(1, has),
  PageUp: () => go(rowOf(at) - 1, colOf(at), -1, 0),
  PageDown: () => go(rowOf(at) + 1, colOf(at), 1, 0),
  Home: () => go(rowOf(at), 0, 0, 1),
  End: () => go(rowOf(at), cols - 1, 0, -1),
  f: () => { if (D.first !== null) show(D.first); },
  n: () => along(1, born),
  p: () => along(-1, born),
  Enter: pin,
  " ": pin,
  "+": () => zoomed(1.5),
  "=": () => zoomed(1.5),
  "-": () => zoomed(1 / 1.5),
  0: () => drawn && drawn.level("run", at),
};
const listen = (node) => {
  node.tabIndex = 0;
  node.setAttribute("role", "application");
  node.setAttribute("aria-roledescription", "map of keys");
  node.addEventListener("keydown", (event) => {
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  });
};
const inside = (node, event) => {
  const box = node.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top, box.width, box.height];
};

const onMarks = () => {
  const under = (event) => {
    const [px, y, wide] = inside(field, event), x = px / wide * D.width;
    const row = Math.max(0, Math.min(rows - 1, Math.floor((y + D.gap / 2) / D.pitch)));
    const col = Math.max(0, upTo(D.edges, x));
    return nearest(row, col, Math.floor((y - row * D.pitch) / D.slot));
  };
  listen(field);
  field.addEventListener("pointermove", (event) => {
    const place = under(event);
    if (place >= 0) show(place);
  });
  field.addEventListener("pointerleave", () => { if (pinned !== null) show(pinned); });
  field.addEventListener("click", (event) => {
    const place = under(event);
    if (place >= 0) open(place);
  });
};

const onCanvas = () => {
  const { pane, whole } = drawn;
  let held = null, moved = 0;
  listen(pane);
  pane.addEventListener("pointerdown", (event) => {
    held = [event.clientX, event.clientY];
    moved = 0;
    pane.setPointerCapture(event.pointerId);
    pane.classList.add("held");
  });
  pane.addEventListener("pointermove", (event) => {
    if (held) {
      const [dx, dy] = [event.clientX - held[0], event.clientY - held[1]];
      moved += Math.abs(dx) + Math.abs(dy);
      held = [event.clientX, event.clientY];
      drawn.pan(dx, dy);
      return;
    }
    const place = drawn.under(...inside(pane, event));
    if (place >= 0) show(place, false);
  });
  pane.addEventListener("pointerup", (event) => {
    pane.classList.remove("held");
    held = null;
    const place = moved < 4 ? drawn.under(...inside(pane, event)) : -1;
    if (place >= 0) open(place);
  });
  pane.addEventListener("pointercancel", () => { held = null; pane.classList.remove("held"); });
  pane.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; /* the page scrolls */
    event.preventDefault();
    const [x, y] = inside(pane, event);
    drawn.zoom(event.deltaY < 0 ? 1.25 : 0.8, x, y);
  }, { passive: false });
  whole.addEventListener("pointerdown", (event) => whole.setPointerCapture(event.pointerId));
  whole.addEventListener("pointermove", (event) => {
    const [x, y, wide, high] = inside(whole, event);
    if (event.buttons) drawn.jump(x / wide, y / high);
  });
  whole.addEventListener("click", (event) => {
    const [x, y, wide, high] = inside(whole, event);
    drawn.jump(x / wide, y / high);
  });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    const name = button.dataset.zoom;
    button.addEventListener("click", () => {
      if (name === "in" || name === "out") zoomed(name === "in" ? 1.5 : 1 / 1.5);
      else if (name === "first") { if (D.first !== null) { show(D.first); drawn.level("layers", D.first); } }
      else drawn.level(name, at);
    });
  }
  addEventListener("resize", drawn.fit);
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
    matchMedia(query).addEventListener("change", drawn.fit);
  }
};

const start = () => {
  const found = D.start;
  if (drawn) {
    for (const id of ["sheet", "tools"]) byId(id).hidden = false;
    byId("drawing").hidden = true;
    drawn.fit();
    drawn.level("layers", found);
    onCanvas();
  } else onMarks();
  const wanted = () => {
    let text = location.hash.slice(1);
    try { text = decodeURIComponent(text); } catch { /* as it stands */ }
    return text ? placeAt(text) : -1;
  };
  const back = byId("back");
  if (back) back.addEventListener("click", () => open(found));
  addEventListener("hashchange", () => { if (wanted() >= 0) open(wanted(), false); });
  const asked = wanted();
  open(asked >= 0 ? asked : found, false);
  if (asked >= 0) byId("map").scrollIntoView();
};
start();
