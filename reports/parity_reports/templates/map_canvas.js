/* Above the limit of marks: every key on a canvas. A pixel shows the worst state it covers; births
   are drawn last and never under 8 x 5 px. A view: x, y of its upper left corner in columns and
   rows; sx, sy px of a column and a row. */
const TOP = 20, GAP = 0.12, MARGIN = 12;
const BIRTH = [8, 5], RINGED = 12, NAMED = 6;
const FIELD = 160, TALL = 17; /* px of a field whose name is written, the largest there is */

/* What stands before a row: its position, after its segment, or the segment's number where names are
   long, as on the drawing. */
const known = [...new Set(segments)], long = known.some((name) => name.length > 12);
const rowLabel = (row) => {
  const name = segments[row];
  return `${name && long ? `s${known.indexOf(name)}` : name} t${positions[row]}`.trim();
};
const LEFT = 16 + 7 * Math.max(5, ...known.map((name) => rowLabel(segments.lastIndexOf(name)).length));

const palette = () => {
  const style = getComputedStyle(document.documentElement), probe = make("canvas").getContext("2d");
  const value = (name) => {
    probe.fillStyle = style.getPropertyValue(name).trim() || "#888";
    return probe.fillStyle;
  };
  const of = {
    same: "--same", born: "--first", inherited: "--differs", masked: "--masked",
    differs: "--differs", missing: "--missing", nc: "--nc",
  };
  const found = Object.fromEntries(Object.entries(of).map(([kind, name]) => [kind, value(name)]));
  for (const name of ["bg", "text", "dim", "link", "line", "good"]) found[name] = value(`--${name}`);
  return found;
};
const pixel = (color, bg, share) => {
  const part = (text, at) => parseInt(text.slice(1 + 2 * at, 3 + 2 * at), 16);
  const mixed = [0, 1, 2].map((at) =>
    Math.round(part(color, at) * share + part(bg, at) * (1 - share)));
  return (255 << 24 | mixed[2] << 16 | mixed[1] << 8 | mixed[0]) >>> 0;
};

const bornPlaces = [];
if (!D.detailed) states.forEach((state, place) => { if (isBorn[state]) bornPlaces.push(place); });

/* By pixel line: the first and last field, counted down the rows, that it covers. */
const linesOf = (view, height, scale) => {
  const begin = new Int32Array(height), end = new Int32Array(height);
  const inner = view.sy * scale >= slots ? 1 - GAP : 1;
  const at = (y) => {
    const row = view.y + y / (view.sy * scale), whole = Math.floor(row);
    return whole * slots + Math.min(slots, (row - whole) / inner * slots);
  };
  for (let y = 0; y < height; y++) {
    const low = at(y), high = at(y + 1);
    begin[y] = Math.floor(low + 1e-9);
    end[y] = Math.max(begin[y], Math.ceil(high - 1e-9) - 1);
    /* The gap between rows: nothing stands there. */
    const row = Math.floor(view.y + y / (view.sy * scale));
    const inside = view.y + y / (view.sy * scale) - row;
    if (inside >= inner || row < 0 || row >= rows) end[y] = -1;
  }
  return [begin, end];
};

/* By column: the rank of each field, down all rows; 255 where none is. A pixel line covers a run. */
const rankAt = new Uint8Array(256).fill(255);
D.worst.forEach((rank, state) => { rankAt[state] = rank; });
const ranksOf = () => fieldsOf.map((fields, col) => {
  const ranks = new Uint8Array(rows * slots).fill(255);
  for (let row = 0; row < rows; row++) {
    for (let slot = 0; slot < fields.length; slot++) {
      ranks[row * slots + slot] = rankAt[states[row * stride + begins[col] + slot]];
    }
  }
  return ranks;
});
const columnRanks = D.detailed ? [] : ranksOf();
const worstIn = (from, to, firstCol, lastCol) => {
  let worst = 255;
  for (let col = firstCol; col < lastCol; col++) {
    const ranks = columnRanks[col];
    for (let k = from; k <= to; k++) if (ranks[k] < worst) worst = ranks[k];
  }
  return worst;
};

