// The unpacked payload of a picture, with the queries on it: boxes, rectangles, nodes, pieces and texts by number.

import { place } from "./layout.js";
import { PLUS } from "./letters.js";

const NODE_FACTS = 5,
  BOX_TEXTS = 5;

// Arrays arrive as views of one big buffer, at unaligned offsets, so they are copied; in a saved page as lists.
const toBuffer = (view) =>
  Array.isArray(view)
    ? view
    : new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength).slice().buffer;
const toUint32 = (view) => new Uint32Array(toBuffer(view));
const toInt32 = (view) => new Int32Array(toBuffer(view));

// Return a function from an owner to its members, in order: they are one array with an offset per owner.
function byOwner(owners, count) {
  const starts = new Uint32Array(count + 1),
    members = new Uint32Array(owners.length);
  for (const owner of owners) starts[owner + 1] += 1;
  for (let owner = 0; owner < count; owner += 1) starts[owner + 1] += starts[owner];
  const next = starts.slice();
  owners.forEach((owner, member) => {
    members[next[owner]++] = member;
  });
  return (owner) => members.subarray(starts[owner], starts[owner + 1]);
}

export class Picture {
  width = 1;
  height = 1;
  /** @type {number[][]} the positions of the titles of graphs */ titles = [];
  /** @type {string[]} the overlay's label of each box */ labels = [];
  /** @type {string[]} the overlay's tooltip of each box */ tooltips = [];

  // `measure(text, size)` is the width of a text.
  constructor(payload, measure) {
    const { number, tab, graphs, regions, pieces, styles, texts } = payload;
    this.number = number;
    this.tab = tab;
    this.graphs = graphs;
    this.regions = regions;
    this.pieces = pieces;
    this.styles = styles;
    this.texts = texts;
    this.boxTexts = toUint32(payload.box_texts);
    this.boxStyles = toUint32(payload.box_styles);
    this.boxTooltips = toUint32(payload.box_tooltips);
    this.boxTooltipEnds = toUint32(payload.box_tooltip_ends);
    this.boxShares = toUint32(payload.box_shares);
    this.boxShareEnds = toUint32(payload.box_share_ends);
    this.boxPieces = toInt32(payload.box_pieces);
    this.pieceStyles = toUint32(payload.piece_styles);
    this.nodeFacts = toUint32(payload.node_facts);
    this.nodeBoxes = toUint32(payload.node_boxes);
    this.nodePieces = toInt32(payload.node_pieces);
    this.groupPieces = toUint32(payload.group_pieces);
    this.boxGroups = toInt32(payload.box_groups);
    this.edges = toUint32(payload.edges);
    this.boxes = this.boxPieces.length;
    this.nodes = this.nodeBoxes.length;
    this.nodesIn = byOwner(this.nodeBoxes, this.boxes);
    this.ids = [];
    for (const graph of this.graphs) {
      for (let i = graph.first; i < graph.first + graph.count; i += 1)
        this.ids.push(`${graph.id}:${payload.node_names[i]}`);
    }
    const boxes = Array.from(this.boxPieces.keys());
    this.shared = boxes.filter((box) => this.boxShareEnds[box] > (this.boxShareEnds[box - 1] ?? 0));
    this.byId = new Map(this.ids.map((id, node) => [id, node]));
    this.place(measure);
  }

  place(measure) {
    const sizes = Array.from(this.boxPieces, (_, box) => this.size(box, measure));
    const names = Array.from(this.groupPieces, (piece) => 1.08 * measure(this.pieces[piece].words[0], 12));
    const pairs = Array.from({ length: this.edges.length / 2 }, (_, edge) => [
      ...this.edges.subarray(2 * edge, 2 * edge + 2),
    ]);
    const places = place(this.graphs, sizes, [...this.boxGroups], names, pairs);
    [this.width, this.height] = places.size;
    this.titles = places.titles;
    this.rects = places.rects;
    this.groups = places.groups;
    this.curves = places.curves;
    this.curveEnds = places.curveEnds;
  }

  // The room that a box takes: its texts, the sign of a fold, and the letter of its region.
  size(box, measure) {
    const { size, look } = this.styles.light.boxes[this.boxStyles[box]],
      isView = look === "view",
      detail = this.detail(box),
      signs = this.signs(box);
    const title = measure(this.title(box), size) + (signs ? measure(signs, 7.5) + 3 : 0);
    const texts = Math.max(title, measure(detail, 8)) + (isView ? 8 : 12) + (this.opens(box) ? PLUS : 0);
    return { w: Math.max(texts, 22) + (this.boxPieces[box] < 0 ? 0 : 14), h: detail ? 28 : isView ? 12 : 17 };
  }

