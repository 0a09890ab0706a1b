// The graph in the view of a session: the tab, open folds, selection, search and visible part.

import { Bars } from "./bars.js";
import { Camera } from "./camera.js";
import { heatOf } from "./colours.js";
import { alike, debounced, follow, followLook, isDark, turn } from "./dom.js";
import { listen } from "./input.js";
import { Minimap } from "./minimap.js";
import { Painter } from "./painter.js";
import { Outline, Picture } from "./picture.js";
import { matches } from "./search.js";
import { ElementTree } from "./tree.js";

const IDLE_MS = 1000; // after which the graphs of other tabs are asked for, to have them when they are shown
const AS_AT_FIRST = {}; // no fold was opened or closed
const NO_TAB = { id: "", title: "graph", graphs: [], pieces: false };

const button = (does, of, text, more) => ["button", { type: "button", "data-do": does, "data-of": of, ...more }, text];

export class Graph extends ElementTree {
  /** @type {Outline} */ outline;
  /** @type {Picture} */ picture;
  /** @type {any[]} what the outline was made from */ outlined = [];
  /** @type {any} the opening that the picture shows */ opened;
  /** @type {any[]} all that the last picture depends on */ drawn = [];
  /** @type {Map<number, any>} the folds of each graph when it was asked for */ asked = new Map();
  /** @type {string[]} nodes to show when their graph has arrived */ awaited = [];
  /** @type {Set<number>} */ selection = new Set();
  /** @type {string[]} what is selected in other graphs */ elsewhere = [];
  /** @type {string[]} the last selection made here */ chosen = [];
  chosenAt = 0; // the number of the message that told the kernel of it
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

  constructor(view, root) {
    const { model, signal } = view;
    super(model, root, signal, "bars");
    super.show();
    this.view = view;
    Object.assign(root, { rxView: this }); // for who looks at a page from outside: tests, benchmarks, a console
    this.camera = new Camera();
    this.bars = new Bars(this.root);
    this.painter = new Painter(this.bars.canvas);
    this.map = new Minimap(this.bars.map, this.camera, this.painter, (x, y) => this.move("moveTo", x, y), signal);
    this.escape = listen(this);
    this.askForOthers = debounced(signal, IDLE_MS, () => this.ask(this.get("graphs").keys()));
    follow(model, signal, {
      change: () => this.load(),
      selection: () => this.readSelection(),
      search: () => this.find(),
      marked: () => this.find(),
      problem: () => this.show(),
    });
    followLook(signal, () => this.draw());
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(this.bars.stage);
    signal.addEventListener("abort", () => {
      observer.disconnect();
      cancelAnimationFrame(this.frame);
    });
    this.resize();
    this.load();
  }

  get shown() {
    return this.get("shown") ?? {};
  }

  get tab() {
    const tabs = this.get("tabs"),
      named = (id) => tabs.find((tab) => tab.id === id);
    return named(this.shown.tab) ?? named(this.get("first")) ?? NO_TAB;
  }

  // What the user opened and closed in the tab.
  get opening() {
    return this.shown.folds?.[this.tab.id] ?? AS_AT_FIRST;
  }

  get overlay() {
    return this.get("overlays").find(({ title }) => title === this.shown.overlay);
  }

  // Ask the kernel for graphs that are not here; return whether all are.
  ask(graphs) {
    let all = true;
    for (const graph of graphs) {
      const folds = this.get(`folds${graph}`);
      if (folds?.homes && this.get(`facts${graph}`)?.ops) continue;
      if (!this.asked.has(graph) || this.asked.get(graph) !== folds) this.view.send({ do: "graph", of: String(graph) });
      this.asked.set(graph, folds);
      all = false;
    }
    return all;
  }

