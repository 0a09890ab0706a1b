// The source view: functions line by line; a line lights its nodes, a node its lines.

import { el, follow, isDark, numbers, sameList } from "./dom.js";

const MOST_HOVERED = 400;

class View {
  constructor(model, host, signal) {
    Object.assign(this, { model, rows: [], anchor: null });
    this.root = el("div", { class: "rxs", "data-lm-suppress-shortcuts": "true" });
    this.list = el("div", { class: "rxs-list", role: "listbox", "aria-multiselectable": "true", "aria-label": "Source lines" });
    this.list.style.maxHeight = `${model.get("height")}px`;
    this.live = el("div", { class: "rxs-live", "aria-live": "polite", role: "status" });
    this.root.append(this.list, this.live);
    host.append(this.root);
    follow(model, signal, {
      payload: () => this.load(), selection: () => this.light(), hover: () => this.light(),
    });
    const on = (name, handler, target = this.list) => target.addEventListener(name, handler, { signal });
    const rowOf = (event) => this.rows[event.target.closest?.("[data-row]")?.dataset.row];
    on("click", (event) => this.pick(rowOf(event), event));
    on("pointerover", (event) => this.point(rowOf(event)));
    on("pointerleave", () => this.point());
    on("focusin", (event) => this.point(rowOf(event)));
    on("keydown", (event) => this.key(event, rowOf(event)));
    on("transitionend", (event) => { if (event.target === this.root) this.colour(); }, this.root);
    // Before it is in the page, nobody knows its colours.
    const shown = new ResizeObserver(() => { if (!this.coloured) this.colour(); });
    shown.observe(this.root);
    signal.addEventListener("abort", () => { shown.disconnect(); clearTimeout(this.telling); this.root.remove(); });
    this.load();
  }

  load() {
    const payload = this.model.get("payload");
    this.rows = [];
    this.anchor = null;
    this.list.replaceChildren();
    if (!payload?.functions?.length) {
      this.list.append(el("div", { class: "rxs-empty", text: "No node says which line it comes from." }));
      return;
    }
    this.payload = payload;
    this.ids = new Map(payload.ids.map((id, node) => [id, node]));
    this.regionOf = numbers(Int32Array, payload.node_regions);
    const byFunction = payload.functions.map((one) => one.lines.map(() => ({ own: [], all: [] })));
    const passes = numbers(Uint32Array, payload.passes);
    for (let at = 0; at < passes.length; at += 4) {
      const line = byFunction[passes[at]]?.[passes[at + 1]];
      if (!line) continue;
      line.all.push(passes[at + 2]);
      if (passes[at + 3]) line.own.push(passes[at + 2]);
    }
    payload.functions.forEach((one, place) => {
      const head = el("summary", {}, el("b", { text: one.name }), el("span", { text: `${one.file}:${one.first}` }));
      const block = el("details", { open: !one.library, role: "group", "aria-label": `${one.name} in ${one.file}` }, head);
      one.lines.forEach((text, at) => {
        const { own, all } = byFunction[place][at];
        const marks = el("span", { class: "rxs-marks" });
        const row = el("div", { class: "rxs-line", role: all.length ? "option" : "presentation" },
          el("span", { class: "rxs-number", text: one.first + at }), marks, el("code", { text: text || " " }),
          el("span", { class: "rxs-count", text: all.length ? `${all.length}` : "", title: `${own.length} nodes come from this line, ${all.length} pass through it` }));
        if (all.length) {
          row.dataset.row = this.rows.length;
          row.tabIndex = this.rows.length ? -1 : 0;
          this.rows.push({ row, marks, own: new Set(own), all: new Set(all), place, at });
        }
        block.append(row);
      });
      this.list.append(block);
    });
    this.colour();
    this.light();
  }

