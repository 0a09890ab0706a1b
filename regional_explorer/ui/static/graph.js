// The graph view: what is selected, found and looked at, and how it follows its model in the kernel.

import { Bars } from "./bars.js";
import { Camera } from "./camera.js";
import { el, follow, isDark, sameList } from "./dom.js";
import { listen } from "./input.js";
import { Minimap } from "./minimap.js";
import { mix, Painter } from "./painter.js";
import { FACT, Picture } from "./picture.js";
import { matches } from "./search.js";

const MOVE_MS = 220, MOST_HOVERED = 400;
const COLD = { light: "#f3f6fa", dark: "#22303f" }, WARM = { light: "#08306b", dark: "#9ecbff" };

class View {
  constructor(model, host, signal) {
    Object.assign(this, { model, signal, host });
    Object.assign(this, { picture: null, selection: new Set(), elsewhere: [], hits: [], hit: -1, hovered: -1, cursor: -1, anchor: -1, kin: [] });
    this.camera = new Camera();
    this.root = el("div", { class: "rxg", role: "group", "aria-label": "Graph view" });
    this.bars = new Bars(this.root, this);
    this.canvas = el("canvas", { class: "rxg-canvas", "aria-hidden": "true" });
    const map = el("canvas", { class: "rxg-map", "aria-hidden": "true", hidden: true });
    this.empty = el("div", { class: "rxg-empty" });
    this.stage = el("div", {
      class: "rxg-stage", tabindex: 0, role: "application", "aria-roledescription": "graph", "data-lm-suppress-shortcuts": "true",
    }, this.canvas, this.empty, map, this.bars.tip, this.bars.help);
    this.root.append(this.stage, ...this.bars.foot);
    this.bars.search.dataset.lmSuppressShortcuts = "true";
    this.stage.style.height = `${model.get("height")}px`;
    host.append(this.root);
    this.painter = new Painter(this.canvas);
    this.map = new Minimap(map, this.camera, () => this.draw(), signal);
    listen(this);
    follow(model, signal, {
      "change:payload": () => this.load(), "change:places": () => this.settle(), "change:selection": () => this.readSelection(),
      "change:hover": () => this.readHover(), "change:search": () => this.readSearch(), "change:overlay": () => this.wear(),
      "change:tabs": () => this.showTabs(), "change:tab": () => this.showTabs(), "change:problem": () => this.showProblem(),
      "change:height": () => { this.stage.style.height = `${model.get("height")}px`; },
      "msg:custom": (message) => { if (message.show) this.show(message.show); },
    });
    this.root.addEventListener("transitionend", (event) => { if (event.target === this.root) this.wear(); }, { signal });
    const sizes = new ResizeObserver(() => this.resize());
    sizes.observe(this.stage);
    signal.addEventListener("abort", () => { sizes.disconnect(); cancelAnimationFrame(this.frame); this.root.remove(); });
    this.showTabs();
    this.showProblem();
    this.resize();
    this.load();
  }

  // ---- following the model

  load() {
    const payload = this.model.get("payload");
    const before = this.picture, focus = this.stay;
    this.stay = null;
    if (!payload?.places) return;
    this.picture = new Picture(payload);
    this.selection.clear();
    Object.assign(this, { hovered: -1, cursor: -1, kin: [] });
    const same = before?.tab === payload.tab;
    if (!same) this.anchor = -1;
    if (!this.camera.width) this.fresh = true;
    else if (same && focus) this.morph(before, focus);
    else if (!same) this.camera.open({ w: this.picture.width, h: this.picture.height });
    this.readSelection();
    this.readSearch();
    this.wear();
    this.settle();
    const name = payload.graphs.map((graph) => graph.title).join(", ");
    this.stage.setAttribute("aria-label", `${name}: ${this.picture.boxes} boxes. N and P walk through them, question mark lists the keys.`);
    this.empty.textContent = this.picture.boxes ? "" : "Nothing to draw: there is no op here.";
  }

