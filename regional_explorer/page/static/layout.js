// Places the boxes of a picture in rows: each below its inputs and near their middle. The boxes of a hull stay together,
// and an edge over several rows has a lane of its own in each of them.

const GAP = 14, LAYER = 16, BORDER = 7, HEADER = 20, WIDEST_ROW = 1000, TALLEST = 900, ASPECT = 1.8, SWEEPS = 6;
const LANE = { w: 4, h: 0 }, MOST_LANES = 3000; // beyond, long edges are bent around the boxes between
const LOOSE = 0.1; // how much a lane counts, and a box at an end of the graph, compared with another box

export const most = (numbers) => numbers.reduce((largest, number) => Math.max(largest, number), 0);
export const least = (numbers) => numbers.reduce((smallest, number) => Math.min(smallest, number), Infinity);

// The row of each of `count` items, given in the order they run, and what each reads and feeds.
function rowsOf(count, edges) {
  const reads = Array.from({ length: count }, () => []), feeds = Array.from({ length: count }, () => []);
  for (const [tail, head] of edges) {
    reads[head].push(tail);
    feeds[tail].push(head);
  }
  const missing = reads.map(({ length }) => length), level = Array(count).fill(-1), queue = [];
  missing.forEach((reads, item) => { if (!reads) queue.push(item); });
  for (let at = 0, first = 0; at < count; at += 1) {
    if (at === queue.length) { // all that is left is in a circle, or behind one: the first to run begins
      while (level[first] >= 0) first += 1;
      queue.push(first);
    }
    const item = queue[at];
    level[item] = most(reads[item].map((read) => level[read] + 1));
    for (const feed of feeds[item]) if ((missing[feed] -= 1) === 0 && level[feed] < 0) queue.push(feed);
  }
  // What reads nothing is placed right above the first that reads it, not at the top.
  const lowered = (item) => reads[item].length || !feeds[item].length ? level[item] : Math.max(0, least(feeds[item].map((feed) => level[feed])) - 1);
  return { rows: level.map((_, item) => lowered(item)), reads, feeds };
}

// Place the items of a row as near to the middles they want as their widths allow; what counts more moves less.
function settle(row, sizes, middle, wanted, weights) {
  row.sort((a, b) => wanted[a] - wanted[b] || a - b);
  let left = -Infinity, push = 0, sum = 0;
  for (const item of row) {
    middle[item] = Math.max(left, wanted[item] - sizes[item].w / 2) + sizes[item].w / 2;
    push += weights[item] * (middle[item] - wanted[item]);
    sum += weights[item];
    left = middle[item] + sizes[item].w / 2 + GAP;
  }
  for (const item of row) middle[item] -= push / sum; // boxes were pushed to the right by their neighbours
}

function broken(row, sizes) {
  const lines = [];
  let width = Infinity;
  for (const item of row) {
    if (width + sizes[item].w > WIDEST_ROW) {
      lines.push([]);
      width = 0;
    }
    lines.at(-1).push(item);
    width += sizes[item].w + GAP;
  }
  return lines;
}

