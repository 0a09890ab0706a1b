// A tab of graphs: its nodes and folds, and the picture of those folds that are open.

import { least, most, place } from "./layout.js";
import { PLUS } from "./letters.js";

const NOTES = ["recomputed in the backward", "random", "taken out of its region: runs eagerly"]; // by the bit of `flags`
const MOST_READS = 4, // a box with this many nodes does not list what it reads
  MOST_HALF = 110; // characters of a node's name, and of its target

// The texts at a place of columns, which are called by the plurals of these names and have numbers of `texts`.
const textsOf = (columns, i, names) =>
  Object.fromEntries(names.map((name) => [name, columns.texts[columns[`${name}s`][i]]]));

const half = (text) => (text.length <= MOST_HALF ? text : `${text.slice(0, MOST_HALF - 1).trimEnd()}…`);
const counted = (number, noun) => `${number.toLocaleString("en-US")} ${noun}${number === 1 ? "" : "s"}`;

// The nodes of a tab in the order they run, its folds, outer ones first, and its pieces of regions.
export class Outline {
  nodes = [];
  ids = []; // of the nodes, as `graph:name`
  folds = [];
  pieces = [];
  graphs = [];
  groups = {}; // the group of each node by what can be coloured

  constructor(tab, graphs, regions) {
    this.tab = tab;
    this.regions = regions;
    for (const graph of graphs) this.add(graph);
    this.byId = new Map(this.ids.map((id, node) => [id, node]));
    this.nodes.forEach((node, number) => {
      if (node.op !== number) return;
      for (let fold = node.home; fold; fold = fold.parent) {
        fold.first ??= number;
        fold.ops += 1;
        fold.holds ||= Boolean(node.piece);
        fold.failed ||= node.piece?.state === "failed";
      }
    });
    // What identifies a fold under every plan: of several with the same ops, no two look alike.
    for (const fold of this.folds) fold.key = `${this.ids[fold.first]} ${fold.ops} ${fold.look}`;
    // The states of pieces and the signs of nodes: what the legend explains.
    this.used = new Set([...this.pieces.map(({ state }) => state), ...this.nodes.flatMap(({ sign }) => [...sign])]);
  }

  add({ id, names, facts, folds, pieces }) {
    const first = this.nodes.length,
      own = [];
    folds.parents.forEach((parent, i) =>
      own.push({
        ...textsOf(folds, i, ["look", "title", "detail", "crumb", "kind", "sign"]),
        parent: own[parent],
        piece: pieces[folds.pieces[i]],
        time: folds.times?.folds[i],
        open: folds.open[i],
        ops: 0,
      }),
    );
    names.forEach((name, i) => {
      this.ids.push(`${id}:${name}`);
      this.nodes.push({
        ...textsOf(facts, i, ["name", "target", "value", "module", "source", "look", "title", "sign"]),
        outside: facts.texts[facts.outside[i]],
        op: first + facts.ops[i],
        flags: facts.flags[i],
        reads: facts.reads[i].map((read) => first + read),
        home: own[folds.homes[i]],
        piece: pieces[folds.node_pieces[i]],
        time: folds.times?.nodes[i],
      });
    });
    for (const [title, numbers] of Object.entries(facts.groups)) {
      const groups = (this.groups[title] ??= []);
      numbers.forEach((number, i) => (groups[first + i] = facts.texts[number]));
    }
    this.folds.push(...own);
    this.pieces.push(...pieces);
    this.graphs.push({ id, title: facts.title, first, count: names.length });
  }

  // The folds from the outermost down to the one with this key, without those that hold a single op.
  path(key) {
    const path = [];
    for (let fold = this.folds.find((one) => one.key === key); fold; fold = fold.parent)
      if (fold.ops > 1) path.unshift(fold);
    return path;
  }

  // These nodes, with all that they depend on, or all that depends on them: a node runs after those that it reads.
  reach(nodes, up) {
    const reached = new Set(nodes),
      all = [...this.nodes.entries()];
    for (const [node, { reads }] of up ? all.reverse() : all) {
      if (up && reached.has(node)) for (const read of reads) reached.add(read);
      if (!up && reads.some((read) => reached.has(read))) reached.add(node);
    }
    return [...reached];
  }
}

