// The saved page: the view of its session, without a kernel.

import { SessionView } from "./view.js";

const find = (selector) => document.querySelector(selector);

// Replaces the model that anywidget gives a view: values with change events. Nobody hears its messages.
class Model extends EventTarget {
  constructor(values) { super(); this.values = values; }
  get(name) { return this.values[name]; }
  set(name, value) {
    this.values[name] = value;
    for (const event of [`change:${name}`, "change"]) this.dispatchEvent(new Event(event));
  }
  on(name, handler) { this.addEventListener(name, handler); }
  send() {}
}

const packed = Uint8Array.from(atob(find("#rx-data").textContent), (letter) => letter.charCodeAt(0));
const state = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
const root = find(".rx-views");
root.hidden = false;
const view = new SessionView(new Model({ selection: [], shown: {}, ...state }), root, new AbortController().signal);

// A click on a line of code or a diagnostic shows its nodes.
addEventListener("click", ({ target }) => {
  const element = target instanceof Element && target.closest("[data-nodes]");
  if (!element) return;
  const nodes = element.getAttribute("data-nodes").split(" ").map((node) => view.ids[node]);
  view.graph.choose(nodes);
  view.graph.reveal(nodes);
});
