// The saved page: the panel's graph and source, with the kernel's part done here.

import { View } from "./graph.js";
import { ElementTree } from "./tree.js";

const find = (selector) => document.querySelector(selector);
const { view: state, lines, source: tree } = JSON.parse(find("#rx-data").textContent);
const names = state.graphs.flatMap(({ id, names }) => names.map((name) => `${id}:${name}`));
let anchor = -1;

// Replaces the model that anywidget gives a view: values with change events, and messages.
class Model {
  handlers = {};
  constructor(values) { this.values = values; }
  get(name) { return this.values[name]; }
  set(name, value) {
    this.values[name] = value;
    for (const event of [`change:${name}`, "change"]) for (const handler of this.handlers[event] ?? []) handler();
  }
  on(name, handler) { (this.handlers[name] ??= []).push(handler); }
  save_changes() {}
  send({ do: action, of, ...keys }) { actions[action]?.(of, keys); }
}

const graph = new Model({ kind: "rxg", label: "Graph view", selection: [], hover: [], marked: [], search: "", shown: {}, problem: "", ...state });
const source = new Model({ kind: "rxs", tree, lit: { rows: {}, say: "" } });
const namesOf = (nodes) => nodes.map((node) => names[node]);

function highlight() {
  const rows = {};
  for (const [word, trait, column] of [["selected", "selection", 1], ["chosen", "selection", 0], ["hovered", "hover", 0], ["above", "hover", 1]]) {
    const lit = new Set(graph.get(trait));
    lines.forEach((line, row) => { if (namesOf(line[column]).some((node) => lit.has(node))) rows[row] = `${rows[row] ?? ""} ${word}`; });
  }
  source.set("lit", { rows, say: "" });
}

const actions = {
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
  const pick = namesOf(element.getAttribute("data-nodes").split(" "));
  view.onMessage({ show: pick, pick });
});
