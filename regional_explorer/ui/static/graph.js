// The graph view: what is selected, found and looked at, and how it follows its model in the kernel.

import { Bars } from "./bars.js";
import { Camera } from "./camera.js";
import { heatOf } from "./colours.js";
import { el, follow, isDark, sameList, tell, widget } from "./dom.js";
import { listen } from "./input.js";
import { Minimap } from "./minimap.js";
import { Painter } from "./painter.js";
import { Picture } from "./picture.js";
import { matches } from "./search.js";

const MOST_HOVERED = 400;

class View {
  constructor(model, host, signal) {
    Object.assign(this, { model, signal, selection: new Set(), elsewhere: [], hits: [], hit: -1, hovered: -1, cursor: -1, anchor: -1, kin: [], worn: -1 });
    this.camera = new Camera();
    // Keys that are pressed here are not JupyterLab's.
    this.root = el("div", { class: "rxg", role: "group", "aria-label": "Graph view", "data-lm-suppress-shortcuts": "true" });
    this.bars = new Bars(this.root, this);
    this.canvas = el("canvas", { class: "rxg-canvas", "aria-hidden": "true" });
    const map = el("canvas", { class: "rxg-map", "aria-hidden": "true", hidden: true });
    this.empty = el("div", { class: "rxg-empty" });
    this.stage = el("div", {
      class: "rxg-stage", tabindex: 0, role: "application", "aria-roledescription": "graph",
    }, this.canvas, this.empty, map, this.bars.tip, this.bars.help);
    this.root.append(this.stage, ...this.bars.foot);
    this.showHeight();
    host.append(this.root);
    this.painter = new Painter(this.canvas);
    this.map = new Minimap(map, this.camera, () => this.draw(), signal);
    listen(this);
    follow(model, signal, {
      payload: () => this.load(), places: () => this.settle(), arranging: () => this.settle(), overlays: () => this.wear(),
      selection: () => this.readSelection(), hover: () => this.readHover(), search: () => this.readSearch(),
      tabs: () => this.showTabs(), tab: () => this.showTabs(), problem: () => this.showProblem(),
      height: () => this.showHeight(), "msg:custom": ({ show }) => (show ? this.show(show) : model.send({ do: "here" })),
    });
    for (const name of ["transitionend", "transitioncancel"]) {
      this.root.addEventListener(name, (event) => { if (event.target === this.root) this.wear(); }, { signal });
    }
    const sizes = new ResizeObserver(() => this.resize());
    sizes.observe(this.stage);
    signal.addEventListener("abort", () => { sizes.disconnect(); cancelAnimationFrame(this.frame); this.root.remove(); });
    this.showTabs();
    this.showProblem();
    this.resize();
    this.load();
  }

  get(name) { return this.model.get(name); }

  // ---- following the model

  load() {
    const payload = this.get("payload");
    if (!payload?.places) return;
    const before = this.picture, focus = this.stay ?? (before && this.firstNode(this.nearest()));
    this.stay = null;
    this.picture = new Picture(payload);
    this.selection.clear();
    Object.assign(this, { hovered: -1, cursor: -1, kin: [] });
    const same = before?.tab === payload.tab;
    if (!same) this.anchor = -1;
    if (!same || !this.touched) this.open();
    this.readSelection();
    this.readSearch();
    if (same && this.touched) this.morph(before, focus);
    this.wear();
    this.settle();
    this.stage.setAttribute("aria-label", `${payload.graphs.map((graph) => graph.title)}: ${this.picture.boxes} boxes. N and P walk through them, ? lists the keys.`);
    this.empty.textContent = this.picture.boxes ? "" : "There is no op here.";
  }

  // Better places of the same boxes have come.
  settle() {
    const places = this.get("places"), { picture } = this;
    this.bars.wait.hidden = !this.get("arranging");
    if (!picture || places.of !== picture.number || picture.placed) return;
    picture.placed = true;
    const box = this.nearest(), was = box < 0 ? null : picture.rect(box);
    picture.place(places);
    if (!this.touched) this.open();
    else if (was) this.keep(was, picture.rect(box));
    this.wear();
  }

  // Move the window along with a box, so that what a person looks at stays where it is.
  keep(was, now) {
    this.camera.x += now.x + now.w / 2 - was.x - was.w / 2;
    this.camera.y += now.y - was.y;
  }

  open() { if (this.camera.width) this.camera.open({ w: this.picture.width, h: this.picture.height }); }

  firstNode(box) { return this.picture.ids[this.picture.nodesIn(box)[0]]; }

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

  // Go over to a picture with other boxes: the one that was opened or closed keeps its place.
  morph(before, id) {
    const boxIn = (one) => one.nodeBoxes[one.byId.get(id)];
    const old = boxIn(before), now = boxIn(this.picture);
    if (old !== undefined && now !== undefined) this.keep(before.rect(old), this.picture.rect(now));
  }

