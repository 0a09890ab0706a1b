// The graph view: its selection, search and visible part, kept in sync with its model in the kernel.

import { Bars } from "./bars.js";
import { Camera } from "./camera.js";
import { debounced, follow, followLook, isDark, widget } from "./dom.js";
import { listen } from "./input.js";
import { Minimap } from "./minimap.js";
import { Painter } from "./painter.js";
import { Picture } from "./picture.js";
import { matches } from "./search.js";
import { ElementTree } from "./tree.js";

const MOST_HOVERED = 400;

export class View extends ElementTree {
  /** @type {Picture} */ picture;
  /** @type {Set<number>} */ selection = new Set();
  /** @type {string[]} what is selected in other graphs */ elsewhere = [];
  /** @type {string[]} the last selection made here */ chosen = [];
  unheard = 0; // the number of the last selection, until the kernel has heard of it
  /** @type {Uint32Array} how many nodes of each box are selected */ counts = new Uint32Array();
  /** @type {Uint32Array} how many nodes of each box the search found */ found = new Uint32Array();
  matched = [];
  /** @type {number[]} boxes with found nodes */ hits = [];
  hit = -1;
  finding = false;
  hovered = -1;
  cursor = -1;
  anchor = -1;
  /** @type {number[]} boxes hovered in another view */ linked = [];
  /** @type {"open" | "fit" | null} how the window follows the picture until it is moved by hand */ aim = "open";
  line = null;
  lasso = false;
  help = false;
  mapOff = false;
  frame = 0;
  look = ""; // the colours, font and pixel ratio of the last frame

  constructor(model, host, signal) {
    super(model, host, signal);
    Object.assign(this.root, { rxView: this }); // for who looks at a page from outside: tests, benchmarks, a console
    this.camera = new Camera();
    this.bars = new Bars(this.root);
    const { stage, canvas, map } = this.bars;
    this.stage = stage;
    this.canvas = canvas;
    this.showHeight();
    this.painter = new Painter(canvas);
    this.map = new Minimap(map, this.camera, () => this.draw(), signal);
    listen(this);
    this.sendHover = debounced(signal, 60, (ids) => {
      if (String(ids) !== String(this.get("hover"))) this.setTrait("hover", ids);
    });
    follow(model, signal, {
      payload: () => this.load(),
      heat: () => this.restyle(),
      selection: () => this.readSelection(),
      hover: () => this.readHover(),
      search: () => this.find(),
      marked: () => this.find(),
      height: () => this.showHeight(),
    });
    followLook(signal, () => this.draw());
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(stage);
    signal.addEventListener("abort", () => {
      observer.disconnect();
      cancelAnimationFrame(this.frame);
    });
    this.resize();
    this.load();
  }

  get(name) {
    return this.model.get(name);
  }

  load() {
    const payload = this.get("payload");
    if (!payload?.graphs) return;
    const before = this.picture,
      focus = before?.ids[before.nodesIn(before.nearest(this.camera))[0]];
    this.painter.letters.font(getComputedStyle(this.root).fontFamily);
    this.picture = this.camera.picture = new Picture(payload, (text, size) => this.painter.letters.width(text, size));
    Object.assign(this, { hovered: -1, cursor: -1, linked: [] });
    const sameTab = before?.tab === payload.tab;
    if (!sameTab) Object.assign(this, { anchor: -1, aim: "open" });
    this.readSelection();
    this.readSearch();
    if (this.aim) this.aimCamera();
    else this.morph(before, focus);
    this.restyle();
    this.stage.setAttribute("aria-label", `${payload.graphs.map((graph) => graph.title)}: ${this.picture.boxes} boxes`);
  }

  // Move the window along with a box that moved.
  moveAlong(oldRect, newRect) {
    this.camera.shift(newRect.x + newRect.w / 2 - oldRect.x - oldRect.w / 2, newRect.y - oldRect.y);
  }

  // Until the user moves the window: "open" is the initial position, "fit" is used after a fold was opened or closed.
  aimCamera() {
    if (this.camera.width) this.camera[this.aim]();
  }

  // Keep the box in the middle of the window in place in a new picture.
  morph(before, id) {
    const boxIn = (picture) => picture.nodeBoxes[picture.byId.get(id)];
    const oldBox = boxIn(before),
      newBox = boxIn(this.picture);
    if (oldBox !== undefined && newBox !== undefined) this.moveAlong(before.rect(oldBox), this.picture.rect(newBox));
    else this.camera.shift(0, 0);
  }