  text(box, field) {
    return this.texts[this.boxTexts[box * BOX_TEXTS + field]];
  }
  title = (box) => this.text(box, 0);
  detail = (box) => this.text(box, 1);
  signs = (box) => this.text(box, 2);
  opens = (box) => this.text(box, 3); // the key of the fold to open; "" if there is none
  around = (box) => this.text(box, 4); // the key of the open fold around it
  fact(node, field) {
    return this.texts[this.nodeFacts[node * NODE_FACTS + field]];
  }
  module = (node) => this.fact(node, 3);
  piece = (box) => this.pieces[this.boxPieces[box]] ?? null;

  // The share of each region in the nodes of a box, as pairs of a region and a fraction.
  shares(box) {
    const numbers = this.boxShares.subarray(this.boxShareEnds[box - 1] ?? 0, this.boxShareEnds[box]),
      pairs = [];
    let ops = 0;
    for (const node of this.nodesIn(box)) if (this.fact(node, 1) !== "_operator.getitem") ops += 1;
    for (let i = 0; i < numbers.length; i += 2) pairs.push([numbers[i], numbers[i + 1] / ops]);
    return pairs;
  }

  // The tooltip of a box, as pairs of a word and a text.
  about(box) {
    const numbers = this.boxTooltips.subarray(this.boxTooltipEnds[box - 1] ?? 0, this.boxTooltipEnds[box]),
      pairs = [];
    for (let i = 0; i < numbers.length; i += 2) pairs.push([this.texts[numbers[i]], this.texts[numbers[i + 1]]]);
    if (this.tooltips[box]) pairs.push(["time", this.tooltips[box]]);
    return [...pairs, ...(this.piece(box)?.facts ?? [])];
  }

  rect(box, rects = this.rects) {
    const i = box * 4;
    return { x: rects[i], y: rects[i + 1], w: rects[i + 2], h: rects[i + 3] };
  }

  // The box, or with `groups` the hull, at a point; -1 if there is none.
  at(x, y, slack = 0, rects = this.rects) {
    for (let i = rects.length - 4; i >= 0; i -= 4) {
      const dx = x - rects[i],
        dy = y - rects[i + 1];
      if (dx >= -slack && dy >= -slack && dx <= rects[i + 2] + slack && dy <= rects[i + 3] + slack) return i / 4;
    }
    return -1;
  }

  // The box whose middle is nearest to a point; -1 if there is none.
  nearest({ x, y }) {
    let best = -1,
      least = Infinity;
    for (let box = 0; box < this.boxes; box += 1) {
      const rect = this.rect(box),
        distance = Math.hypot(rect.x + rect.w / 2 - x, rect.y + rect.h / 2 - y);
      if (distance < least) {
        least = distance;
        best = box;
      }
    }
    return best;
  }

  counts(nodes) {
    const boxCounts = new Uint32Array(this.boxes);
    for (const node of nodes) boxCounts[this.nodeBoxes[node]] += 1;
    return boxCounts;
  }

  numbers(ids) {
    return ids.map((id) => this.byId.get(id)).filter((node) => node !== undefined);
  }

  where(test) {
    const nodes = [];
    for (let node = 0; node < this.nodes; node += 1) if (test(node)) nodes.push(node);
    return nodes;
  }

  nodesOfPiece = (piece) => this.where((node) => this.nodePieces[node] === piece);
  nodesOfRegion = (region) => this.where((node) => this.pieces[this.nodePieces[node]]?.region === region);
  nodesOfModule = (path) => this.where((node) => `${this.module(node)}.`.startsWith(`${path}.`));

  // All nodes between two boxes in the order they run, both included; within the graph of the second one.
  range(from, to) {
    const held = [this.nodesIn(from), this.nodesIn(to)].filter((nodes) => nodes.length),
      ends = held.flatMap((nodes) => [nodes[0], nodes.at(-1)]);
    if (!ends.length) return [];
    const { first, count } = this.graphs.findLast((graph) => graph.first <= ends.at(-1));
    const low = Math.max(Math.min(...ends), first),
      high = Math.min(Math.max(...ends), first + count - 1);
    return this.where((node) => node >= low && node <= high);
  }
}