  // Better places of the same boxes have come.
  settle() {
    const places = this.model.get("places"), { picture } = this;
    this.bars.wait.hidden = !this.model.get("arranging");
    if (!picture || places?.of !== picture.number || picture.placed === places.of) return;
    picture.placed = places.of;
    const { camera } = this;
    const touched = this.touched;
    const old = picture.rects;
    const middle = touched ? this.nearest() : -1;
    const was = middle < 0 ? null : picture.rect(middle);
    picture.place(places);
    if (!touched) camera.open({ w: picture.width, h: picture.height });
    else if (was) {
      const now = picture.rect(middle);
      camera.x += now.x - was.x;
      camera.y += now.y - was.y;
      for (let at = 0; at < old.length; at += 4) { old[at] += now.x - was.x; old[at + 1] += now.y - was.y; }
    }
    this.map.dress(this.painter);
    this.animate(old);
  }

  nearest() {
    const { picture, camera } = this;
    let best = -1, least = Infinity;
    for (let box = 0; box < picture.boxes; box += 1) {
      const { x, y, w, h } = picture.rect(box);
      const far = Math.hypot(x + w / 2 - camera.x, y + h / 2 - camera.y);
      if (far < least) { least = far; best = box; }
    }
    return best;
  }

  // Go over to a picture with other boxes: those that stay move, and the one that was opened or closed keeps its place.
  morph(before, id) {
    const { picture, camera } = this;
    const old = before.byId.get(id), now = picture.byId.get(id);
    if (old === undefined || now === undefined) return;
    const was = before.rect(before.nodeBoxes[old]), is = picture.rect(picture.nodeBoxes[now]);
    const dx = is.x + is.w / 2 - was.x - was.w / 2, dy = is.y - was.y;
    camera.x += dx;
    camera.y += dy;
    const from = picture.rects.slice();
    for (let box = 0; box < picture.boxes; box += 1) {
      const twin = before.byKey.get(picture.key(box)) ?? before.nodeBoxes[before.byId.get(picture.ids[picture.nodesIn(box)[0]])];
      if (twin === undefined) continue;
      from[box * 4] = before.rects[twin * 4] + dx;
      from[box * 4 + 1] = before.rects[twin * 4 + 1] + dy;
    }
    this.animate(from);
  }