  readSelection() {
    const { picture } = this;
    if (!picture) return;
    // What the kernel sends before it has heard of the last selection is older.
    if (this.unheard) this.setTrait("selection", this.chosen);
    const ids = this.get("selection");
    this.selection = new Set(picture.numbers(ids));
    this.elsewhere = ids.filter((id) => !picture.byId.has(id));
    this.showSelection();
  }

  readHover() {
    if (!this.picture) return;
    const boxes = this.get("hover").map((id) => this.picture.nodeBoxes[this.picture.byId.get(id)]);
    this.linked = [...new Set(boxes)].filter((box) => box !== undefined && box !== this.hovered);
    this.draw();
  }

  readSearch() {
    const query = this.get("search"),
      { picture } = this;
    if (this.bars.search.value !== query) this.bars.search.value = query;
    if (!picture) return;
    // Without a search, the nodes that a pattern would mark are highlighted.
    const marked = picture.numbers(this.get("marked") ?? []);
    const { nodes, error } = query.trim() ? matches(picture, query) : { nodes: marked };
    this.found = picture.counts(nodes);
    this.hits = [...new Set(nodes.map((node) => picture.nodeBoxes[node]))];
    this.hit = -1;
    this.finding = Boolean(query.trim() || nodes.length) && !error;
    this.matched = nodes;
    this.bars.count.classList.toggle("rxg-wrong", Boolean(error));
    this.bars.count.textContent = error || (this.finding ? `${nodes.length} found` : "");
    this.draw();
  }

  // Search, and bring the first hit into view.
  find() {
    this.readSearch();
    const rect = this.hits.length ? this.picture.rect(this.hits[0]) : null;
    if (!this.finding || !rect || this.camera.shows(rect)) return;
    this.aim = null;
    this.camera.reveal(rect);
  }

  showHeight() {
    this.stage.style.height = `${this.get("height")}px`;
  }

  // The next frame is drawn from the beginning.
  restyle() {
    this.look = "";
    this.draw();
  }

