// Decides in a saved page which folds are open, and what is drawn: as `opening.py` and `compose.py` do.

// Turns, as in `opening.py`; the others say which folds are opened first.
const FIXED = -2, AT_ONCE = -1, NEVER = 9;

// `chosen` maps keys of folds that the user opened or closed to true or false; `all`, if set, is for all other folds.
export function unfold({ folds, graphs, budget, chosen, all }) {
  for (const fold of folds) fold.open = false;
  for (const { tops } of graphs) {
    const queue = [];
    let boxes = tops.length;
    const offer = (parts, depth) => {
      for (const fold of parts.map((i) => folds[i])) {
        if (fold.parts.length && fold.turn !== NEVER) queue.push({ fold, depth, turn: fold.turn });
      }
      queue.sort((a, b) => a.turn - b.turn || a.depth - b.depth);
    };
    offer(tops, 0);
    while (queue.length) {
      const { fold, depth, turn } = queue.shift(), added = fold.parts.length - 1;
      if (turn > AT_ONCE && boxes + added > budget) continue;
      fold.open = true;
      boxes += added;
      offer(fold.parts, depth + 1);
    }
  }
  // What was chosen changes no other fold; what lies in a closed one is not shown.
  for (const fold of folds) {
    const opened = fold.turn === FIXED || (chosen[fold.key] ?? all ?? fold.open);
    fold.open = opened && fold.parts.length > 0 && folds[fold.parent]?.open !== false;
  }
}

const each = (folds, name) => folds.map((fold) => fold[name]);
const offsets = (lists, end = 0) => lists.map(({ length }) => (end += length));

// The payload of what is shown, as the kernel would send it; `kept` are the folds shown as boxes.
export function shown(tab) {
  const { folds } = tab, kept = [], hulls = [], edges = {}, graphs = tab.graphs.map((graph) => ({ ...graph, boxes: 0 }));
  folds.forEach((fold, number) => {
    const outer = folds[fold.parent];
    fold.group = fold.open && fold.hull ? hulls.push(fold) - 1 : (outer?.group ?? -1);
    fold.at = outer && !outer.open ? outer.at : fold.open ? -1 : kept.push(fold) - 1;
    if (fold.at === kept.length - 1 && kept.at(-1) === fold) graphs.find(({ end }) => number < end).boxes += 1;
  });
  for (const edge of tab.edges) {
    const [tail, head] = edge.map((end) => folds[end].at);
    if (tail !== head) edges[`${tail} ${head}`] = [tail, head];
  }
  const tooltips = each(kept, "tooltip"), shares = each(kept, "shares");
  return {
    ...tab, graphs, kept, edges: Object.values(edges).flat(), node_boxes: tab.nodes.map((i) => folds[i].at),
    group_pieces: each(hulls, "piece"), box_groups: each(kept, "group"), box_pieces: each(kept, "piece"),
    box_texts: each(kept, "texts").flat(), box_styles: each(kept, "style"),
    box_tooltips: tooltips.flat(), box_tooltip_ends: offsets(tooltips), box_shares: shares.flat(), box_share_ends: offsets(shares),
  };
}

// An overlay: the colours of partitions, or for shares of the time those of boxes.
export function heat(colours, { kept, number }) {
  if (!colours.light) return colours;
  const [times, labels, tooltips] = [0, 1, 2].map((i) => kept.map(({ time }) => time?.[i]));
  const scale = (colours.light.length - 1) / times.reduce((most, time) => Math.max(most, time ?? 0), 0);
  return { ...colours, of: number, steps: times.map((time) => Math.round(time * scale)), labels, tooltips };
}
