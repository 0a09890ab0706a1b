// Lays out the boxes of a saved page, by the rows that it has for the parts of each fold.

const GAP = 14, LAYER = 16, BORDER = 7, HEADER = 20, WIDEST_LINE = 1000, TALLEST = 900, ASPECT = 1.8;

const largest = (numbers) => numbers.reduce((most, number) => Math.max(most, number), 0);
const rowWidth = (row) => row.reduce((sum, { w }) => sum + w + GAP, -GAP);

// Place the folds inside `outer`, and set its size. An open fold that is alone in its row is replaced by its own rows.
function stack(outer, folds, hull = 0) {
  const rows = [], rowsOf = ({ rows }) => rows.map((row) => row.map((i) => folds[i]));
  const addRow = (row) => {
    const [fold] = row;
    if (row.length === 1 && fold.open && !fold.hull) return rowsOf(fold).forEach(addRow);
    rows.push([]);
    for (const fold of row) {
      if (fold.open) stack(fold, folds, fold.hull);
      else [fold.w, fold.h] = fold.size;
      if (rows.at(-1).length && rowWidth([...rows.at(-1), fold]) > WIDEST_LINE) rows.push([]);
      rows.at(-1).push(fold);
    }
  };
  rowsOf(outer).forEach(addRow);
  const border = hull ? BORDER : 0;
  let top = hull ? HEADER : 0;
  outer.w = largest([hull, ...rows.map(rowWidth)]) + 2 * border;
  for (const row of rows) {
    let left = (outer.w - rowWidth(row)) / 2;
    for (const fold of row) {
      Object.assign(fold, { x: left, y: top });
      left += fold.w + GAP;
    }
    top += largest(row.map(({ h }) => h)) + LAYER;
  }
  Object.assign(outer, { h: top - LAYER + border, inside: rows.flat() });
}

function shift(fold, x, y) {
  fold.x += x;
  fold.y += y;
  if (fold.open) for (const inner of fold.inside) shift(inner, fold.x, fold.y);
}

// Graphs are placed side by side, tall ones in columns.
export function place({ graphs, folds, kept, hulls, edges }) {
  const titles = [];
  let left = 0, bottom = 0;
  for (const graph of graphs) {
    stack(graph, folds);
    titles.push([left, 0]);
    const { w, h, inside } = graph, tallest = h > TALLEST ? h / Math.round(Math.sqrt((ASPECT * h) / w)) : h;
    let top = 0;
    for (const fold of inside) {
      if (fold.y - top > tallest) [left, top] = [left + w + 3 * GAP, fold.y];
      shift(fold, left, 2 * GAP - top);
      bottom = Math.max(bottom, fold.y + fold.h);
    }
    left += w + 6 * GAP;
  }
  const rects = (boxes) => boxes.flatMap(({ x, y, w, h }) => [x, y, w, h]);
  return { size: [left - 6 * GAP, bottom + GAP], titles, rects: rects(kept), groups: rects(hulls), curves: [], curve_ends: edges.map(() => 0) };
}
