// The saved page: the panel's graph and source, with the kernel's part done here.

import { heat, shown, unfold } from "./folds.js";
import { View } from "./graph.js";
import { ElementTree } from "./tree.js";

const find = (selector) => document.querySelector(selector);
const { tabs, first, names, lines, heats, source: tree } = JSON.parse(find("#rx-data").textContent);
let tab = tabs[first], overlay = 0, number = 0, anchor = -1;

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
  send({ do: action, of, ...keys }) { actions[action]?.(of, keys); }
}

const graph = new Model({ kind: "rxg", label: "Graph view", selection: [], hover: [], search: "", height: 520 });
const source = new Model({ kind: "rxs", tree, lit: { rows: {}, say: "" } });
const namesOf = (nodes) => nodes.map((node) => names[node]);

function draw(changes = {}) {
  Object.assign(tab, changes);
  unfold(tab);
  const payload = { ...shown(tab), number: ++number };
  graph.set("payload", payload);
  graph.set("tree", withCrumbs(tab.bars[overlay]));
  graph.set("heat", heat(heats[overlay], payload));
}

// The fold of this key and the open ones around it, outermost first.
const around = (key) => {
  const path = [];
  for (let fold = key && tab.folds.find((one) => one.key === key); fold; fold = tab.folds[fold.parent]) if (fold.crumb) path.unshift(fold);
  return path;
};

// The row of crumbs leads to the fold that was opened last, as the kernel's does.
function withCrumbs(bars) {
  const path = [{ key: "", crumb: tab.title }, ...around(tab.focus)];
  const button = ({ key, crumb }, i) => ["button", { type: "button", title: `Back to ${crumb}`, "data-do": "back", "data-of": key, "aria-current": i === path.length - 1 && "location" }, crumb];
  return bars.map((bar) => (bar[1].class === "rxg-crumbs" ? [bar[0], bar[1], ...path.map(button)] : bar));
}

const toggle = (opened) => (key) => draw({ chosen: { ...tab.chosen, [key]: opened }, focus: opened ? key : around(key).at(-2)?.key });
const setAll = (all) => () => draw({ chosen: {}, all, focus: "" });

function back(key) {
  if (!key) return setAll(null)();
  const inside = (inner) => inner !== key && around(inner).some((fold) => fold.key === key);
  draw({ chosen: Object.fromEntries(Object.entries(tab.chosen).filter(([inner]) => !inside(inner))), focus: key });
}

const showTab = (to) => { tab = to; draw(); };

// Select the ancestors or the descendants of the selection too; nodes are in the order they run.
const reach = (up) => () => {
  const reached = new Set(view.selection), nodes = [...tab.reads.entries()];
  for (const [node, read] of up ? nodes.reverse() : nodes) {
    if (up && reached.has(node)) for (const input of read) reached.add(input);
    if (!up && read.some((input) => reached.has(input))) reached.add(node);
  }
  view.pick([...reached]);
};

function highlight() {
  const rows = {};
  for (const [word, trait, column] of [["selected", "selection", 1], ["chosen", "selection", 0], ["hovered", "hover", 0], ["above", "hover", 1]]) {
    const lit = new Set(graph.get(trait));
    lines.forEach((line, row) => { if (namesOf(line[column]).some((node) => lit.has(node))) rows[row] = `${rows[row] ?? ""} ${word}`; });
  }
  source.set("lit", { rows, say: "" });
}

const actions = {
  open: toggle(true),
  close: toggle(false),
  "open all": setAll(true),
  "close all": setAll(false),
  back,
  tab: (id) => showTab(tabs.find((entry) => entry.tab === id)),
  "next tab": () => showTab(tabs[(tabs.indexOf(tab) + 1) % tabs.length]),
  "tab before": () => showTab(tabs.at(tabs.indexOf(tab) - 1)),
  upstream: reach(true),
  downstream: reach(false),
  overlay() { overlay = (overlay + 1) % heats.length; draw(); },
  point: (row) => graph.set("hover", namesOf(lines[row]?.[1] ?? [])),
  select: (_, { number }) => view.onMessage({ heard: number }),
  clear: () => graph.set("selection", []),
  // A click on a line: with Shift a range from the last one, with Ctrl added to the selection or removed.
  pick(of, { shift, ctrl }) {
    const row = Number(of), from = shift && lines[anchor]?.[2] === lines[row][2] ? anchor : row, selected = graph.get("selection");
    if (!shift) anchor = row;
    const nodes = lines.slice(Math.min(from, row), Math.max(from, row) + 1).flatMap((line) => line[1]);
    const picked = namesOf([...new Set(nodes)].sort((a, b) => a - b)), others = selected.filter((node) => !picked.includes(node));
    graph.set("selection", !ctrl ? picked : others.length + picked.length > selected.length ? [...others, ...picked] : others);
  },
};

draw();
find(".rx-views").hidden = false;
const { signal } = new AbortController(), view = new View(graph, find("[data-view=graph]"), signal);
new ElementTree(source, find("[data-view=source]"), signal);
for (const trait of ["selection", "hover"]) graph.on(`change:${trait}`, highlight);

// Closed parts are printed too. Of those with a name only one is open: the last.
let shut = [], open = null;
addEventListener("beforeprint", () => {
  open = find("details[name][open]");
  shut = [...document.querySelectorAll("details:not([open])")];
  for (const part of shut) part.toggleAttribute("open", true);
});
addEventListener("afterprint", () => {
  for (const part of shut) part.toggleAttribute("open", false);
  open?.toggleAttribute("open", true);
});

// A click on a line of code or a diagnostic shows its nodes.
addEventListener("click", ({ target }) => {
  const element = target instanceof Element && target.closest("[data-nodes]");
  if (!element) return;
  const pick = namesOf(element.getAttribute("data-nodes").split(" ")), shows = ({ graphs }) => graphs.some(({ id }) => pick[0].startsWith(`${id}:`));
  if (!shows(tab)) showTab(tabs.find(shows) ?? tab);
  view.onMessage({ show: pick, pick });
});
