// Decides in a saved page which folds are open, and what is drawn: as `opening.py` and `compose.py` do.

const NEVER = 9;

// `chosen` maps keys of folds that the user opened or closed to true or false; `all`, if set, is for all other folds.
export function unfold({ folds, graphs, budget, chosen, all }) {
  for (const fold of folds) fold.open = false;
  for (const { tops } of graphs) {
    const queue = [];
    let boxes = tops.length;
    const offer = (parts, depth) => {
      for (const fold of parts.map((i) => folds[i])) {
        const saved = fold.turn, turn = saved < -1 ? saved : ({ true: -1, false: NEVER })[chosen[fold.key] ?? all] ?? saved;
        if (fold.parts.length && turn < NEVER) queue.push({ fold, depth, turn });
      }
      queue.sort((a, b) => a.turn - b.turn || a.depth - b.depth);
    };
    offer(tops, 0);
    while (queue.length) {
      const { fold, depth, turn } = queue.shift(), added = fold.parts.length - 1;
      if (turn >= 0 && boxes + added > budget) continue;
      fold.open = true;
      boxes += added;
      offer(fold.parts, depth + 1);
    }
  }
}

const offsets = (lists, end = 0) => lists.map(({ length }) => (end += length));

// The payload of what is shown, as the kernel would send it, without places; `kept` are the folds shown as boxes.
export function shown(tab) {
  const { folds } = tab, kept = [], edges = {};
  for (const fold of folds) {
    const outer = folds[fold.parent];
    fold.at = outer && !outer.open ? outer.at : fold.open ? -1 : kept.push(fold) - 1;
  }
  for (const edge of tab.edges) {
    const [tail, head] = edge.map((end) => folds[end].at);
    if (tail !== head) edges[`${tail} ${head}`] = [tail, head];
  }
  const hulls = folds.filter(({ open, hull }) => open && hull), tooltips = kept.map(({ tooltip }) => tooltip), shares = kept.map((fold) => fold.shares);
  return {
    ...tab, kept, hulls, edges: Object.values(edges).flat(), node_boxes: tab.nodes.map((i) => folds[i].at),
    group_pieces: hulls.map(({ piece }) => piece), box_pieces: kept.map(({ piece }) => piece),
    box_texts: kept.flatMap(({ texts }) => texts), box_styles: kept.map(({ style }) => style),
    box_tooltips: tooltips.flat(), box_tooltip_ends: offsets(tooltips), box_shares: shares.flat(), box_share_ends: offsets(shares),
  };
}