  // Draw what has changed. While a graph is awaited, the last picture stays.
  load() {
    const { tab, opening, overlay } = this,
      [graphs, look, tabs, overlays] = ["graphs", "look", "tabs", "overlays"].map((name) => this.get(name));
    const parts = tab.graphs.map((graph) => {
      const [facts, folds] = [this.get(`facts${graph}`), this.get(`folds${graph}`)];
      return { ...graphs[graph], facts, folds, pieces: look.pieces[graph] };
    });
    const outlined = [tab, graphs, look, ...parts.flatMap(({ facts, folds }) => [facts, folds])],
      drawn = [...outlined, opening, overlay, tabs, overlays];
    if (alike(drawn, this.drawn)) return;
    this.askForOthers();
    if (!this.ask(tab.graphs)) return this.show();
    const outdated = !alike(outlined, this.outlined);
    if (outdated) this.outline = new Outline(tab, parts, look.regions);
    if (outdated || opening !== this.opened) this.redraw();
    Object.assign(this, { outlined, opened: opening, drawn });
    this.show();
    this.bars.showOverlay(overlay?.title, overlays.length);
    this.look = ""; // the next frame is drawn from the beginning
    this.draw();
    if (this.awaited.length) this.reveal(this.awaited);
  }

  redraw() {
    const before = this.picture,
      focus = before?.idOf(before.nearest(this.camera)),
      held = before?.idOf(this.anchor);
    this.hover(-1); // boxes get other numbers
    this.painter.letters.font(getComputedStyle(this.root).fontFamily);
    const measure = (text, size) => this.painter.letters.width(text, size);
    this.picture = this.camera.picture = new Picture(this.outline, this.opening, measure);
    Object.assign(this, { cursor: -1, linked: [], anchor: this.picture.boxWith(held) });
    if (before?.tab !== this.picture.tab) Object.assign(this, { anchor: -1, aim: "open" });
    this.readSelection();
    this.readSearch();
    if (this.aim) this.aimCamera();
    else this.morph(before, focus);
    const titles = this.picture.graphs.map(({ title }) => title);
    this.bars.stage.setAttribute("aria-label", `${titles}: ${this.picture.boxes} boxes`);
  }

  // The elements around the drawing, as far as they depend on what is shown.
  part(name) {
    const { tab, outline, opening } = this;
    if (name === "problem") return [this.get("problem")].filter(Boolean);
    if (name === "tabs") {
      return this.get("tabs").map(({ id, title }) => {
        const shown = id === tab.id,
          state = { "aria-selected": String(shown), tabindex: shown ? "0" : "-1" };
        return button("tab", id, title, { title, role: "tab", ...state });
      });
    }
    if (name === "crumbs") {
      const path = [{ key: "", crumb: tab.title }, ...(outline?.path(opening.focus) ?? [])];
      return path.map(({ key, crumb }, i) =>
        button("back", key, crumb, { title: `Back to ${crumb}`, "aria-current": i === path.length - 1 && "location" }),
      );
    }
    const used = outline?.used ?? new Set(),
      entries = this.get("look").legend.filter(([when]) => !when || used.has(when));
    return [...entries.map(([, entry]) => entry), this.overlay?.scale].filter(Boolean);
  }

  // Until the user moves the window: "open" is the initial position, "fit" is used after a fold was opened or closed.
  aimCamera() {
    if (this.camera.width) this.camera[this.aim]();
  }

  // Keep the box in the middle of the window in place in a new picture.
  morph(before, id) {
    const [from, to] = [before, this.picture].map((picture) => picture.rect(picture.boxWith(id)));
    if (from && to) this.camera.shift(to.x + to.w / 2 - from.x - from.w / 2, to.y - from.y);
    else this.camera.shift(0, 0);
  }

  readSelection() {
    const { picture } = this;
    if (!picture) return;
    // What the kernel sends before it has heard of the last selection is older.
    if (this.chosenAt > this.view.answered && this.get("selection") !== this.chosen)
      this.model.set("selection", this.chosen);
    const ids = this.get("selection");
    this.selection = new Set(picture.numbers(ids));
    this.elsewhere = ids.filter((id) => !picture.byId.has(id));
    this.counts = picture.counts(this.selection);
    this.bars.showStatus(picture, this.selection.size, this.elsewhere.length);
    this.draw();
  }

