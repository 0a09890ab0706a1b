// The view of a session: its graph, and rows that stand for nodes and are lit with them. The kernel speaks by traits,
// the page by numbered messages: what was done to elements with `data-do`.

import { copy, fill, turn, widget } from "./dom.js";
import { Graph } from "./graph.js";

const MOST_HOVERED = 400; // pointing at more nodes highlights none
const LISTS = "tbody, .rxs-list";
const LEAST_WIDTH = 220, STEP = 40; // of a column, and of a key that moves its edge

const unfold = (row) => row?.closest("details")?.setAttribute("open", "");

export class SessionView {
  page = Math.random().toString(36).slice(2);
  number = 0; // of the last message: the kernel handles them in this order, and reports the last one handled
  hovered = [];
  ids = []; // of all nodes, by their numbers
  numbers = new Map(); // of the same nodes, by id
  anchor = ""; // the row that a range begins at
  links = null;
  graphs = null;

  constructor(model, root, signal) {
    this.model = model;
    this.root = root;
    this.signal = signal;
    model.on("change", () => this.show());
    model.on("msg:custom", (message) => this.onMessage(message));
    this.on("click", (item, event) => {
      if (item?.dataset.do === "copy") copy(item);
      else if (item && !/^(INPUT|SELECT|OPTION)$/.test(event.target.tagName)) this.press(item, event);
    });
    this.on("change", (item, { target }) => { if (item) this.press(item, {}, target.type === "checkbox" ? target.checked : target.value); });
    this.on("keydown", (item, event) => { this.key(item, event); this.escape(event); });
    // What is scrolled under a pointer at rest is not pointed at, unless its wheel scrolled it.
    let last = "";
    const rests = ({ screenX, screenY }) => screenX !== undefined && last === (last = `${screenX} ${screenY}`);
    this.on("wheel", () => { last = ""; });
    for (const name of ["pointerover", "pointerleave", "focusin"])
      this.on(name, (item, event) => {
        if (!event.target.closest(".rxg") && !rests(event)) this.point(item?.dataset.do === "nodes" ? this.nodesOf([item]) : []);
      });
    this.show();
    this.widen();
    this.graph = new Graph(this, root.querySelector(".rxg"));
    this.graph.load();
  }

  on(name, handler) {
    this.root.addEventListener(name, (event) => handler(event.target.closest("[data-do]"), event));
  }

  all(selector) { return [...this.root.querySelectorAll(selector)]; }

  get(name) { return this.model.get(name); }

  get answered() { return this.get("answered")?.[this.page] ?? 0; }

  send(message) {
    this.number += 1;
    if (!this.root.closest(".rx-dead")) this.model.send({ ...message, page: this.page, number: this.number }); // or it raises
    return this.number;
  }

  // The kernel has nodes shown, or asks whether the page still exists.
  onMessage({ show, do: asks }) {
    if (show) this.graph.reveal(show);
    if (asks) this.send({ do: "here", of: "" });
  }

  show() {
    this.refresh();
    const links = this.get("links"), graphs = this.get("graphs");
    if (links !== this.links || graphs !== this.graphs) {
      this.ids = graphs.flatMap(({ id, names }) => names.map((name) => `${id}:${name}`));
      Object.assign(this, { links, graphs, numbers: new Map(this.ids.map((id, number) => [id, number])), anchor: "" });
    }
    this.light();
  }

  refresh() {
    /** @type {any} */
    const active = document.activeElement, dataset = this.root.contains(active) ? active.dataset : null;
    if (this.get("tree")) fill(this.root, this.get("tree")); // a saved page has its elements already
    for (const slot of this.all("[data-part]")) fill(slot, this.get(`part_${slot.dataset.part}`) ?? []);
    for (const slot of this.all("[data-bar]")) fill(slot, this.graph.parts[slot.dataset.bar]().filter(Boolean));
    this.graph?.showTools();
    for (const list of this.all(LISTS)) {
      const rows = this.rows(list);
      if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
    }
    const tabMoved = active.role === "tab" && active.tabIndex < 0; // the focus follows the tab that is shown
    if (!dataset?.do || (this.root.contains(document.activeElement) && !tabMoved)) return;
    const isTwin = (item) => item.dataset.do === dataset.do && (item.role === "tab" ? item.tabIndex === 0 : item.dataset.of === dataset.of);
    this.all("[data-do]").find(isTwin)?.focus({ preventScroll: true });
  }