// The boxes of an outline with some folds open, their places, and the edges between them.
export class Picture {
  width = 1;
  height = 1;
  nodeBoxes = [];
  members = []; // the nodes of each box, in order
  titles; // the positions of the titles of graphs
  rects; // the places of boxes
  groups; // the places of hulls
  curves; // the points of each edge
  timed = false; // whether labels and tooltips have the times

  // `chosen` says of the keys of folds whether the user opened them, `all` of the others.
  constructor(outline, opening, measure) {
    this.outline = outline;
    this.opening = opening;
    const { nodes, folds, tab, ids, byId, regions } = outline,
      { chosen = {}, all = null } = opening,
      opens = (fold) => chosen[fold.key] ?? all ?? (tab.pieces ? fold.holds && !fold.piece : fold.open),
      closed = new Map(), // the outermost closed fold around the inside of each
      boxes = new Map();
    this.ids = ids;
    this.byId = byId;
    this.regions = regions;
    this.tab = tab.id;
    this.nodes = nodes.length;
    for (const fold of folds) closed.set(fold, closed.get(fold.parent) ?? (opens(fold) ? undefined : fold));
    nodes.forEach((node, number) => {
      const owner = closed.get(node.home) ?? node;
      if (node.op === number && !boxes.has(owner)) boxes.set(owner, boxes.size);
      const box = node.op === number ? boxes.get(owner) : this.nodeBoxes[node.op];
      this.nodeBoxes.push(box);
      (this.members[box] ??= []).push(number);
    });
    this.owners = [...boxes.keys()];
    this.boxes = boxes.size;
    this.shared = [...this.owners.keys()].filter((box) => this.owners[box].holds && !this.piece(box));
    const boxesIn = ({ first, count }) => new Set(this.nodeBoxes.slice(first, first + count)).size;
    this.graphs = outline.graphs.map((graph) => ({ ...graph, boxes: boxesIn(graph) }));
    this.connect();
    this.place(measure);
  }

  // The edges between boxes, and the hulls: each around the boxes of a piece that are in no closed fold of all of it.
  connect() {
    const edges = new Map();
    this.outline.nodes.forEach(({ reads }, node) => {
      for (const read of reads) {
        const [tail, head] = [this.nodeBoxes[read], this.nodeBoxes[node]];
        if (tail !== head) edges.set(tail * this.boxes + head, [tail, head]);
      }
    });
    this.edges = [...edges.values()];
    const held = this.owners.map(({ look, piece }) => (look === "piece" ? undefined : piece)),
      pieces = new Set(held);
    this.hulls = this.outline.pieces.filter((piece) => pieces.has(piece));
    const numbers = new Map(this.hulls.map((piece, hull) => [piece, hull]));
    this.boxHulls = held.map((piece) => numbers.get(piece) ?? -1);
  }

  place(measure) {
    const sizes = this.owners.map((_, box) => this.size(box, measure)),
      names = this.hulls.map(({ words }) => 1.08 * measure(words[0], 12));
    const { size, ...places } = place(this.graphs, sizes, this.boxHulls, names, this.edges);
    [this.width, this.height] = size;
    Object.assign(this, places);
  }

  // The room that a box takes: its texts, the sign of a fold, and the letter of its region.
  size(box, measure) {
    const isView = this.look(box) === "view",
      detail = this.detail(box),
      signs = this.signs(box);
    const title = measure(this.title(box), isView ? 8 : 10) + (signs ? measure(signs, 7.5) + 3 : 0);
    const texts = Math.max(title, measure(detail, 8)) + (isView ? 8 : 12) + (this.opens(box) ? PLUS : 0);
    return { w: Math.max(texts, 22) + (this.piece(box) ? 14 : 0), h: detail ? 28 : isView ? 12 : 17 };
  }