  readSelection() {
    const { picture } = this;
    if (!picture) return;
    this.selection.clear();
    this.elsewhere = [];
    for (const id of this.get("selection")) {
      const node = picture.byId.get(id);
      if (node === undefined) this.elsewhere.push(id);
      else this.selection.add(node);
    }
    this.showSelection();
  }

  readHover() {
    if (!this.picture) return;
    const boxes = this.get("hover").map((id) => this.picture.nodeBoxes[this.picture.byId.get(id)]);
    this.kin = [...new Set(boxes)].filter((box) => box !== undefined && box !== this.hovered);
    this.draw();
  }

  readSearch() {
    const query = this.get("search"), { picture } = this;
    if (this.bars.search.value !== query) this.bars.search.value = query;
    if (!picture) return;
    const { nodes, error } = matches(picture, query);
    this.found = picture.counts(nodes);
    this.hits = [...new Set(nodes.map((node) => picture.nodeBoxes[node]))];
    this.hit = -1;
    this.finding = Boolean(query.trim()) && !error;
    this.matched = nodes;
    this.bars.count.classList.toggle("rxg-wrong", Boolean(error));
    this.bars.count.textContent = error || (this.finding ? `${nodes.length} found` : "");
    this.draw();
  }

  showHeight() { this.stage.style.height = `${this.get("height")}px`; }

  showTabs() {
    this.bars.showTabs(this.get("tabs"), this.get("tab"));
  }

  showProblem() {
    this.bars.problem.hidden = !this.get("problem");
    this.bars.problem.textContent = this.get("problem");
  }

  // ---- looks

  wear() {
    const { picture, root, bars } = this;
    if (!picture || !root.isConnected) return;
    const style = getComputedStyle(root), theme = isDark(root) ? "dark" : "light", overlays = this.get("overlays");
    this.overlay = overlays[this.worn];
    this.heat = this.overlay && heatOf(this.overlay, picture.grounds[theme], theme);
    bars.buttons.overlay.disabled = !overlays.length;
    bars.buttons.overlay.textContent = this.overlay ? `Overlay: ${this.overlay.title}` : "Overlay";
    bars.press("overlay", Boolean(this.heat));
    bars.showLegend(picture, theme, this.heat);
    this.painter.dress(picture, theme, style.backgroundColor, style.fontFamily, this.heat);
    this.map.dress(this.painter);
    this.draw();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (!width || !height) return;
    this.camera.resize(width, height);
    this.painter.resize(width, height);
    if (!this.touched && this.picture) this.open();
    if (this.painter.picture !== this.picture) this.wear();
    this.paint();
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.picture || this.painter.picture !== this.picture) return;
    const { counts: selected, found, finding, hovered: hover, cursor, kin, lasso } = this;
    const hit = this.hits[this.hit] ?? -1, selecting = this.selection.size > 0;
    this.painter.draw(this.camera, { selected, selecting, found, finding, hit, hover, cursor, kin, lasso });
    this.map.draw(!this.mapOff);
  }

  // ---- selecting

  tell(name, value) { tell(this.model, name, value); }

  // `how`: "only" these, "add" them, or "toggle": drop them if all of them are selected.
  pick(nodes, how = "only") {
    const drop = how === "toggle" && nodes.every((node) => this.selection.has(node));
    if (how === "only") { this.selection.clear(); this.elsewhere = []; }
    for (const node of nodes) this.selection[drop ? "delete" : "add"](node);
    const ids = [...this.selection].sort((one, other) => one - other).map((node) => this.picture.ids[node]);
    this.tell("selection", [...this.elsewhere, ...ids]);
    this.bars.say(this.bars.status.textContent);
  }

  showSelection() {
    this.counts = this.picture.counts(this.selection);
    this.bars.showStatus(this.picture, this.selection.size, this.elsewhere.length);
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
      if (!sameList(ids, this.get("hover"))) this.tell("hover", ids);
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
    const id = ids.find((one) => this.picture?.byId.has(one));
    if (id) this.goTo(this.picture.nodeBoxes[this.picture.byId.get(id)]);
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
    this.stay = this.firstNode(box);
    this.touched = true;
    this.model.send(message);
  }

  tab(id) {
    this.touched = false;
    this.tell("tab", id);
  }

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
    else if (name === "lasso") this.bars.press("lasso", this.lassoing = !this.lassoing);
    else if (name === "map") this.mapOff = !this.mapOff;
    else if (name === "overlay") {
      this.worn = this.worn + 1 < this.get("overlays").length ? this.worn + 1 : -1;
      this.wear();
    }
    else if (name === "help") this.bars.press("help", !(this.bars.help.hidden = !this.bars.help.hidden));
    if (zoom || name === "fit") this.touched = true;
    this.root.classList.toggle("rxg-lassoing", Boolean(this.lassoing));
    this.draw();
  }
}

export default widget(View);
