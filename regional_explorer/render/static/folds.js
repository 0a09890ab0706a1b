// Decides in a saved page which folds are open, and what is drawn: as `opening.py` and `compose.py` do.

const NEVER = 9;

// `chosen` maps keys of folds that the user opened or closed to true or false; `all`, if set, is for all other folds.
export function unfold({ folds, graphs, budget, chosen, all }) {
  for (const fold of folds) fold.open = false;
  for (const { tops } of graphs) {
    const waiting = [];
    let boxes = tops.length;
    const offer = (parts, depth) => {
      for (const fold of parts.map((at) => folds[at])) {
        const own = fold.turn, turn = own < -1 ? own : ({ true: -1, false: NEVER })[chosen[fold.key] ?? all] ?? own;
        if (fold.parts.length && turn < NEVER) waiting.push({ fold, depth, turn });
      }
      waiting.sort((one, other) => one.turn - other.turn || one.depth - other.depth);
    };
    offer(tops, 0);
    while (waiting.length) {
      const { fold, depth, turn } = waiting.shift(), more = fold.parts.length - 1;
      if (turn >= 0 && boxes + more > budget) continue;
      fold.open = true;
      boxes += more;
      offer(fold.parts, depth + 1);
    }
  }
}

const ends = (lists, end = 0) => lists.map(({ length }) => (end += length));

// The payload of what is shown, as the kernel would send it, without places; `kept` are the folds shown as boxes.
export function shown(whole) {
  const { folds } = whole, kept = [], edges = {};
  for (const fold of folds) {
    const around = folds[fold.parent];
    fold.at = around && !around.open ? around.at : fold.open ? -1 : kept.push(fold) - 1;
  }
  for (const edge of whole.edges) {
    const [tail, head] = edge.map((end) => folds[end].at);
    if (tail !== head) edges[`${tail} ${head}`] = [tail, head];
  }
  const hulls = folds.filter(({ open, hull }) => open && hull), tooltips = kept.map(({ tooltip }) => tooltip), shares = kept.map((fold) => fold.shares);
  return {
    ...whole, kept, hulls, edges: Object.values(edges).flat(), node_boxes: whole.nodes.map((at) => folds[at].at),
    group_pieces: hulls.map(({ piece }) => piece), box_pieces: kept.map(({ piece }) => piece),
    box_texts: kept.flatMap(({ texts }) => texts), box_styles: kept.map(({ style }) => style),
    box_tooltips: tooltips.flat(), box_tooltip_ends: ends(tooltips), box_shares: shares.flat(), box_share_ends: ends(shares),
  };
}