  prepare(style) {
    const { picture, root, camera } = this,
      theme = isDark(root) ? "dark" : "light",
      heats = this.get("heat");
    root.classList.toggle("rxg-dark", theme === "dark");
    if (this.painter.ratio !== devicePixelRatio) this.painter.resize(camera.width, camera.height);
    const boxHeats = heats.of === picture.number ? heats : null;
    Object.assign(picture, { labels: boxHeats?.labels ?? [], tooltips: boxHeats?.tooltips ?? [] });
    const heat = (piece, box) => boxHeats?.[theme][boxHeats.steps[box]] ?? heats[piece?.id]?.[theme];
    this.painter.prepare(picture, theme, style.backgroundColor, style.fontFamily, heat);
    this.map.prepare(this.painter);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (!width || !height) return;
    Object.assign(this.camera, { width, height });
    this.painter.resize(width, height);
    if (this.aim && this.picture) this.aimCamera();
    else this.camera.shift(0, 0);
    this.paint();
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => this.paint());
  }

  // Colours and fonts are compared in each frame: whatever changed them, any frame puts the picture right.
  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.picture || !this.root.isConnected) return;
    const style = getComputedStyle(this.root),
      look = `${style.backgroundColor} ${style.fontFamily} ${devicePixelRatio}`;
    if (look !== this.look) this.prepare(style);
    this.look = look;
    const { counts: selected, found, finding, hovered: hover, cursor, linked, line } = this;
    const hit = this.hits[this.hit] ?? -1,
      selecting = this.selection.size > 0;
    this.painter.draw(this.camera, { selected, selecting, found, finding, hit, hover, cursor, linked, line });
    this.map.draw(!this.mapOff, finding ? this.hits : []);
  }

  setTrait(name, value) {
    this.model.set(name, value);
    this.model.save_changes();
  }

  // `how`: "only" these, "add" them, or "toggle": drop them if all of them are selected.
  pick(nodes, how = "only") {
    const drop = how === "toggle" && nodes.every((node) => this.selection.has(node));
    if (how === "only") {
      this.selection.clear();
      this.elsewhere = [];
    }
    for (const node of nodes) this.selection[drop ? "delete" : "add"](node);
    const ids = [...this.selection].sort((a, b) => a - b).map((node) => this.picture.ids[node]);
    this.choose([...this.elsewhere, ...ids]);
  }

  // Sent as a message too: ipywidgets may hold a trait back until the kernel has handled the next button.
  choose(ids) {
    this.setTrait("selection", (this.chosen = ids));
    this.unheard = Math.ceil(Math.random() * 2 ** 52); // other pages have other numbers
    this.model.send({ do: "select", nodes: ids, number: this.unheard });
    this.say(this.bars.selected.textContent);
  }

  say(text) {
    this.bars.live.textContent = text;
  }

  showSelection() {
    this.counts = this.picture.counts(this.selection);
    this.bars.showStatus(this.picture, this.selection.size, this.elsewhere.length);
    this.draw();
  }

  hover(box, x, y) {
    this.bars.showTip(this.picture, box, x, y);
    if (box === this.hovered) return;
    this.hovered = box;
    this.linked = [];
    const nodes = box < 0 ? [] : this.picture.nodesIn(box);
    if (nodes.length) this.bars.showTrail(this.picture.module(nodes[0]));
    this.sendHover(nodes.length > MOST_HOVERED ? [] : Array.from(nodes, (node) => this.picture.ids[node]));
    this.draw();
  }

  // Put the keyboard's cursor on a box, show it, and say what it is.
  goTo(box) {
    const { picture } = this;
    if (!picture.boxes) return;
    this.cursor = Math.max(0, Math.min(picture.boxes - 1, box));
    this.camera.reveal(picture.rect(this.cursor));
    this.aim = null;
    const { x, y, w, h } = picture.rect(this.cursor);
    const [px, py] = this.camera.toWindow(x + w, y + h);
    this.hover(this.cursor, px, py);
    const facts = picture.about(this.cursor).map((pair) => pair.join(" "));
    this.say(`${picture.title(this.cursor)}${this.counts[this.cursor] ? ", selected" : ""}. ${facts.join(", ")}`);
    this.draw();
  }

  // The kernel has heard of a selection, asks to show a node, or to select nodes as if the user had selected them here.
  onMessage({ heard = 0, show = [], pick = null }) {
    if (heard === this.unheard) this.unheard = 0;
    if (pick) this.choose(pick);
    const [node] = this.picture?.numbers(show) ?? [];
    if (node !== undefined) this.goTo(this.picture.nodeBoxes[node]);
  }

  nextHit(step) {
    if (!this.hits.length) return;
    this.hit = (this.hit + step + this.hits.length) % this.hits.length;
    if (this.hit < 0) this.hit = 0;
    this.goTo(this.hits[this.hit]);
    this.bars.count.textContent = `${this.hit + 1} / ${this.hits.length} boxes`;
  }

  // Open a closed fold, or else close the fold around the box.
  fold(box) {
    const opens = this.picture.opens(box),
      key = opens || this.picture.around(box);
    if (key) this.sendCommand(opens ? "open" : "close", key);
  }

  // Commands that the kernel handles; after it opened or closed a fold, the picture is fitted to the window.
  sendCommand(action, of = "") {
    if (/^(open|close|back)/.test(action)) this.aim = "fit";
    this.model.send({ do: action, of });
  }

  press(item) {
    this.act(item.dataset.do, item.dataset.of);
  }

  act(name, of) {
    const { bars, camera, picture } = this;
    const toggle = (key) => bars.press(key, (this[key] = !this[key]));
    const action = {
      in: () => camera.zoom(1.3),
      out: () => camera.zoom(1 / 1.3),
      fit: () => camera.fit(),
      next: () => this.nextHit(1),
      previous: () => this.nextHit(-1),
      matched: () => this.pick(this.matched),
      region: () => this.pick(picture.nodesOfRegion(Number(of))),
      module: () => this.pick(picture.nodesOfModule(of)),
      lasso: () => toggle("lasso"),
      map: () => (this.mapOff = !this.mapOff),
      help: () => (bars.help.hidden = !toggle("help")),
    }[name];
    if (picture && action) action();
    else this.sendCommand(name, of);
    if (/^(in|out|fit)$/.test(name)) this.aim = name === "fit" ? "fit" : null;
    this.root.classList.toggle("rxg-lassoing", Boolean(this.lasso));
    this.draw();
  }
}

export default widget(View);