  // Highlight boxes whose nodes are pointed at elsewhere.
  link(ids) {
    const boxes = this.picture?.boxesOf(this.picture.numbers(ids)) ?? [];
    this.linked = boxes.filter((box) => box !== this.hovered);
    this.draw();
  }

  readSearch() {
    const query = this.get("search") ?? "",
      { picture } = this;
    if (this.bars.search.value !== query) this.bars.search.value = query;
    if (!picture) return;
    // Without a search, the nodes that a pattern would mark are highlighted.
    const marked = picture.numbers(this.get("marked") ?? []);
    const { nodes, error } = query.trim() ? matches(picture, query) : { nodes: marked };
    this.found = picture.counts(nodes);
    this.hits = picture.boxesOf(nodes);
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
    if (this.finding && rect && !this.camera.shows(rect)) this.move("reveal", rect);
  }

  // Move the window by hand: from then on it does not follow the picture.
  move(change, ...by) {
    this.camera[change](...by);
    this.aim = null;
    this.draw();
  }

  prepare(style) {
    const { picture, root, camera, overlay } = this,
      theme = isDark(root) ? "dark" : "light",
      colours = this.get("palette")[theme];
    root.classList.toggle("rxg-dark", theme === "dark");
    if (this.painter.ratio !== devicePixelRatio) this.painter.resize(camera.width, camera.height);
    const times = overlay && !overlay.values ? picture.owners.map(({ time }) => time) : [];
    picture.labels = times.map((time) => time?.[1]);
    picture.tooltips = times.map((time) => time?.[2]);
    const { backgroundColor: paper, fontFamily: font } = style;
    this.painter.prepare(picture, colours, paper, font, heatOf(overlay, picture, colours.scale));
    this.map.prepare();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.bars.stage;
    if (!width || !height) return;
    Object.assign(this.camera, { width, height });
    this.painter.resize(width, height);
    if (this.aim && this.picture) this.aimCamera();
    else this.camera.shift(0, 0);
    this.paint();
  }