  // A chip for each region of a line: filled where the line itself is in it, an outline where it calls into it.
  colour() {
    this.coloured = Boolean(this.payload) && this.root.isConnected;
    if (!this.coloured) return;
    const theme = isDark(this.root) ? "dark" : "light";
    for (const { row, marks, own, all } of this.rows) {
      const regions = (nodes) => new Set([...nodes].map((node) => this.regionOf[node]).filter((region) => region >= 0));
      const inside = regions(own);
      row.style.setProperty("--tint", inside.size === 1 ? this.payload.regions[[...inside][0]][theme].fill : "transparent");
      marks.replaceChildren(...[...regions(all)].slice(0, 4).map((number) => {
        const region = this.payload.regions[number], tone = region[theme];
        const chip = el("span", { text: region.letter, title: region.name });
        chip.style.cssText = `border-color:${tone.stroke};color:${tone.text};border-style:${region.line};background:${inside.has(number) ? tone.fill : "none"}`;
        return chip;
      }));
    }
  }

  light() {
    const numbersOf = (name) => this.model.get(name).map((id) => this.ids?.get(id)).filter((node) => node !== undefined);
    const selected = new Set(numbersOf("selection")), hovered = new Set(numbersOf("hover"));
    const some = (nodes, wanted) => wanted.size > 0 && (wanted.size < nodes.size ? [...wanted].some((node) => nodes.has(node)) : [...nodes].some((node) => wanted.has(node)));
    for (const { row, own, all } of this.rows) {
      const chosen = some(all, selected);
      row.setAttribute("aria-selected", String(chosen));
      row.classList.toggle("rxs-chosen", chosen && some(own, selected));
      row.classList.toggle("rxs-hovered", some(own, hovered));
      row.classList.toggle("rxs-above", some(all, hovered));
    }
    const first = this.rows.find(({ row }) => row.classList.contains("rxs-hovered"));
    if (first && !this.list.matches(":hover, :focus-within")) first.row.scrollIntoView({ block: "nearest" });
  }

  tell(name, nodes) {
    const ids = nodes.map((node) => this.payload.ids[node]);
    if (sameList(ids, this.model.get(name))) return;
    this.model.set(name, ids);
    this.model.save_changes();
    this.light();
  }

  point(row) {
    clearTimeout(this.telling);
    const nodes = row && row.all.size <= MOST_HOVERED ? [...row.all] : [];
    this.telling = setTimeout(() => { if (this.payload) this.tell("hover", nodes); }, 60);
  }

  // A click takes one line, with Shift all from the last one in the same function, with Ctrl adds or drops it.
  pick(row, { shiftKey, ctrlKey, metaKey }) {
    if (!row) return;
    const from = this.anchor?.place === row.place ? this.anchor : row;
    const [first, last] = [from.at, row.at].sort((one, other) => one - other);
    const rows = shiftKey ? this.rows.filter(({ place, at }) => place === row.place && at >= first && at <= last) : [row];
    if (!shiftKey) this.anchor = row;
    const found = new Set(rows.flatMap(({ all }) => [...all]));
    let nodes = [...found];
    if (ctrlKey || metaKey) {
      const now = new Set(this.model.get("selection").map((id) => this.ids.get(id)));
      const drop = nodes.every((node) => now.has(node));
      for (const node of nodes) now[drop ? "delete" : "add"](node);
      nodes = [...now].filter((node) => node !== undefined);
    }
    this.tell("selection", nodes.sort((one, other) => one - other));
    this.live.textContent = `${nodes.length} nodes selected`;
  }

  key(event, row) {
    if (!row) return;
    const at = this.rows.indexOf(row);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.rows.length - 1 }[event.key];
    if (next === undefined && event.key !== " " && event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape") this.tell("selection", []);
    else if (next === undefined) this.pick(row, event);
    else if (this.rows[next]) {
      row.row.tabIndex = -1;
      this.rows[next].row.tabIndex = 0;
      this.rows[next].row.closest("details").open = true;
      this.rows[next].row.focus();
      if (event.shiftKey) this.pick(this.rows[next], event);
    }
  }
}

export default {
  render({ model, el: host }) {
    const ending = new AbortController();
    new View(model, host, ending.signal);
    return () => ending.abort();
  },
};
