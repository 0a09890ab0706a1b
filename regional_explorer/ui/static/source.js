// The source view: functions line by line; a line lights its nodes, a node its lines.

import { el, follow, numbers, sameList, tell, walk, widget } from "./dom.js";

const MOST_HOVERED = 400;

class View {
  constructor(model, host, signal) {
    Object.assign(this, { model, rows: [], anchor: null });
    this.root = el("div", { class: "rxs", "data-lm-suppress-shortcuts": "true" });
    this.list = el("div", { class: "rx rxs-list", role: "listbox", "aria-multiselectable": "true", "aria-label": "Source lines" });
    this.list.style.maxHeight = `${model.get("height")}px`;
    this.live = el("div", { class: "rxs-live", "aria-live": "polite", role: "status" });
    this.root.append(this.list, this.live);
    host.append(this.root);
    follow(model, signal, {
      payload: () => this.load(), selection: () => this.light(), hover: () => this.light(),
    });
    const on = (name, handler) => this.list.addEventListener(name, handler, { signal });
    const rowOf = (event) => this.rows[event.target.closest?.("[data-row]")?.dataset.row];
    on("click", (event) => this.pick(rowOf(event), event));
    on("pointerover", (event) => this.point(rowOf(event)));
    on("pointerleave", () => this.point());
    on("focusin", (event) => this.point(rowOf(event)));
    on("keydown", (event) => this.key(event, rowOf(event)));
    signal.addEventListener("abort", () => { clearTimeout(this.telling); this.root.remove(); });
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
    this.list.append(el("style", { text: payload.style }));
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
        const [chips, style] = this.chips(own, all);
        const row = el("div", { class: "rxs-line", role: all.length ? "option" : "presentation", style },
          el("span", { class: "rxs-number", text: one.first + at }), el("span", { class: "rxs-marks" }, ...chips), el("code", { text: text || " " }),
          el("span", { class: "rxs-count", text: all.length ? `${all.length}` : "", title: `${own.length} nodes come from here, ${all.length} pass` }));
        if (all.length) {
          row.dataset.row = this.rows.length;
          row.tabIndex = this.rows.length ? -1 : 0;
          this.rows.push({ row, own: new Set(own), all: new Set(all), place, at });
        }
        block.append(row);
      });
      this.list.append(block);
    });
    this.light();
  }

  // A chip for each region of a line: filled where the line itself is in it, an outline where it calls into it.
  chips(own, all) {
    const regions = (nodes) => new Set(nodes.map((node) => this.regionOf[node]).filter((region) => region >= 0));
    const inside = regions(own);
    const chips = [...regions(all)].map((number) => {
      const [name, letter] = this.payload.regions[number];
      return el("span", { class: `rx-chip rx-r${number}`, text: letter, title: name, style: inside.has(number) ? null : "background:none" });
    });
    return [chips, inside.size === 1 ? `--tint:var(--rx-f${[...inside][0]})` : null];
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
    tell(this.model, name, ids);
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
    const next = walk(this.rows.map((one) => one.row), this.rows.indexOf(row), event);
    if (next) {
      if (event.shiftKey) this.pick(this.rows[next.dataset.row], event);
    } else if (event.key === " " || event.key === "Enter") this.pick(row, event);
    else if (event.key === "Escape") this.tell("selection", []);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

export default widget(View);
