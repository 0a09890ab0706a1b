// The saved page: the panel's graph and source, with the kernel's part done here.

import { shown, unfold } from "./folds.js";
import { View } from "./graph.js";
import { place } from "./rows.js";
import { ElementTree } from "./tree.js";

const find = (selector) => document.querySelector(selector);
const { tabs, first, names, lines, heats, source: tree } = JSON.parse(find("#rx-data").textContent);
let tab = tabs[first], overlay = 0, number = 0, anchor = 0;

// Replaces the model that anywidget gives a view: values with change events, and messages.
class Model {
  handlers = {};
  constructor(values) { this.values = values; }
  get(name) { return this.values[name]; }
  set(name, value) {
    this.values[name] = value;
    for (const handler of this.handlers[`change:${name}`] ?? []) handler();
  }
  on(name, handler) { (this.handlers[name] ??= []).push(handler); }
  save_changes() {}
  send({ do: what, of, ...keys }) { acts[what]?.(of, keys); }
}

const graph = new Model({ kind: "rxg", label: "Graph view", places: {}, selection: [], hover: [], search: "", height: 520 });
const source = new Model({ kind: "rxs", tree, lit: { rows: {}, say: "" } });
const named = (nodes) => nodes.map((node) => names[node]);

function draw(changes = {}) {
  Object.assign(tab, changes);
  unfold(tab);
  const payload = shown(tab);
  graph.set("payload", { ...payload, number: ++number, places: tab.touched ? place(payload) : tab.places });
  graph.set("tree", tab.bars[overlay]);
  graph.set("heat", heats[overlay]);
}

const toggle = (on) => (key) => draw({ touched: true, chosen: { ...tab.chosen, [key]: on } });
const every = (all) => () => draw({ touched: all !== null, chosen: {}, all });
const go = (to) => draw(void (tab = to));

// Select the ancestors or the descendants of the selection too; nodes are in the order they run.
const reach = (up) => () => {
  const found = new Set(view.selection), nodes = [...tab.reads.entries()];
  for (const [node, read] of up ? nodes.reverse() : nodes) {
    if (up && found.has(node)) for (const one of read) found.add(one);
    if (!up && read.some((one) => found.has(one))) found.add(node);
  }
  view.pick([...found]);
};

function highlight() {
  const rows = {};
  for (const [word, trait, which] of [["selected", "selection", 1], ["chosen", "selection", 0], ["hovered", "hover", 0], ["above", "hover", 1]]) {
    const lit = new Set(graph.get(trait));
    lines.forEach((line, at) => { if (named(line[which]).some((node) => lit.has(node))) rows[at] = `${rows[at] ?? ""} ${word}`; });
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
  upstream: reach(true),
  downstream: reach(false),
  overlay: () => draw(void (overlay = (overlay + 1) % heats.length)),
  point: (at) => graph.set("hover", named(lines[at]?.[1] ?? [])),
  clear: () => graph.set("selection", []),
  // A click on a line: with Shift a range from the last one, with Ctrl added to the selection or removed.
  pick(of, { shift, ctrl }) {
    const at = Number(of), from = shift && lines[anchor][2] === lines[at][2] ? anchor : at, now = graph.get("selection");
    if (!shift) anchor = at;
    const inside = lines.slice(Math.min(from, at), Math.max(from, at) + 1).flatMap((line) => line[1]);
    const found = named([...new Set(inside)].sort((one, other) => one - other)), rest = now.filter((node) => !found.includes(node));
    graph.set("selection", !ctrl ? found : rest.length + found.length > now.length ? [...rest, ...found] : rest);
  },
};

draw();
find(".rx-views").hidden = false;
const { signal } = new AbortController(), view = new View(graph, find("[data-view=graph]"), signal);
new ElementTree(source, find("[data-view=source]"), signal);
view.heard = Infinity; // without a kernel no selection comes late
for (const trait of ["selection", "hover"]) graph.on(`change:${trait}`, highlight);

// A click on a line of code or a diagnostic shows its nodes.
addEventListener("click", ({ target }) => {
  const at = target instanceof Element && target.closest("[data-nodes]");
  if (!at) return;
  const pick = named(at.getAttribute("data-nodes").split(" ")), has = ({ graphs }) => graphs.some(({ id }) => pick[0].startsWith(`${id}:`));
  if (!has(tab)) go(tabs.find(has) ?? tab);
  view.onMessage({ show: pick, pick });
});