// The rectangles of items of these sizes, and by edge those of its lanes. `edges` are pairs of items by a key; those from
// outside have no tail and lanes from the top, those to outside have no head and lanes to the bottom.
function arrange(items, edges) {
  const kind = ([tail, head]) => (tail === undefined ? 1 : head === undefined ? 2 : 0), inner = [...edges.values()].filter((edge) => !kind(edge));
  const { rows: row, reads, feeds } = rowsOf(items.length, inner), last = most(row), sizes = [...items];
  const rows = Array.from({ length: last + 1 }, () => []);
  row.forEach((number, item) => rows[number].push(item));
  const fits = inner.reduce((sum, [tail, head]) => sum + Math.max(0, row[head] - row[tail] - 1), 0) <= MOST_LANES;
  // Lanes in the rows between two items, each read by the next.
  const lanesOf = (edge) => {
    const [tail, head] = edge, above = row[tail] ?? -1, below = row[head] ?? last + 1, lanes = [];
    if (below - above < 2 || (!kind(edge) && !fits)) return lanes;
    if (!kind(edge)) {
      feeds[tail].splice(feeds[tail].indexOf(head), 1);
      reads[head].splice(reads[head].indexOf(tail), 1);
    }
    for (let at = above + 1; at < below; at += 1) {
      const lane = sizes.push(LANE) - 1, before = lanes.at(-1) ?? tail;
      rows[at].push(lane);
      reads.push(before === undefined ? [] : [before]);
      feeds.push([]);
      feeds[before]?.push(lane);
      lanes.push(lane);
    }
    reads[head]?.push(lanes.at(-1));
    if (head !== undefined) feeds[lanes.at(-1)].push(head);
    return lanes;
  };
  const lanes = [...edges].sort(([, a], [, b]) => kind(a) - kind(b)).map(([key, edge]) => [key, lanesOf(edge)]);
  const lines = rows.flatMap((line) => broken(line, sizes)), middle = Array(sizes.length).fill(0), wanted = [...middle];
  const weights = sizes.map((_, item) => (item < items.length && reads[item].length && feeds[item].length ? 1 : LOOSE));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const near = sweep % 2 ? feeds : reads;
    for (const line of sweep % 2 ? lines.toReversed() : lines) {
      for (const item of line) {
        let sum = 0, whole = 0;
        for (const other of near[item]) {
          sum += weights[other] * middle[other];
          whole += weights[other];
        }
        wanted[item] = whole ? sum / whole : middle[item];
      }
      settle(line, sizes, middle, wanted, weights);
    }
  }
  const left = least(middle.map((x, item) => x - sizes[item].w / 2)), rects = [];
  let top = 0;
  for (const line of lines) {
    const high = most(line.map((item) => sizes[item].h));
    for (const item of line) rects[item] = { ...sizes[item], x: middle[item] - sizes[item].w / 2 - left, y: top, high };
    top += high + LAYER;
  }
  return {
    rects: rects.slice(0, items.length),
    lanes: new Map(lanes.map(([key, own]) => [key, own.map((lane) => ({ ...rects[lane], h: rects[lane].high }))])),
    w: most(rects.map(({ x, w }) => x + w)),
    h: Math.max(0, top - LAYER),
  };
}

const moved = (rect, x, y) => ({ ...rect, x: rect.x + x, y: rect.y + y });

// One graph: `homes` has the hull of each box, -1 for none, `titles` the width of each hull's title.
function arrangeGraph(boxes, homes, titles, edges) {
  const hulls = new Map(), units = [], unitOf = [], inside = [], outer = { edges: new Map() };
  boxes.forEach((size, box) => {
    const hull = homes[box];
    if (hull >= 0 && !hulls.has(hull)) hulls.set(hull, { unit: units.push(null) - 1, members: [], edges: new Map() });
    unitOf[box] = hull < 0 ? units.push(size) - 1 : hulls.get(hull).unit;
    if (hull >= 0) inside[box] = hulls.get(hull).members.push(size) - 1;
  });
  const hullOf = (box) => hulls.get(homes[box]);
  // The parts of an edge: where each is arranged, in a hull or among them, and from which item to which.
  const partsOf = edges.map(([tail, head]) => {
    const [from, to] = [hullOf(tail), hullOf(head)];
    if (from && from === to) return [[from, inside[tail], inside[head]]];
    return [[from, inside[tail]], [outer, unitOf[tail], unitOf[head]], [to, undefined, inside[head]]].filter(([own]) => own);
  });
  const keyOf = (tail, head) => `${tail} ${head}`;
  for (const [own, tail, head] of partsOf.flat()) own.edges.set(keyOf(tail, head), [tail, head]);
  for (const [number, hull] of hulls) {
    Object.assign(hull, arrange(hull.members, hull.edges));
    units[hull.unit] = { w: Math.max(hull.w, titles[number]) + 2 * BORDER, h: hull.h + HEADER + BORDER };
  }
  const placed = Object.assign(outer, arrange(units, outer.edges));
  for (const hull of hulls.values()) {
    hull.rect = placed.rects[hull.unit];
    const put = (rect) => ({ ...moved(rect, hull.rect.x + (hull.rect.w - hull.w) / 2, hull.rect.y + HEADER), unit: hull.rect });
    Object.assign(hull, { rects: hull.rects.map(put), lanes: new Map([...hull.lanes].map(([key, own]) => [key, own.map(put)])) });
  }
  return {
    ...placed,
    hulls,
    boxes: boxes.map((_, box) => (homes[box] < 0 ? placed.rects[unitOf[box]] : hullOf(box).rects[inside[box]])),
    lanes: partsOf.map((parts) => parts.flatMap(([own, tail, head]) => own.lanes.get(keyOf(tail, head)))),
  };
}