  draw() {
    this.frame ||= requestAnimationFrame(() => this.paint());
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

  choose(ids) {
    this.chosen = ids;
    this.chosenAt = this.view.send({ do: "select", of: "", value: ids });
    this.model.set("selection", ids);
    this.bars.live.textContent = this.bars.selected.textContent;
  }

  hover(box, x, y) {
    this.bars.showTip(this.picture, box, x, y);
    if (box === this.hovered) return;
    this.hovered = box;
    this.linked = [];
    const nodes = box < 0 ? [] : this.picture.nodesIn(box);
    if (nodes.length) this.showTrail(this.picture.module(nodes[0]));
    this.view.point(nodes.map((node) => this.picture.ids[node]));
    this.draw();
  }

  // The modules around a node, each with those that it is in.
  showTrail(path) {
    const names = path.split(".").filter(Boolean);
    const link = (name, i) => {
      const module = names.slice(0, i + 1).join(".");
      return button("module", module, name, { title: `Select the nodes of module ${module}` });
    };
    this.fill(this.bars.trail, names.map(link));
  }

  // Put the keyboard's cursor on a box, show it, and say what it is.
  goTo(box) {
    const { picture } = this;
    if (!picture.boxes) return;
    this.cursor = Math.max(0, Math.min(picture.boxes - 1, box));
    const { x, y, w, h } = picture.rect(this.cursor);
    this.move("reveal", { x, y, w, h });
    const [px, py] = this.camera.toWindow(x + w, y + h);
    this.hover(this.cursor, px, py);
    const facts = picture.about(this.cursor).map((pair) => pair.join(" ")),
      title = `${picture.title(this.cursor)}${this.counts[this.cursor] ? ", selected" : ""}`;
    this.bars.live.textContent = `${title}. ${facts.join(", ")}`;
  }

  // Show the first of these nodes that is in the tab, or else the tab of one.
  reveal(nodes) {
    const graphs = nodes.map((node) => node.slice(0, node.indexOf(":"))).sort(),
      tabs = this.get("tabs").map(({ id }) => id);
    this.awaited = nodes;
    if (!graphs.includes(this.tab.id) && tabs.includes(graphs[0])) this.setShown({ tab: graphs[0] });
    if (this.picture?.tab !== this.tab.id) return;
    this.awaited = [];
    const [node] = this.picture.numbers(nodes);
    if (node !== undefined) this.goTo(this.picture.nodeBoxes[node]);
  }

  nextHit(step) {
    if (!this.hits.length) return;
    const from = Math.max(this.hit, step < 0 ? 0 : -1); // backwards from no match: to the last one
    this.hit = (from + step + this.hits.length) % this.hits.length;
    this.goTo(this.hits[this.hit]);
    this.bars.count.textContent = `${this.hit + 1} / ${this.hits.length} boxes`;
  }

  setShown(changes) {
    const value = { ...this.shown, ...changes };
    this.view.send({ do: "shown", of: "", value });
    this.model.set("shown", value);
  }

  // After a fold was opened or closed, the picture is fitted to the window.
  setOpening(opening) {
    this.aim = "fit";
    this.setShown({ folds: { ...this.shown.folds, [this.tab.id]: opening } });
  }

  // Open a closed fold, or else close the fold around the box.
  fold(box) {
    const opens = this.picture.opens(box),
      fold = opens ?? this.picture.around(box);
    if (!fold) return;
    const chosen = { ...this.opening.chosen, [fold.key]: Boolean(opens) },
      focus = opens ? fold.key : this.outline.path(fold.key).at(-2)?.key;
    this.setOpening({ ...this.opening, chosen, focus });
  }

  // Show a fold as it was when it was opened: those inside are as at first. Without a key, the whole tab is.
  back(key) {
    if (!key) return this.setOpening(AS_AT_FIRST);
    const inside = (inner) => inner !== key && this.outline.path(inner).some((fold) => fold.key === key);
    const chosen = Object.entries(this.opening.chosen ?? {}).filter(([inner]) => !inside(inner));
    this.setOpening({ ...this.opening, chosen: Object.fromEntries(chosen), focus: key });
  }

  turnTab(step) {
    const ids = this.get("tabs").map(({ id }) => id);
    if (ids.length) this.setShown({ tab: turn(ids, this.tab.id, step) });
  }

  press(item) {
    this.act(item.dataset.do, item.dataset.of);
  }

  act(name, of) {
    const { bars, picture } = this;
    const toggle = (key) => bars.press(key, (this[key] = !this[key]));
    const action = {
      in: () => this.move("zoom", 1.3),
      out: () => this.move("zoom", 1 / 1.3),
      fit: () => {
        this.move("fit");
        this.aim = "fit";
      },
      next: () => this.nextHit(1),
      previous: () => this.nextHit(-1),
      matched: () => this.pick(this.matched),
      region: () => this.pick(picture.nodesOfRegion(Number(of))),
      module: () => this.pick(picture.nodesOfModule(of)),
      lasso: () => toggle("lasso"),
      map: () => (this.mapOff = !this.mapOff),
      help: () => (bars.help.hidden = !toggle("help")),
      tab: () => this.setShown({ tab: of }),
      "next tab": () => this.turnTab(1),
      "tab before": () => this.turnTab(-1),
      back: () => this.back(of),
      "open all": () => this.setOpening({ all: true }),
      "close all": () => this.setOpening({ all: false }),
      upstream: () => this.pick(this.outline.reach(this.selection, true), "add"),
      downstream: () => this.pick(this.outline.reach(this.selection, false), "add"),
      overlay: () => {
        const titles = [undefined, ...this.get("overlays").map(({ title }) => title)];
        this.setShown({ overlay: turn(titles, this.overlay?.title, 1) });
      },
    }[name];
    if (picture && action) action();
    this.root.classList.toggle("rxg-lassoing", Boolean(this.lasso));
    this.draw();
  }
}
