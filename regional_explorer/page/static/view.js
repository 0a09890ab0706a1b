// The view of a session: its graph, and panes of rows that stand for nodes and are lit with them. The kernel speaks by
// traits; the page by numbered messages, and what it sets of the model it only shares with other views in the page.

import { el, follow, widget } from "./dom.js";
import { Graph } from "./graph.js";
import { ElementTree } from "./tree.js";

const MOST_HOVERED = 400; // pointing at more nodes highlights none

export class SessionView extends ElementTree {
  page = Math.random().toString(36).slice(2);
  number = 0; // of the last message: the kernel handles them in this order, and reports the last one handled
  hovered = [];
  /** @type {string[]} of all nodes, by their numbers */ ids = [];
  /** @type {Map<string, Set<number>>} by row */ nodes = new Map();
  /** @type {Map<string, [string[], string[]][]>} by node */ chains = new Map();
  anchor = ""; // the row that a range begins at
  links = null;
  graphs = null;

  constructor(model, root, signal, tree) {
    super(model, root, signal, tree);
    follow(model, signal, { change: () => this.show() });
    root.addEventListener("keydown", (event) => this.escape(event), { signal });
    // What is scrolled under a pointer at rest is not pointed at, unless its wheel scrolled it.
    let last = "";
    const rests = ({ screenX, screenY }) => screenX !== undefined && last === (last = `${screenX} ${screenY}`);
    this.on("wheel", () => { last = ""; });
    for (const name of ["pointerover", "pointerleave", "focusin"])
      this.on(name, (item, event) => { if (!rests(event)) this.point(item?.dataset.do === "nodes" ? this.nodesOf([item]) : []); });
    this.show();
    const host = el("div", { class: "rxg", role: "group", "aria-label": "Graph view" });
    root.querySelector("[data-view=graph]").append(host);
    this.graph = new Graph(this, host);
  }

  get answered() { return this.get("answered")?.[this.page] ?? 0; }

  send(message) {
    this.number += 1;
    this.model.send({ ...message, page: this.page, number: this.number });
    return this.number;
  }

  onMessage({ show }) { if (show) this.graph.reveal(show); }

  part(name) { return this.get(`part_${name}`) ?? []; }

  show() {
    super.show();
    const links = this.get("links"), graphs = this.get("graphs");
    if (links !== this.links || graphs !== this.graphs) this.readLinks(links, graphs);
    this.light();
  }

  // For each pane, `of` has the number of each node's chain, -1 for none, and `chains` pairs of rows: those that stand
  // for what the node is in, and for the node itself.
  readLinks(links, graphs) {
    Object.assign(this, { links, graphs, nodes: new Map(), anchor: "" });
    this.ids = graphs.flatMap(({ id, names }) => names.map((name) => `${id}:${name}`));
    this.chains = new Map(this.ids.map((id) => [id, []]));
    for (const { chains, of } of Object.values(links))
      of.forEach((chain, node) => {
        if (chain < 0) return;
        this.chains.get(this.ids[node]).push(chains[chain]);
        for (const row of chains[chain].flat()) this.nodes.set(row, (this.nodes.get(row) ?? new Set()).add(node));
      });
  }

  // The nodes of rows, in the order they run.
  nodesOf(rows) {
    const nodes = new Set(rows.flatMap(({ dataset }) => [...(this.nodes.get(dataset.of) ?? [])]));
    return [...nodes].sort((a, b) => a - b).map((node) => this.ids[node]);
  }

  // Light rows without making them anew.
  light() {
    const words = new Map();
    for (const [ids, around, own] of [[this.get("selection"), "selected", "selected chosen"], [this.hovered, "above", "hovered above"]])
      for (const id of ids)
        for (const chain of this.chains.get(id) ?? [])
          chain.forEach((rows, i) => { for (const row of rows) words.set(row, `${words.get(row) ?? ""} ${i ? own : around}`); });
    for (const row of this.all("[data-do=nodes]")) {
      const lit = words.get(row.dataset.of) ?? "";
      if (lit === (row.dataset.lit ?? "")) continue;
      row.dataset.lit = lit;
      row.setAttribute("aria-selected", String(lit.includes("selected")));
    }
  }

  // Highlight nodes in the graph, and their rows; rows of another pane come into view.
  point(ids) {
    const hovered = ids.length > MOST_HOVERED ? [] : ids;
    if (String(hovered) === String(this.hovered)) return;
    this.hovered = hovered;
    this.graph.link(hovered);
    this.light();
    for (const pane of this.all(".rxs")) if (!pane.matches(":hover, :focus-within")) this.bringIntoView(pane.querySelector("[data-lit~=hovered]"), pane);
  }

  // Not by `scrollIntoView`, which would scroll the notebook too.
  bringIntoView(row, pane) {
    if (!row?.offsetParent) return;
    const box = pane.closest(".rx-pane > *") ?? pane.firstElementChild, { top, bottom } = row.getBoundingClientRect(), seen = box.getBoundingClientRect();
    box.scrollTop += Math.min(top - seen.top, 0) || Math.max(bottom - seen.bottom, 0);
  }

  press(item, event, value) {
    if (item.dataset.do === "nodes") this.pickRow(item, event);
    else super.press(item, event, value);
  }

  // Select the nodes of a row; with Shift those of all rows of its list from the last one, with Ctrl in addition, or not
  // any more if all of them were selected.
  pickRow(row, { shiftKey, ctrlKey, metaKey }) {
    const rows = this.rows(row.closest("[role=listbox]")), at = rows.indexOf(row), from = shiftKey ? rows.findIndex(({ dataset }) => dataset.of === this.anchor) : -1;
    if (!shiftKey) this.anchor = row.dataset.of;
    const nodes = this.nodesOf(rows.slice(Math.min(from < 0 ? at : from, at), Math.max(from, at) + 1)), selected = this.get("selection");
    const picked = new Set(nodes), others = selected.filter((id) => !picked.has(id)), drop = others.length + nodes.length === selected.length;
    if (nodes.length) this.graph.choose(!(ctrlKey || metaKey) ? nodes : drop ? others : [...others, ...nodes]);
  }

  // Wherever the focus is: Escape first closes what is open over the graph, else it clears the selection.
  escape(event) {
    if (event.key !== "Escape" || event.target.tagName === "SELECT") return;
    if (this.graph.escape()) this.clear();
    else event.preventDefault();
  }

  clear() {}
}

export default widget(SessionView);