// The curve of an edge from box to box. A long one straight down would cross the boxes between: it is bent around them.
function direct(tail, head) {
  const x0 = tail.x + tail.w / 2, y0 = tail.y + tail.h, x1 = head.x + head.w / 2, y1 = head.y, widest = Math.max(tail.w, head.w);
  const around = y1 - y0 > 3 * LAYER && Math.abs(x1 - x0) < widest / 2 ? widest * 0.7 + GAP : 0;
  const bend = y1 < y0 - 8 ? 36 : Math.max((y1 - y0) / 2, 4);
  return [x0, y0, x0 + around, y0 + bend, x1 + around, y1 - bend, x1, y1];
}

// The curve of an edge through its lanes, if any: the points of cubic Bézier curves, in one list.
function curve(tail, lanes, head) {
  const x0 = tail.x + tail.w / 2, y0 = tail.y + tail.h, low = tail.high - tail.h > LAYER, points = [x0, y0];
  if (!lanes.length && !low) return direct(tail, head);
  const go = (x, y) => {
    const [fromX, fromY] = points.slice(-2), middle = (fromY + y) / 2;
    points.push(fromX, middle, x, middle, x, y);
  };
  if (low) go(x0, tail.y + tail.high);
  for (const { x, y, w, h } of lanes) {
    go(x + w / 2, y);
    if (h) go(x + w / 2, y + h);
  }
  go(head.x + head.w / 2, head.y);
  return points;
}

// Where the columns of a tall graph begin: between two of its rows.
function columnsOf({ rects, w, h }) {
  const tallest = h > TALLEST ? h / Math.round(Math.sqrt((ASPECT * h) / (w + 3 * GAP))) : h, tops = [0];
  for (const y of rects.map((rect) => rect.y).sort((a, b) => a - b)) if (y - tops.at(-1) > tallest) tops.push(y);
  return tops;
}

// The places of a picture: graphs side by side, tall ones in columns. `boxes` are sizes, `homes` has the hull of each box,
// `widths` that of each hull's title, `edges` pairs of boxes; each graph has a number of `boxes`.
export function place(graphs, boxes, homes, widths, edges) {
  const titles = [], rects = [], groups = [], curves = [];
  let left = 0, bottom = 0, first = 0;
  for (const { boxes: count } of graphs) {
    const end = first + count, inner = edges.flatMap(([tail], edge) => (tail >= first && tail < end ? [edge] : []));
    const graph = arrangeGraph(boxes.slice(first, end), homes.slice(first, end), widths, inner.map((edge) => edges[edge].map((box) => box - first)));
    const tops = columnsOf(graph);
    // A hull, the `unit` of what is in it, is not cut.
    const columnOf = ({ unit, y }) => tops.findLastIndex((top) => top <= (unit ? unit.y : y));
    const put = (rect) => moved(rect, left + columnOf(rect) * (graph.w + 3 * GAP), 2 * GAP - tops[columnOf(rect)]);
    for (const [number, { rect }] of graph.hulls) groups[number] = put(rect);
    for (const rect of graph.boxes) rects.push(put(rect));
    inner.forEach((edge, at) => {
      const [tail, head] = edges[edge].map((box) => graph.boxes[box - first]), apart = columnOf(tail) !== columnOf(head);
      curves[edge] = apart ? direct(put(tail), put(head)) : curve(put(tail), graph.lanes[at].map(put), put(head));
    });
    titles.push([left, 0]);
    left += tops.length * (graph.w + 3 * GAP) + 3 * GAP;
    bottom = most([bottom, ...tops.map((top, i) => (tops[i + 1] ?? graph.h) - top)]);
    first = end;
  }
  return { size: [Math.max(left - 6 * GAP, 1), bottom + 3 * GAP], titles, rects, groups, curves };
}