  animate(from) {
    const { picture } = this, to = picture.rects;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || from.length > 8000) { this.draw(); return; }
    const start = performance.now();
    const step = () => {
      if (this.picture !== picture || this.signal.aborted) return;
      const part = Math.min(1, (performance.now() - start) / MOVE_MS), ease = 1 - (1 - part) ** 3;
      this.moving = part < 1;
      picture.rects = this.moving ? to.map((end, at) => (at % 4 < 2 ? from[at] + (end - from[at]) * ease : end)) : to;
      this.paint();
      if (this.moving) requestAnimationFrame(step);
    };
    step();
  }

  readSelection() {
    const { picture } = this;
    if (!picture) return;
    this.selection.clear();
    this.elsewhere = [];
    for (const id of this.model.get("selection")) {
      const node = picture.byId.get(id);
      if (node === undefined) this.elsewhere.push(id);
      else this.selection.add(node);
    }
    this.showSelection();
  }

  readHover() {
    if (!this.picture) return;
    const nodes = this.model.get("hover").map((id) => this.picture.byId.get(id)).filter((node) => node !== undefined);
    this.kin = [...new Set(nodes.map((node) => this.picture.nodeBoxes[node]))].filter((box) => box !== this.hovered);
    this.draw();
  }

  readSearch() {
    const query = this.model.get("search");
    if (this.bars.search.value !== query) this.bars.search.value = query;
    if (!this.picture) return;
    const { nodes, error } = matches(this.picture, query);
    this.found = new Uint32Array(this.picture.boxes);
    for (const node of nodes) this.found[this.picture.nodeBoxes[node]] += 1;
    this.hits = [...new Set(nodes.map((node) => this.picture.nodeBoxes[node]))];
    this.hit = -1;
    this.finding = Boolean(query.trim()) && !error;
    this.matched = nodes;
    this.bars.count.classList.toggle("rxg-wrong", Boolean(error));
    this.bars.count.textContent = error || (this.finding ? `${nodes.length} found` : "");
    this.draw();
  }

  showTabs() {
    this.bars.showTabs(this.model.get("tabs"), this.model.get("tab"));
  }

  showProblem() {
    this.bars.problem.hidden = !this.model.get("problem");
    this.bars.problem.textContent = this.model.get("problem");
  }

  // ---- looks

  get overlay() { return this.model.get("overlay") ?? {}; }

  // Colours of the overlay: a lightness scale, which needs no sense of colour, with the number beside the name.
  heats(dark) {
    const values = this.overlay.values ?? {}, all = Object.values(values);
    this.bars.buttons.overlay.disabled = !all.length;
    if (this.overlayOff || !all.length) return null;
    const low = Math.min(...all), high = Math.max(...all), theme = dark ? "dark" : "light";
    const ground = this.picture.grounds[theme];
    return (piece) => {
      const value = values[piece.id];
      if (value === undefined) return null;
      const share = high > low ? (value - low) / (high - low) : 0.5;
      const label = `${Number(value.toPrecision(3))} ${this.overlay.unit ?? ""}`.trim();
      const fill = mix(COLD[theme], WARM[theme], share * 0.8);
      return { fill, hull: fill, label, text: share > 0.45 ? ground.paper : ground.ink };
    };
  }

  wear() {
    if (!this.picture || !this.root.isConnected) return;
    const style = getComputedStyle(this.root);
    const dark = isDark(this.root);
    this.heat = this.heats(dark);
    this.painter.dress(this.picture, dark, style.backgroundColor, style.fontFamily, this.heat);
    this.map.dress(this.painter);
    let key = null;
    if (this.heat) {
      const all = Object.values(this.overlay.values), theme = dark ? "dark" : "light", bar = el("i");
      bar.style.background = `linear-gradient(90deg, ${COLD[theme]}, ${mix(COLD[theme], WARM[theme], 0.8)})`;
      const figure = (value) => `${Number(value.toPrecision(3))} ${this.overlay.unit ?? ""}`;
      key = el("span", { class: "rxg-heat" }, `${this.overlay.title ?? ""} ${figure(Math.min(...all))}`, bar, figure(Math.max(...all)));
    }
    this.bars.buttons.overlay.setAttribute("aria-pressed", String(Boolean(this.heat)));
    this.bars.showLegend(this.picture, dark, key);
    this.draw();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (!width || !height) return;
    this.camera.resize(width, height);
    this.painter.resize(width, height);
    if (this.fresh && this.picture) {
      this.fresh = false;
      this.camera.open({ w: this.picture.width, h: this.picture.height });
    }
    if (!this.painter.looks) this.wear();
    clearTimeout(this.keeping);
    this.keeping = setTimeout(() => {
      if (Math.abs(height - this.model.get("height")) > 1 && this.root.isConnected) this.tell("height", height);
    }, 300);
    this.paint();
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.painter.looks) return;
    const { counts, found, finding, hits, hit, hovered: hover, cursor, kin, moving } = this;
    this.painter.draw(this.camera, {
      selected: counts, selecting: this.selection.size > 0, found, finding, hit: hits[hit] ?? -1, hover, cursor, kin, moving,
    });
    this.map.draw(!this.mapOff);
  }

  // ---- selecting

  tell(name, value) {
    this.model.set(name, value);
    this.model.save_changes();
  }

  // `how`: "only" these, "add" them, "drop" them, or "toggle": drop them if all of them are selected.
  pick(nodes, how = "only") {
    const drop = how === "drop" || (how === "toggle" && nodes.every((node) => this.selection.has(node)));
    if (how === "only") { this.selection.clear(); this.elsewhere = []; }
    for (const node of nodes) this.selection[drop ? "delete" : "add"](node);
    const ids = [...this.selection].sort((one, other) => one - other).map((node) => this.picture.ids[node]);
    this.showSelection();
    this.tell("selection", [...this.elsewhere, ...ids]);
    this.bars.say(this.bars.status.textContent);
  }

  pickModule(path) {
    const inside = (found) => found === path || found.startsWith(`${path}.`);
    const { picture } = this;
    this.pick(Array.from({ length: picture.nodes }, (_, node) => node).filter((node) => inside(picture.fact(node, FACT.module))));
  }

  showSelection() {
    this.counts = new Uint32Array(this.picture.boxes);
    for (const node of this.selection) this.counts[this.picture.nodeBoxes[node]] += 1;
    const none = !this.selection.size;
    this.bars.buttons.upstream.disabled = none;
    this.bars.buttons.downstream.disabled = none;
    this.bars.showStatus(this.picture, [...this.selection], this.elsewhere.length);
    this.draw();
  }

  hover(box, x, y) {
    this.bars.showTip(this.picture, box, x, y, this.stage);
    if (box === this.hovered) return;
    this.hovered = box;
    this.kin = [];
    const nodes = box < 0 ? [] : this.picture.nodesIn(box);
    if (box >= 0) this.bars.showTrail(this.picture, nodes.length ? nodes[0] : -1);
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      const ids = nodes.length > MOST_HOVERED ? [] : Array.from(nodes, (node) => this.picture.ids[node]);
      if (!sameList(ids, this.model.get("hover"))) this.tell("hover", ids);
    }, 60);
    this.draw();
  }

  // Put the keyboard's cursor on a box, show it, and say what it is.
  goTo(box) {
    const { picture } = this;
    if (!picture.boxes) return;
    this.cursor = Math.max(0, Math.min(picture.boxes - 1, box));
    this.camera.reveal(picture.rect(this.cursor));
    this.touched = true;
    const { x, y, w, h } = picture.rect(this.cursor);
    const [px, py] = this.camera.toWindow(x + w, y + h);
    this.hover(this.cursor, px, py);
    const facts = this.bars.facts(picture, this.cursor).map(([word, text]) => `${word} ${text}`).join(", ");
    this.bars.say(`${picture.title(this.cursor)}${this.counts[this.cursor] ? ", selected" : ""}. ${facts}`);
    this.draw();
  }

  show(ids) {
    const node = ids.map((id) => this.picture?.byId.get(id)).find((found) => found !== undefined);
    if (node !== undefined) this.goTo(this.picture.nodeBoxes[node]);
  }

  nextHit(step) {
    if (!this.hits.length) return;
    this.hit = (this.hit + step + this.hits.length) % this.hits.length;
    if (this.hit < 0) this.hit = 0;
    this.goTo(this.hits[this.hit]);
    this.bars.count.textContent = `${this.hit + 1} / ${this.hits.length} boxes`;
  }

  // Open what is closed; else close what the box lies in.
  fold(box) {
    const key = this.picture.opens(box) || this.picture.around(box);
    if (key) this.ask({ do: this.picture.opens(box) ? "open" : "close", key }, box);
  }

  ask(message, box = this.nearest()) {
    this.stay = box < 0 ? null : this.picture.ids[this.picture.nodesIn(box)[0]];
    this.touched = true;
    this.model.send(message);
  }

  tab(id) {
    this.touched = false;
    this.tell("tab", id);
  }

  press(name, on) { this.bars.buttons[name].setAttribute("aria-pressed", String(on)); }

  act(name) {
    const { camera, picture } = this;
    if (!picture) return;
    const zoom = { in: 1.3, out: 1 / 1.3 }[name];
    if (zoom) camera.zoom(zoom);
    else if (name === "fit") camera.fit({ w: picture.width, h: picture.height });
    else if (name === "upstream" || name === "downstream") this.pick(picture.reach([...this.selection], name === "upstream"));
    else if (name === "open" || name === "close") this.ask({ do: `${name} all` });
    else if (name === "next" || name === "previous") this.nextHit(name === "next" ? 1 : -1);
    else if (name === "matched") this.pick(this.matched);
    else if (name === "lasso") this.press("lasso", this.lassoing = !this.lassoing);
    else if (name === "map") this.mapOff = !this.mapOff;
    else if (name === "overlay") { this.overlayOff = !this.overlayOff; this.wear(); }
    else if (name === "help") this.press("help", !(this.bars.help.hidden = !this.bars.help.hidden));
    if (zoom || name === "fit") this.touched = true;
    this.root.classList.toggle("rxg-lassoing", Boolean(this.lassoing));
    this.draw();
  }
}

export default {
  render({ model, el: host }) {
    const ending = new AbortController();
    new View(model, host, ending.signal);
    return () => ending.abort();
  },
};