  // The nodes of rows, in the order they run. By pane, `of` has the number of each node's chain, -1 for none; `chains`
  // pairs of rows: those that stand for what the node is in, and for the node itself.
  nodesOf(rows) {
    const keys = new Set(rows.map(({ dataset }) => dataset.of)), has = (chain) => chain.flat().some((row) => keys.has(row));
    const panes = Object.values(this.links).map(({ chains, of }) => [chains.map(has), of]);
    return this.ids.filter((_, node) => panes.some(([meets, of]) => meets[of[node]]));
  }

  light() {
    const words = new Map();
    for (const [ids, around, own] of [[this.get("selection"), "selected", "selected chosen"], [this.hovered, "above", "hovered above"]])
      for (const id of ids)
        for (const { chains, of } of Object.values(this.links))
          chains[of[this.numbers.get(id)]]?.forEach((rows, i) => { for (const row of rows) words.set(row, `${words.get(row) ?? ""} ${i ? own : around}`); });
    for (const row of this.all("[data-do=nodes]")) {
      const lit = words.get(row.dataset.of) ?? "";
      if (lit === (row.dataset.lit ?? "")) continue;
      row.dataset.lit = lit;
      row.ariaSelected = String(lit.includes("selected"));
    }
  }

  // Bring the first lit row into view in each pane but the one that is worked in; what is chosen is unfolded.
  follow(lit) {
    for (const pane of this.all(".rxs:not(:hover, :focus-within)")) {
      const row = pane.querySelector(`[data-lit~=${lit}]`);
      if (lit === "chosen") unfold(row);
      // Not by `scrollIntoView`, which would scroll the notebook too.
      if (!row?.offsetParent) continue;
      const box = pane.closest(".rx-pane > *") ?? pane.firstElementChild, { top, bottom } = row.getBoundingClientRect(), seen = box.getBoundingClientRect();
      box.scrollTop += Math.min(top - seen.top, 0) || Math.max(bottom - seen.bottom, 0);
    }
  }

  point(ids) {
    const hovered = ids.length > MOST_HOVERED ? [] : ids;
    if (String(hovered) === String(this.hovered)) return;
    this.hovered = hovered;
    this.graph.draw();
    this.light();
    this.follow("hovered");
  }

  // The edges of columns are dragged, or moved by arrow keys; the browser remembers the widths.
  widen() {
    const columns = this.all("[data-column]"), stored = globalThis.origin === "null" ? {} : localStorage;
    const keyOf = ({ dataset }) => `rx-width-${dataset.column}`;
    for (const column of columns) column.style.flexGrow = stored[keyOf(column)] ?? "";
    const move = (grip, dx) => {
      const shown = columns.filter(({ hidden }) => !hidden), wide = shown.map(({ offsetWidth }) => offsetWidth);
      const right = shown.indexOf(grip.nextElementSibling), left = right - 1;
      const by = Math.max(LEAST_WIDTH - wide[left], Math.min(dx, wide[right] - LEAST_WIDTH));
      wide[left] += by;
      wide[right] -= by;
      shown.forEach((column, i) => { column.style.flexGrow = stored[keyOf(column)] = wide[i]; });
      grip.ariaValueNow = String(Math.round((100 * wide[left]) / (wide[left] + wide[right])));
    };
    for (const grip of this.all(".rx-grip"))
      Object.assign(grip, {
        onpointerdown: ({ pointerId }) => grip.setPointerCapture(pointerId),
        onpointermove: ({ movementX, buttons }) => buttons & 1 && move(grip, movementX),
        onkeydown: ({ key }) => move(grip, { ArrowLeft: -STEP, ArrowRight: STEP }[key] ?? 0),
      });
  }

