// What is drawn: the payload unpacked, with the questions that are asked of it.

import { numbers } from "./dom.js";

// Which text of a node: the order of the payload's.
export const FACT = { name: 0, target: 1, op: 2, value: 3, module: 4, source: 5, reads: 6 };
const FACTS = 7, BOX_TEXTS = 5;
const ARRAYS = {
  boxTexts: [Uint32Array, "box_texts"], boxLooks: [Uint8Array, "box_looks"], boxRegions: [Int32Array, "box_regions"],
  boxMarks: [Uint32Array, "box_marks"], facts: [Uint32Array, "node_facts"], flags: [Uint8Array, "node_flags"],
  nodeBoxes: [Uint32Array, "node_boxes"], nodePieces: [Int32Array, "node_pieces"],
  groupPieces: [Uint32Array, "group_pieces"], edges: [Uint32Array, "edges"], links: [Uint32Array, "links"],
};

// For each of `count` owners the members that name it, as one array and where each owner's part of it starts.
function byOwner(owners, count, step = 1, at = 0) {
  const starts = new Uint32Array(count + 1);
  for (let i = at; i < owners.length; i += step) starts[owners[i] + 1] += 1;
  for (let i = 0; i < count; i += 1) starts[i + 1] += starts[i];
  const members = new Uint32Array(starts[count]);
  const next = starts.slice();
  for (let i = at, number = 0; i < owners.length; i += step, number += 1) members[next[owners[i]]++] = number;
  return (owner) => members.subarray(starts[owner], starts[owner + 1]);
}

export class Picture {
  constructor(payload) {
    for (const name of ["number", "tab", "graphs", "regions", "pieces", "marks", "states", "notes", "looks", "grounds", "texts"]) {
      this[name] = payload[name];
    }
    for (const [name, [Type, from]] of Object.entries(ARRAYS)) this[name] = numbers(Type, payload[from]);
    this.boxes = this.boxLooks.length;
    this.nodes = this.nodeBoxes.length;
    this.nodesIn = byOwner(this.nodeBoxes, this.boxes);
    this.users = byOwner(this.links, this.nodes, 2, 0);
    this.feeds = byOwner(this.links, this.nodes, 2, 1);
    this.ids = [];
    for (const graph of this.graphs) {
      for (let i = graph.first; i < graph.first + graph.count; i += 1) this.ids.push(`${graph.id}:${payload.node_names[i]}`);
    }
    this.byId = new Map(this.ids.map((id, node) => [id, node]));
    this.boxPieces = new Int32Array(this.boxes).fill(-1);
    for (let node = 0; node < this.nodes; node += 1) {
      if (this.boxRegions[this.nodeBoxes[node]] >= 0) this.boxPieces[this.nodeBoxes[node]] = this.nodePieces[node];
    }
    this.place(payload.places);
  }

  place(places) {
    [this.width, this.height] = places.size;
    this.titles = places.titles;
    this.rects = numbers(Float32Array, places.rects);
    this.groups = numbers(Float32Array, places.groups);
    this.curves = numbers(Float32Array, places.curves);
    this.curveEnds = numbers(Uint32Array, places.curve_ends);
  }

  title(box) { return this.texts[this.boxTexts[box * BOX_TEXTS]]; }
  detail(box) { return this.texts[this.boxTexts[box * BOX_TEXTS + 1]]; }
  opens(box) { return this.texts[this.boxTexts[box * BOX_TEXTS + 3]]; } // the fold to open; "" where there is none
  around(box) { return this.texts[this.boxTexts[box * BOX_TEXTS + 4]]; } // the open fold that it lies in
  look(box) { return this.looks[this.boxLooks[box]]; }
  fact(node, which) { return this.texts[this.facts[node * FACTS + which]]; }
  piece(box) { return this.boxPieces[box] < 0 ? null : this.pieces[this.boxPieces[box]]; }
  signs(box) { return this.marks.filter((_, bit) => this.boxMarks[box] & (1 << bit)); }

  rect(box, rects = this.rects) {
    const at = box * 4;
    return { x: rects[at], y: rects[at + 1], w: rects[at + 2], h: rects[at + 3] };
  }

  // The box, or with `groups` the hull, at a point; -1 where there is none.
  at(x, y, slack = 0, rects = this.rects) {
    for (let at = rects.length - 4; at >= 0; at -= 4) {
      const dx = x - rects[at], dy = y - rects[at + 1];
      if (dx >= -slack && dy >= -slack && dx <= rects[at + 2] + slack && dy <= rects[at + 3] + slack) return at / 4;
    }
    return -1;
  }

  // How many of `nodes` each box holds.
  counts(nodes) {
    const found = new Uint32Array(this.boxes);
    for (const node of nodes) found[this.nodeBoxes[node]] += 1;
    return found;
  }

  where(test) {
    const found = [];
    for (let node = 0; node < this.nodes; node += 1) if (test(node)) found.push(node);
    return found;
  }

  nodesOfPiece(piece) { return this.where((node) => this.nodePieces[node] === piece); }

  nodesOfRegion(region) { return this.where((node) => this.pieces[this.nodePieces[node]]?.region === region); }

  nodesOfModule(path) {
    return this.where((node) => `${this.fact(node, FACT.module)}.`.startsWith(`${path}.`));
  }

  graphOf(node) { return this.graphs.find((graph) => node >= graph.first && node < graph.first + graph.count); }

  // All nodes between two boxes in the order they run, both included; within the graph of the second one.
  range(from, to) {
    const ends = [...this.nodesIn(from), ...this.nodesIn(to)];
    if (!ends.length) return [];
    const graph = this.graphOf(ends[ends.length - 1]);
    const first = Math.max(Math.min(...ends), graph.first);
    const last = Math.min(Math.max(...ends), graph.first + graph.count - 1);
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  }

  // The given nodes and all that feed them, or all that they feed.
  reach(nodes, upstream) {
    const next = upstream ? this.feeds : this.users;
    const ends = upstream ? 0 : 1;
    const seen = new Set(nodes);
    const waiting = [...nodes];
    while (waiting.length) {
      for (const link of next(waiting.pop())) {
        const node = this.links[link * 2 + ends];
        if (!seen.has(node)) { seen.add(node); waiting.push(node); }
      }
    }
    return [...seen].sort((one, other) => one - other);
  }
}