  nodesIn = (box) => this.members[box] ?? [];
  idsOf = (nodes) => nodes.map((node) => this.ids[node]);
  idOf = (box) => this.ids[this.nodesIn(box)[0]]; // of its first node
  boxWith = (id) => this.nodeBoxes[this.byId.get(id)] ?? -1;
  rect = (box) => this.rects[box];
  look = (box) => this.owners[box].look;
  kind = (box) => this.owners[box].kind ?? "op";
  title = (box) => this.owners[box].title;
  detail = (box) => this.owners[box].detail ?? "";
  signs = (box) => this.owners[box].sign;
  opens = (box) => (this.owners[box].ops > 1 ? this.owners[box] : null); // the fold to open
  around = (box) => (this.owners[box].ops ? this.owners[box].parent : this.owners[box].home); // the open fold around it
  failed = (box) => this.look(box) === "bad" || Boolean(this.opens(box)?.failed);
  piece = (box) => this.owners[box].piece;

  // The path of the innermost module that all of these nodes are in.
  module(nodes) {
    const paths = [...new Set(nodes.map((node) => this.outline.nodes[node].module))].filter(Boolean),
      names = (paths[0] ?? "").split(".");
    while (names[0] && !paths.every((path) => `${path}.`.startsWith(`${names.join(".")}.`))) names.pop();
    return names.join(".");
  }

  shares(box) {
    const counts = new Map();
    for (const node of this.nodesIn(box)) {
      const { op, piece } = this.outline.nodes[node];
      if (op === node && piece) counts.set(piece.region, (counts.get(piece.region) ?? 0) + 1);
    }
    return [...counts].sort(([a], [b]) => a - b).map(([region, count]) => [region, count / this.owners[box].ops]);
  }

  // The tooltip of a box, as pairs of a word and a text.
  about(box) {
    const nodes = this.nodesIn(box).map((node) => this.outline.nodes[node]),
      [{ name, target, value, source, outside }] = nodes,
      opens = this.opens(box);
    const rows = [
      ["", opens && this.detail(box)],
      ["holds", opens && `${counted(nodes.length, "op")} · + or double-click opens it`],
      ["node", !opens && `${half(name)} = ${half(target)}`],
      ["gives", !opens && value],
      ["module", this.module(this.nodesIn(box))],
      ["line", !opens && source],
      ["reads", nodes.length < MOST_READS && outside],
      ...NOTES.map((note, bit) => ["note", nodes.some(({ flags }) => (flags >> bit) & 1) && note]),
      ["time", this.timed && this.owners[box].time?.[2]],
    ];
    return [...rows.filter(([, text]) => text), ...(this.piece(box)?.facts ?? [])];
  }

  // The box, or with `groups` the hull, at a point; -1 if there is none.
  at(px, py, slack, rects = this.rects) {
    const near = (at, from, length) => at >= from - slack && at <= from + length + slack;
    return rects.findLastIndex(({ x, y, w, h }) => near(px, x, w) && near(py, y, h));
  }

  nearest({ x, y }) {
    const distances = this.rects.map((rect) => Math.hypot(rect.x + rect.w / 2 - x, rect.y + rect.h / 2 - y));
    return distances.indexOf(least(distances));
  }

  boxesOf = (nodes) => [...new Set(nodes.map((node) => this.nodeBoxes[node]))];

  counts(nodes) {
    const counts = new Uint32Array(this.boxes);
    for (const node of nodes) counts[this.nodeBoxes[node]] += 1;
    return counts;
  }

  numbers = (ids) => ids.map((id) => this.byId.get(id)).filter((node) => node !== undefined);

  where = (test) => [...this.nodeBoxes.keys()].filter((node) => test(node));
  pieceOf = (node) => this.outline.nodes[node].piece;
  nodesOfPiece = (piece) => this.where((node) => this.pieceOf(node) === piece);
  nodesOfRegion = (region) => this.where((node) => this.pieceOf(node)?.region === region);
  nodesOfModule = (path) => this.where((node) => `${this.outline.nodes[node].module}.`.startsWith(`${path}.`));

  // All nodes between two boxes in the order they run, both included; within the graph of the second one.
  range(from, to) {
    const held = [from, to].flatMap(this.nodesIn);
    if (!held.length) return [];
    const { first, count } = this.graphs.findLast((graph) => graph.first <= held.at(-1));
    const low = Math.max(least(held), first),
      high = Math.min(most(held), first + count - 1);
    return this.where((node) => node >= low && node <= high);
  }
}
