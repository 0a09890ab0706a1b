// Lays out the boxes of a saved page, by the rows that it has for the parts of each fold.

const GAP = 14, LAYER = 16, EDGE = 7, HEAD = 20, WIDEST = 1000, TALLEST = 900, ASPECT = 1.8;

const most = (numbers) => Math.max(0, ...numbers);
const width = (row) => row.reduce((sum, { w }) => sum + w + GAP, -GAP);

// Place the folds inside `whole`, and set its size. An open fold that is alone in its row is replaced by its own rows.
function stack(whole, folds, hull = 0) {
  const rows = [], rowsOf = ({ rows }) => rows.map((row) => row.map((at) => folds[at]));
  const add = (row) => {
    const [fold] = row;
    if (row.length === 1 && fold.open && !fold.hull) return rowsOf(fold).forEach(add);
    rows.push([]);
    for (const fold of row) {
      if (fold.open) stack(fold, folds, fold.hull);
      else [fold.w, fold.h] = fold.size;
      if (rows.at(-1).length && width([...rows.at(-1), fold]) > WIDEST) rows.push([]);
      rows.at(-1).push(fold);
    }
  };
  rowsOf(whole).forEach(add);
  const edge = hull ? EDGE : 0;
  let top = hull ? HEAD : 0;
  whole.w = most([hull, ...rows.map(width)]) + 2 * edge;
  for (const row of rows) {
    let left = (whole.w - width(row)) / 2;
    for (const fold of row) {
      Object.assign(fold, { x: left, y: top });
      left += fold.w + GAP;
    }
    top += most(row.map(({ h }) => h)) + LAYER;
  }
  Object.assign(whole, { h: top - LAYER + edge, inside: rows.flat() });
}

function shift(fold, x, y) {
  fold.x += x;
  fold.y += y;
  if (fold.open) for (const one of fold.inside) shift(one, fold.x, fold.y);
}

// Graphs are placed side by side, tall ones in columns.
export function place({ graphs, folds, kept, hulls, edges }) {
  const titles = [];
  let left = 0, low = 0;
  for (const graph of graphs) {
    stack(graph, folds);
    titles.push([left, 0]);
    const { w, h, inside } = graph, tallest = h > TALLEST ? h / Math.round(Math.sqrt((ASPECT * h) / w)) : h;
    let top = 0;
    for (const fold of inside) {
      if (fold.y - top > tallest) [left, top] = [left + w + 3 * GAP, fold.y];
      shift(fold, left, 2 * GAP - top);
      low = Math.max(low, fold.y + fold.h);
    }
    left += w + 6 * GAP;
  }
  const rects = (some) => some.flatMap(({ x, y, w, h }) => [x, y, w, h]);
  return { size: [left - 6 * GAP, low + GAP], titles, rects: rects(kept), groups: rects(hulls), curves: [], curve_ends: edges.map(() => 0) };
}
