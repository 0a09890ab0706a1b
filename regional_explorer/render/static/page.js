// The saved page: the panel's graph and source over what the file holds. What a kernel does for a panel is done here.

import { shown, unfold } from "./folds.js";
import { View } from "./graph.js";
import { place } from "./rows.js";
import { Sheet } from "./tree.js";

const find = (selector) => document.querySelector(selector);
const { tabs, first, names, lines, heats, source: tree } = JSON.parse(find("#rx-data").textContent);
let tab = tabs[first], overlay = 0, number = 0, anchor = 0;

// What anywidget gives a view: values that tell when they change, and a way for messages.
class Model {
  heard = {};
  constructor(values) { this.values = values; }
  get(name) { return this.values[name]; }
  set(name, value) {
    this.values[name] = value;
    for (const hear of this.heard[`change:${name}`] ?? []) hear();
  }
  on(name, hear) { (this.heard[name] ??= []).push(hear); }
  save_changes() {}
  send({ do: what, of, ...keys }) { acts[what]?.(of, keys); }
}

const graph = new Model({ kind: "rxg", label: "Graph view", places: {}, selection: [], hover: [], search: "", height: 520 });
const source = new Model({ kind: "rxs", tree, lit: { rows: {}, say: "" } });
const select = (nodes) => graph.set("selection", nodes);

function dress() {
  graph.set("tree", tab.bars[overlay]);
  graph.set("heat", heats[overlay]);
}

function draw(changes = {}) {
  Object.assign(tab, changes);
  unfold(tab);
  const payload = shown(tab);
  graph.set("payload", { ...payload, number: ++number, places: tab.touched ? place(payload) : tab.places });
  dress();
}

const toggle = (on) => (key) => draw({ touched: true, chosen: { ...tab.chosen, [key]: on } });
const every = (all) => () => draw({ touched: all !== null, chosen: {}, all });
const go = (to) => {
  tab = to;
  draw();
};

// The selection and all that feeds it, or that it feeds.
const reach = (spread) => () => {
  const found = new Set(view.selection);
  for (let before = -1; before < found.size;) {
    before = found.size;
    tab.reads.forEach((read, node) => spread(found, read, node));
  }
  view.pick([...found]);
};

function light() {
  const rows = {};
  for (const [word, trait, which] of [["selected", "selection", 1], ["chosen", "selection", 0], ["hovered", "hover", 0], ["above", "hover", 1]]) {
    const lit = new Set(graph.get(trait));
    lines.forEach((line, at) => { if (line[which].some((node) => lit.has(names[node]))) rows[at] = `${rows[at] ?? ""} ${word}`; });
  }
  source.set("lit", { rows, say: "" });
}

const acts = {
  open: toggle(true),
  close: toggle(false),
  "open all": every(true),
  "close all": every(false),
  back: every(null),
  tab: (id) => go(tabs.find((one) => one.tab === id)),
  "next tab": () => go(tabs[(tabs.indexOf(tab) + 1) % tabs.length]),
  "tab before": () => go(tabs.at(tabs.indexOf(tab) - 1)),
  upstream: reach((found, read, node) => found.has(node) && read.forEach((one) => found.add(one))),
  downstream: reach((found, read, node) => read.some((one) => found.has(one)) && found.add(node)),
  overlay() {
    overlay = (overlay + 1) % heats.length;
    dress();
  },
  point: (at) => graph.set("hover", (lines[at]?.[1] ?? []).map((node) => names[node])),
  clear: () => select([]),
  // A line, with Shift those from the last one on, with Ctrl added to what is selected, or taken out.
  pick(of, { shift, ctrl }) {
    const at = Number(of), from = shift && lines[anchor][2] === lines[at][2] ? anchor : at;
    if (!shift) anchor = at;
    const inside = lines.slice(Math.min(from, at), Math.max(from, at) + 1).flatMap((line) => line[1]);
    const found = [...new Set(inside)].sort((one, other) => one - other).map((node) => names[node]), now = graph.get("selection");
    const rest = now.filter((node) => !found.includes(node));
    select(!ctrl ? found : rest.length + found.length > now.length ? [...rest, ...found] : rest);
  },
};

draw();
find(".rx-views").hidden = false;
const { signal } = new AbortController(), view = new View(graph, find("[data-view=graph]"), signal);
new Sheet(source, find("[data-view=source]"), signal);
for (const trait of ["selection", "hover"]) graph.on(`change:${trait}`, light);

// Lines of code and diagnostics name nodes: a click shows them.
addEventListener("click", ({ target }) => {
  const at = target instanceof Element ? target.closest("[data-nodes]") : null, nodes = at?.getAttribute("data-nodes").split(" ").map((one) => names[one]);
  if (!nodes) return;
  const has = ({ graphs }) => graphs.some(({ id }) => nodes.some((node) => node.startsWith(`${id}:`)));
  if (!has(tab)) go(tabs.find(has) ?? tab);
  view.heed({ show: nodes, pick: nodes, do: "" });
});