  // Panes and columns are shown and hidden at once, without a kernel.
  open(does, of) {
    if (does === "column") for (const column of this.all(`[data-column=${of}]`)) column.hidden = !column.hidden;
    const name = { pane: of, findings: "why", why: "why" }[does];
    for (const tab of name ? this.all("[data-do=pane]") : []) {
      const shown = tab.dataset.of === name, column = tab.closest("[data-column]");
      Object.assign(tab, { ariaSelected: String(shown), tabIndex: shown ? 0 : -1 });
      for (const pane of this.all(`[role=tabpanel][aria-label=${tab.dataset.of}]`)) pane.hidden = !shown;
      if (!shown) continue;
      column.hidden = false;
      column.scrollIntoView({ block: "nearest" });
      tab.focus({ preventScroll: true });
    }
    for (const item of this.all("[data-do=column]")) item.ariaPressed = String(!this.all(`[data-column=${item.dataset.of}][hidden]`).length);
  }

  press(item, event, value = null) {
    const { do: does, of = "" } = item.dataset, { shiftKey, ctrlKey, metaKey } = event;
    if (does === "full") return document.fullscreenElement ? document.exitFullscreen() : item.closest("[data-column]").requestFullscreen();
    this.open(does, of);
    if (item.closest(".rxg")) return this.graph.act(does, value ?? of);
    if (does === "nodes") return this.pickRow(item, event);
    return this.send({ do: does, of, value, shift: Boolean(shiftKey), ctrl: Boolean(ctrlKey || metaKey) });
  }

  /** @returns {any[]} the rows of a list that arrow keys move between */
  rows(list) { return [...(list?.querySelectorAll("[data-do=pick], [data-do=nodes]") ?? [])]; }

  // Select the nodes of a row; with Shift those of all rows from the last one, with Ctrl in addition, or no longer.
  pickRow(row, { shiftKey, ctrlKey, metaKey }) {
    if (!shiftKey) this.anchor = row.dataset.of;
    const rows = this.rows(row.closest("[role=listbox]")), from = (shiftKey && rows.find(({ dataset }) => dataset.of === this.anchor)) || row;
    const [first, last] = [rows.indexOf(from), rows.indexOf(row)].sort((a, b) => a - b);
    const nodes = this.nodesOf(rows.slice(first, last + 1));
    if (!nodes.length) return;
    const clicked = row.closest("[data-part=source]") ? "line" : "";
    this.graph.choose(nodes, ctrlKey || metaKey ? "toggle" : "only", clicked);
    this.graph.reveal(nodes, true);
  }

  // Arrow keys move between tabs or rows, with Shift they extend; Enter selects a row, Space adds one.
  key(item, event) {
    const { key, shiftKey, target } = event, rows = this.rows(target.closest(LISTS)), from = rows.indexOf(target);
    const turned = target.role === "tab" && { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (turned) this.press(turn([...target.parentElement.children], target, turned), event);
    if (from < 0) return;
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[key];
    const next = step && rows[Math.max(0, Math.min(rows.length - 1, from + step))];
    if (next) {
      for (const row of rows) row.tabIndex = row === next ? 0 : -1;
      unfold(next);
      next.focus();
    }
    if (next && shiftKey) this.press(next, event);
    else if (key === " " || key === "Enter") this.press(item, { shiftKey, ctrlKey: key === " " || event.ctrlKey });
    else if (!next) return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Wherever the focus is: Escape first closes what is open over the page, else it clears the selection.
  escape(event) {
    if (event.key !== "Escape" || event.target.tagName === "SELECT") return;
    const [menu] = this.all(".rx-options[open]");
    if (menu) {
      menu.open = false;
      menu.firstChild.focus();
    }
    if (!menu && this.graph.escape()) this.send({ do: "clear", of: "" });
    else event.preventDefault();
  }
}

export default widget(SessionView);