/* Fill an image of `width` x `height` device pixels with a view of everything. */
const paintPixels = (pixels, width, height, view, scale, colors) => {
  pixels.fill(colors[255]);
  const [begin, end] = linesOf(view, height, scale), step = view.sx * scale;
  for (let x = 0; x < width;) {
    const col = Math.floor(view.x + x / step + 1e-6);
    if (col >= cols) break;
    if (col < 0) { x++; continue; }
    const edge = Math.max(x + 1, Math.round((col + 1 - view.x) * step));
    const last = Math.min(cols, Math.max(col + 1, Math.floor(view.x + (x + 1) / step + 1e-6)));
    const right = Math.min(width, edge - (step >= 5 ? Math.max(1, Math.round(step * 0.15)) : 0));
    for (let y = 0; y < height; y++) {
      if (end[y] < 0) continue;
      const rank = worstIn(begin[y], end[y], col, last);
      if (rank !== 255) pixels.fill(colors[rank], y * width + x, y * width + right);
    }
    x = edge;
  }
};

const sheetOf = () => {
  const pane = byId("pane"), canvas = byId("canvas"), whole = byId("whole");
  const context = canvas.getContext("2d"), small = whole.getContext("2d");
  const view = { x: 0, y: 0, sx: 1, sy: 1 };
  let ink, colors, scale, width, height, image, overview, painted = "", cursor = null, waiting = false;

  const span = () => [width - LEFT, height - TOP];
  const least = () => [(span()[0] - 2 * MARGIN) / cols,
    Math.min((span()[1] - 2 * MARGIN) / rows, slots * TALL / (1 - GAP))];
  const most = () => [Math.max(FIELD, least()[0]), slots * TALL / (1 - GAP)];
  const clamp = () => {
    const [sx, sy] = least(), [mx, my] = most(), [w, h] = span();
    view.sx = Math.min(mx, Math.max(sx, view.sx));
    view.sy = Math.min(my, Math.max(sy, view.sy));
    /* A margin, so that a ring at the edge is whole. */
    view.x = Math.max(-MARGIN / view.sx, Math.min(cols - (w - MARGIN) / view.sx, view.x));
    view.y = Math.max(-MARGIN / view.sy, Math.min(rows - (h - MARGIN) / view.sy, view.y));
  };
  const slotHeight = () => view.sy * (1 - GAP) / slots;

  /* Where a place is drawn: x, y, width, height in px of the pane. */
  const box = (place) => {
    const row = rowOf(place), col = colOf(place), high = slotHeight();
    const inner = view.sx >= 5 ? 0.85 : 1;
    return [LEFT + (col - view.x) * view.sx, TOP + (row - view.y) * view.sy + slotOf(place) * high,
      view.sx * inner, high];
  };
  const seen = ([x, y, w, h]) => x + w > LEFT && x < width && y + h > TOP && y < height;

  const shape = (kind, [x, y, w, h]) => {
    const middle = y + h / 2, bar = (part) => [x, middle - h * part / 2, w, Math.max(1, h * part)];
    if (kind === "same") return [[x, middle - 0.5, w, 1]];
    if (kind === "born") return [bar(0.96)];
    if (kind === "masked") return [[x, middle - h * 0.22, w, 1], [x, middle + h * 0.22, w, 1],
      [x, middle - h * 0.22, 1, h * 0.44], [x + w - 1, middle - h * 0.22, 1, h * 0.44]];
    if (kind === "missing") return [0.05, 0.7].map((at) => [x + w * at, ...bar(0.7).slice(1, 2), w * 0.25, h * 0.7]);
    if (kind === "nc") return [0, 0.4, 0.8].map((at) => [x + w * at, middle - h * 0.25, w * 0.2, h * 0.5]);
    return [bar(0.6)];
  };
  const visible = () => {
    const [w, h] = span();
    return [Math.max(0, Math.floor(view.x)), Math.min(cols, Math.ceil(view.x + w / view.sx)),
      Math.max(0, Math.floor(view.y)), Math.min(rows, Math.ceil(view.y + h / view.sy))];
  };
  const written = () => view.sx >= 90 && slotHeight() >= 11;
  const drawShapes = () => {
    const [left, right, top, bottom] = visible(), lists = D.looks.map(() => []);
    for (let row = top; row < bottom; row++) {
      for (let col = left; col < right; col++) {
        for (let slot = 0; slot < fieldsOf[col].length; slot++) {
          const place = placeOf(row, col, slot);
          if (states[place] !== BLANK) lists[states[place]].push(place);
        }
      }
    }
    lists.forEach((places, state) => {
      const [, kind, word] = D.looks[state];
      for (const place of places) {
        const where = box(place);
        context.fillStyle = ink[kind];
        if (written()) {
          const mark = [where[0], where[1], 22, where[3]];
          for (const part of shape(kind, mark)) context.fillRect(...part);
          context.fillStyle = kind === "same" ? ink.dim : ink.text;
          context.fillText(`${fieldsOf[colOf(place)][slotOf(place)]} ${word}`, where[0] + 28,
            where[1] + where[3] / 2, where[2] - 30);
        } else for (const part of shape(kind, where)) context.fillRect(...part);
      }
    });
  };
  const drawDense = () => {
    const w = Math.round((width - LEFT) * scale), h = Math.round((height - TOP) * scale);
    if (!image || image.width !== w || image.height !== h) image = context.createImageData(w, h);
    const wanted = JSON.stringify(view);
    if (painted !== wanted) paintPixels(new Uint32Array(image.data.buffer), w, h, view, scale, colors);
    painted = wanted; /* the cursor alone moves over the same pixels */
    context.putImageData(image, Math.round(LEFT * scale), Math.round(TOP * scale));
    const done = new Set();
    context.fillStyle = ink.born;
    for (const place of bornPlaces) {
      const [x, y, bw, bh] = box(place);
      if (!seen([x, y, bw, bh])) continue;
      const mark = `${Math.floor(x / 2)} ${Math.floor(y / 2)}`;
      if (done.has(mark)) continue;
      done.add(mark);
      const bigW = Math.max(bw, BIRTH[0]), bigH = Math.max(bh, BIRTH[1]);
      context.fillRect(x + bw / 2 - bigW / 2, y + bh / 2 - bigH / 2, bigW, bigH);
    }
  };
  const frame = (place, color, wide, room) => {
    const [x, y, w, h] = box(place);
    const bigW = Math.max(w, BIRTH[0]), bigH = Math.max(h, BIRTH[1]);
    context.lineWidth = wide;
    context.strokeStyle = color;
    context.strokeRect(x + w / 2 - bigW / 2 - room, y + h / 2 - bigH / 2 - room,
      bigW + 2 * room, bigH + 2 * room);
  };
  const label = (place, text, taken) => {
    const [x, y, w, h] = box(place), at = y + h + 16 < height ? y + h + 15 : y - 13;
    context.font = `${place === D.first ? "bold " : ""}12px system-ui, sans-serif`;
    const wide = context.measureText(text).width;
    const left = Math.max(LEFT, Math.min(width - wide - 2, x + w / 2 - wide / 2));
    if (taken.some(([a, b, c]) => Math.abs(at - c) < 14 && left < b + 6 && left + wide > a - 6)) return;
    taken.push([left, left + wide, at]);
    context.lineWidth = 4;
    context.strokeStyle = ink.bg;
    context.strokeText(text, left, at);
    context.fillStyle = ink.text;
    context.fillText(text, left, at);
  };
  const drawRings = () => {
    const near = bornPlaces.filter((place) => place !== D.first && seen(box(place)));
    const taken = [];
    if (near.length <= RINGED) for (const place of near) frame(place, ink.text, 1, 2);
    if (D.first !== null && seen(box(D.first))) {
      frame(D.first, ink.bg, 7, 4);
      frame(D.first, ink.text, 2, 2);
      frame(D.first, ink.text, 2, 6);
      label(D.first, `first: ${tag(D.first)}`, taken);
    }
    if (near.length <= NAMED) for (const place of near) label(place, `born: ${tag(place)}`, taken);
    if (cursor !== null) frame(cursor, ink.link, 2, 3);
  };
  const drawAxes = () => {
    const [left, right, top, bottom] = visible();
    context.fillStyle = ink.bg;
    context.fillRect(0, 0, width, TOP);
    context.fillRect(0, 0, LEFT, height);
    context.fillStyle = ink.dim;
    context.font = "11.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    let free = LEFT - 20;
    for (let col = left; col < right; col++) {
      const text = D.cols[col][0], wide = context.measureText(text).width;
      const x = Math.max(LEFT, LEFT + (col - view.x + 0.42) * view.sx - wide / 2);
      if (x > free + 14 && x + wide < width) {
        context.fillText(text, x, TOP / 2);
        free = x + wide;
      }
    }
    context.fillStyle = ink.text;
    free = TOP - 20;
    for (let row = top; row < bottom; row++) {
      const y = TOP + (row - view.y) * view.sy + Math.min(view.sy, 24) / 2;
      if (y > free + 16 && y > TOP + 5 && y < height - 4) {
        context.fillText(rowLabel(row), 2, y, LEFT - 6);
        free = y;
      }
    }
  };
  const drawOverview = () => {
    small.putImageData(overview, 0, 0);
    const [w, h] = span(), sx = whole.width / cols, sy = whole.height / rows;
    small.strokeStyle = ink.link;
    small.lineWidth = 2 * scale;
    const left = Math.max(0, view.x), top = Math.max(0, view.y);
    small.strokeRect(left * sx + scale, top * sy + scale,
      Math.max(4 * scale, (Math.min(cols, view.x + w / view.sx) - left) * sx - 2 * scale),
      Math.max(4 * scale, (Math.min(rows, view.y + h / view.sy) - top) * sy - 2 * scale));
  };
  const draw = () => {
    waiting = false;
    const begin = performance.now();
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = ink.bg;
    context.fillRect(0, 0, width, height);
    context.textBaseline = "middle";
    context.font = "11.5px system-ui, sans-serif";
    /* Where a mark has no room for its shape, pixels. */
    if (slotHeight() < 3 || view.sx < 4) drawDense(); else drawShapes();
    drawRings();
    drawAxes();
    drawOverview();
    canvas.dataset.ms = String(performance.now() - begin);
  };
  const later = () => {
    if (!waiting) { waiting = true; requestAnimationFrame(draw); }
  };

  const fit = () => {
    ink = palette();
    colors = new Uint32Array(256);
    D.worst.forEach((rank, state) => {
      const kind = D.looks[state][1];
      colors[rank] = pixel(ink[kind], ink.bg, kind === "same" ? 0.45 : 1);
    });
    colors[255] = pixel(ink.bg, ink.bg, 1);
    scale = devicePixelRatio || 1;
    width = pane.clientWidth;
    height = byId("sheet").clientHeight;
    for (const [node, wide] of [[canvas, width], [whole, whole.clientWidth]]) {
      node.width = Math.round(wide * scale);
      node.height = Math.round(height * scale);
    }
    painted = "";
    overview = small.createImageData(whole.width, whole.height);
    const all = { x: 0, y: 0, sx: whole.width / cols, sy: whole.height / rows };
    paintPixels(new Uint32Array(overview.data.buffer), whole.width, whole.height, all, 1, colors);
    clamp();
    later();
  };

  const centre = (place) => {
    const [w, h] = span(), row = rowOf(place) + (slotOf(place) + 0.5) / slots;
    view.x = colOf(place) + 0.5 - w / view.sx / 2;
    view.y = row - h / view.sy / 2;
    clamp();
    later();
  };
  const levels = {
    run: () => least(),
    layers: () => [Math.max(least()[0], 10), slots * 4 / (1 - GAP)],
    fields: () => most(),
  };
  const level = (name, place) => {
    [view.sx, view.sy] = levels[name]();
    clamp();
    centre(place);
  };
  /* Rows grow first; columns follow once a field has its own line. */
  const zoom = (factor, x, y) => {
    const column = view.x + (x - LEFT) / view.sx, row = view.y + (y - TOP) / view.sy;
    const wider = factor > 1 ? slotHeight() >= 5 : true;
    view.sy *= factor;
    if (wider) view.sx *= factor;
    clamp();
    view.x = column - (x - LEFT) / view.sx;
    view.y = row - (y - TOP) / view.sy;
    clamp();
    later();
  };
  const show = (place, follow) => {
    cursor = place;
    if (!follow) { later(); return; }
    const [x, y, w, h] = box(place);
    const [right, bottom] = [Math.min(w, width - LEFT), Math.min(h, height - TOP)];
    if (x < LEFT || y < TOP || x + right > width || y + bottom > height) centre(place);
    later();
  };
  /* The place under a point of the pane, or -1. */
  const under = (x, y) => {
    const row = Math.floor(view.y + (y - TOP) / view.sy), col = Math.floor(view.x + (x - LEFT) / view.sx);
    if (row < 0 || row >= rows || col < 0 || col >= cols || x < LEFT || y < TOP) return -1;
    const inside = (view.y + (y - TOP) / view.sy - row) / (1 - GAP);
    return nearest(row, col, Math.floor(inside * slots));
  };
  const pan = (dx, dy) => {
    view.x -= dx / view.sx;
    view.y -= dy / view.sy;
    clamp();
    later();
  };
  const jump = (x, y) => {
    const [w, h] = span();
    view.x = x * cols - w / view.sx / 2;
    view.y = y * rows - h / view.sy / 2;
    clamp();
    later();
  };
  const middle = () => [LEFT + span()[0] / 2, TOP + span()[1] / 2];
  return { canvas, whole, pane, fit, show, level, zoom, under, pan, jump, middle, written, draw, view };
};
