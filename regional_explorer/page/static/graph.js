// The graph in the view of a session: the tab, open folds, selection, search and visible part.

import { Camera } from "./camera.js";
import { heatOf } from "./colours.js";
import { alike, debounced, fill, followLook, isDark, turn } from "./dom.js";
import { listen } from "./input.js";
import { Minimap } from "./minimap.js";
import { Painter } from "./painter.js";
import { Outline, Picture } from "./picture.js";
import { matches } from "./search.js";

const IDLE_MS = 1000; // then the graphs of other tabs are asked for
const AS_AT_FIRST = {};
const NO_TAB = { id: "", title: "graph", graphs: [] };

const button = (does, of, text, more) => ["button", { type: "button", "data-do": does, "data-of": of, ...more }, text];

export class Graph {
  /** @type {Outline} */ outline;
  /** @type {Picture} */ picture;
  outlined = [];
  drawn = []; // all that the last picture depends on
  asked = new Map(); // the folds of each graph when it was asked for
  awaited = [];
  selection = new Set();
  counts = new Uint32Array(); // selected nodes by box
  /** @type {any} */ found = { nodes: [], boxes: [], counts: [], any: false, error: "" }; // `counts` is by box
  hit = -1; // the place of the box that is shown, among those found
  hovered = -1;
  cursor = -1;
  anchor = -1;
  clicked = ""; // what the last selection is of
  aim = "open"; // the camera's method that follows the picture until the window is moved by hand
  first = "";
  line = null;
  lasso = false;
  help = false;
  mapOff = false;
  frame = 0;
  look = "";

  constructor(view, root) {
    const { model, signal } = view;
    this.view = view;
    this.model = model;
    this.root = root;
    root.rxView = this; // for tests, benchmarks, a console
    fill(root, this.get("bars"));
    this.stage = this.element(".rxg-stage");
    this.live = this.element(".rxg-live");
    this.searchField = this.element("input");
    this.camera = new Camera();
    this.painter = new Painter(this.element(".rxg-canvas"));
    this.map = new Minimap(this.element(".rxg-map"), this);
    this.escape = listen(this);
    this.askForOthers = debounced(signal, IDLE_MS, () => this.ask(this.get("graphs").keys()));
    model.on("change", () => this.load());
    model.on("change:selection", () => {
      this.readSelection();
      view.light();
      view.follow("chosen");
    });
    model.on("change:search", () => this.find());
    model.on("change:marked", () => this.find());
    followLook(signal, () => this.draw());
    new ResizeObserver(() => this.resize()).observe(this.painter.canvas);
    this.resize();
  }

  get = (name) => this.model.get(name);
  element = (selector) => this.root.querySelector(selector);

  // Without a kernel, those that are here.
  get tabs() {
    return this.get("tabs").filter(({ graphs }) => !this.root.closest(".rx-dead") || graphs.every(this.has));
  }

  get tab() {
    const named = (id) => this.tabs.find((tab) => tab.id === id);
    return named(this.get("shown").tab) ?? named(this.get("first")) ?? NO_TAB;
  }

  get opening() {
    return this.get("shown").folds?.[this.tab.id] ?? AS_AT_FIRST;
  }

  get overlays() {
    return this.get("overlays").filter(({ values }) => !values || Object.keys(values).length);
  }

  get overlay() {
    return this.overlays.find(({ title }) => title === this.get("shown").overlay);
  }

  has = (graph) => this.get(`folds${graph}`)?.homes && this.get(`facts${graph}`)?.ops;

  // Ask the kernel for graphs that are not here; return whether all are.
  ask(graphs) {
    const missing = [...graphs].filter((graph) => !this.has(graph));
    for (const graph of missing) {
      const folds = this.get(`folds${graph}`);
      if (!this.asked.has(graph) || this.asked.get(graph) !== folds) this.view.send({ do: "graph", of: String(graph) });
      this.asked.set(graph, folds);
    }
    return !missing.length;
  }

  // Draw what has changed. While a graph is awaited, the last picture stays.
  load() {
    const { tab, opening, overlay } = this,
      [graphs, look, tabs, overlays] = ["graphs", "look", "tabs", "overlays"].map(this.get);
    const parts = tab.graphs.map((graph) => ({
      ...graphs[graph],
      facts: this.get(`facts${graph}`),
      folds: this.get(`folds${graph}`),
      pieces: look.pieces[graph],
    }));
    const outlined = [tab, graphs, look, ...parts.flatMap(({ facts, folds }) => [facts, folds])],
      drawn = [...outlined, opening, overlay, tabs, overlays];
    if (alike(drawn, this.drawn)) return;
    this.askForOthers();
    if (!this.ask(tab.graphs)) return this.view.refresh();
    if (!alike(outlined, this.outlined)) this.outline = new Outline(tab, parts, look.regions);
    if (this.outline !== this.picture?.outline || opening !== this.picture.opening) this.redraw();
    Object.assign(this, { outlined, drawn });
    this.view.refresh();
    this.look = "";
    this.draw();
    if (this.awaited.length) this.reveal(this.awaited);
  }

  redraw() {
    const before = this.picture,
      focus = before?.idOf(before.nearest(this.camera)),
      held = before?.idOf(this.anchor);
    this.hover(-1); // boxes get other numbers
    const { letters } = this.painter;
    letters.font(getComputedStyle(this.root).fontFamily);
    const measure = (text, size) => letters.width(text, size);
    this.picture = this.camera.picture = new Picture(this.outline, this.opening, measure);
    Object.assign(this, { cursor: -1, anchor: this.picture.boxWith(held) });
    if (before?.tab !== this.picture.tab) Object.assign(this, { anchor: -1, aim: "open", first: "" });
    this.readSelection();
    this.readSearch();
    this.settle(before, focus);
    this.stage.ariaLabel = `${this.picture.graphs.map(({ title }) => title)}: ${this.picture.boxes} boxes`;
  }

  showTools() {
    const { overlay, lasso, help } = this,
      tool = (name) => this.element(`[data-do=${name}]`);
    tool("overlay").value = overlay?.title ?? "";
    for (const [name, on] of Object.entries({ lasso, help })) tool(name).ariaPressed = String(on);
    for (const name of ["upstream", "downstream"]) tool(name).disabled = !this.selection.size;
    this.element(".rxg-help").hidden = !help;
    this.root.classList.toggle("rxg-lassoing", lasso);
  }

  // The elements of the bars, by `data-bar`.
  parts = {
    problem: () => [this.get("problem")],
    tabs: () =>
      this.get("tabs").map((tab) => {
        const { id, title } = tab,
          shown = tab === this.tab,
          state = { "aria-selected": String(shown), tabindex: shown ? "0" : "-1", disabled: !this.tabs.includes(tab) };
        return button("tab", id, title, { title, role: "tab", ...state });
      }),
    crumbs: () => {
      const path = [{ key: "", crumb: this.tab.title }, ...(this.outline?.path(this.opening.focus) ?? [])];
      return path.map(({ key, crumb }) => {
        const current = key === path.at(-1).key && "location";
        return button("back", key, crumb, { title: `Back to ${crumb}`, "aria-current": current });
      });
    },
    legend: () => {
      const entries = this.get("look").legend.filter(([when]) => !when || this.outline?.used.has(when));
      const unpainted = this.get("overlays").find(({ title }) => title === this.get("shown").overlay);
      return [...entries.map(([, entry]) => entry), unpainted?.scale];
    },
    overlay: () => {
      const option = (value, text = value) => ["option", { value, selected: value === this.overlay?.title }, text];
      return [option("", "region"), ...this.overlays.map(({ title }) => option(title))];
    },
    count: () => {
      const { hit, found } = this;
      if (found.error) return [["span", { class: "rxg-wrong" }, found.error]];
      return [hit >= 0 ? `${hit + 1} / ${found.boxes.length} boxes` : found.any && `${found.nodes.length} found`];
    },
    empty: () => [this.picture?.boxes === 0 && "This graph has no ops."],
    selected: () => [this.status],
    // The modules around the selection, each with those that it is in.
    trail: () => {
      const names =
        this.picture
          ?.module([...this.selection])
          .split(".")
          .filter(Boolean) ?? [];
      return names.map((name, i) => {
        const module = names.slice(0, i + 1).join(".");
        return button("module", module, name, { title: `Select the nodes of module ${module}` });
      });
    },
  };

  get status() {
    const { picture, selection } = this,
      elsewhere = this.get("selection").length - selection.size;
    if (!picture) return "";
    if (!selection.size && !elsewhere) return `${picture.nodes} nodes in ${picture.boxes} boxes`;
    return `${selection.size} of ${picture.nodes} nodes selected${elsewhere ? `, ${elsewhere} in other graphs` : ""}`;
  }

  // Until the user moves the window, it is where it opens, or fits.
  // Then the box that was in the middle of the window stays in place in a new picture.
  settle(before, id) {
    const { camera } = this,
      rectOf = (picture, id) => picture?.rect(picture.boxWith(id)),
      [from, to] = [rectOf(before, id), rectOf(this.picture, id)];
    if (this.aim && camera.width) camera[this.aim](rectOf(this.picture, this.first));
    else if (from && to) camera.moveTo(camera.x + to.x + to.w / 2 - from.x - from.w / 2, camera.y + to.y - from.y);
    else camera.pan(0, 0);
  }

  readSelection() {
    const { picture } = this;
    if (!picture) return;
    // What the kernel sends before it has heard of the last selection is older.
    const { ids, page, number } = this.get("chosen") ?? {};
    if (number > (this.get("answered")?.[page] ?? 0) && this.get("selection") !== ids) this.model.set("selection", ids);
    this.selection = new Set(picture.numbers(this.get("selection")));
    this.counts = picture.counts(this.selection);
    this.draw();
  }

  readSearch() {
    const query = this.get("search") ?? "",
      { picture } = this;
    if (this.searchField.value !== query) this.searchField.value = query;
    if (!picture) return;
    // Without a search, the nodes that a pattern would mark are highlighted.
    const marked = picture.numbers(this.get("marked") ?? []);
    const { nodes, error = "" } = query.trim() ? matches(picture, query) : { nodes: marked };
    const any = Boolean(query.trim() || nodes.length) && !error;
    this.found = { nodes, boxes: picture.boxesOf(nodes), counts: picture.counts(nodes), any, error };
    this.hit = -1;
    this.draw();
  }

  find() {
    this.readSearch();
    const rect = this.picture?.rect(this.found.boxes[0]);
    if (rect && !this.camera.shows(rect)) this.move("reveal", rect);
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
    picture.timed = overlay && !overlay.values && !overlay.groups;
    this.painter.prepare(picture, colours, style, heatOf(overlay, picture, colours));
    this.map.prepare();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.painter.canvas;
    if (!width || !height) return;
    Object.assign(this.camera, { width, height });
    this.painter.resize(width, height);
    this.settle();
    this.paint();
  }

  draw() {
    this.frame ||= requestAnimationFrame(() => this.paint());
  }

  // Colours and fonts are compared in each frame: whatever changed them.
  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.picture || !this.root.isConnected) return;
    this.map.canvas.hidden = this.mapOff || !this.map.helps(this.stage.clientWidth); // it takes room from the drawing
    const style = getComputedStyle(this.root),
      look = `${style.backgroundColor} ${style.fontFamily} ${devicePixelRatio}`;
    if (look !== this.look) this.prepare(style);
    this.look = look;
    const { picture, found, counts: selected, hovered: hover, cursor, line } = this;
    const hit = found.boxes[this.hit] ?? -1,
      linked = picture.boxesOf(picture.numbers(this.view.hovered)).filter((box) => box !== hover),
      selecting = this.selection.size > 0;
    const searched = { finding: found.any, found: found.counts, hit };
    this.painter.draw(this.camera, { ...searched, selected, selecting, hover, cursor, linked, line });
    this.map.draw();
  }

  pick(nodes, how, clicked) {
    this.choose(this.picture.idsOf(nodes), how, clicked);
  }

  pickBox(box, how) {
    this.pick(this.picture.nodesIn(box), how, this.picture.kind(box));
  }

  // `how`: "only" these nodes, "add" them, or "toggle": drop them if all of them are selected. `clicked` is the kind of a
  // fold, or "op".
  choose(ids, how = "only", clicked = "") {
    const own = new Set(ids),
      before = new Set(how === "only" ? [] : this.get("selection")),
      all = how === "toggle" && own.isSubsetOf(before) ? before.difference(own) : before.union(own);
    const chosen = this.view.ids.filter((id) => all.has(id)), // in the order they run
      number = this.view.send({
        do: "select",
        of: how === "only" || clicked === this.clicked ? clicked : "",
        value: chosen,
      });
    this.clicked = clicked;
    this.model.set("chosen", { ids: chosen, page: this.view.page, number });
    this.model.set("selection", chosen);
    this.live.textContent = this.status;
  }

  hover(box, x, y) {
    this.showTip(box, x, y);
    if (box === this.hovered) return;
    this.hovered = box;
    this.view.point(this.picture.idsOf(this.picture.nodesIn(box)));
    this.draw();
  }

  showTip(box, x, y) {
    const { picture } = this,
      tip = this.element(".rxg-tip");
    tip.hidden = box < 0;
    if (box < 0) return;
    const rows = picture.about(box).flatMap(([word, text]) => [
      ["dt", {}, word],
      ["dd", {}, text],
    ]);
    fill(tip, [
      ["b", {}, picture.title(box)],
      ["dl", {}, ...rows],
    ]);
    const { offsetWidth: w, offsetHeight: h } = tip,
      { clientWidth: wide, clientHeight: high } = this.stage;
    tip.style.left = `${Math.max(4, x + 16 + w > wide ? x - 12 - w : x + 16)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14 + h > high ? y - 8 - h : y + 14, high - h - 4))}px`;
  }

  goTo(box) {
    const { picture } = this;
    if (!picture.boxes) return;
    this.cursor = Math.max(0, Math.min(picture.boxes - 1, box));
    const rect = picture.rect(this.cursor);
    this.move("reveal", rect);
    const [px, py] = this.camera.toWindow(rect.x + rect.w, rect.y + rect.h);
    this.hover(this.cursor, px, py);
    const facts = picture.about(this.cursor).map((pair) => pair.join(" ")),
      title = `${picture.title(this.cursor)}${this.counts[this.cursor] ? ", selected" : ""}`;
    this.live.textContent = `${title}. ${facts.join(", ")}`;
  }

  // Show the first of these nodes that is in the tab, or else the tab of the first.
  reveal(nodes, quietly = false) {
    const graphs = nodes.map((node) => node.split(":", 1)[0]),
      here = this.tab.graphs.map((graph) => this.get("graphs")[graph].id);
    this.awaited = nodes;
    if (!graphs.some((graph) => here.includes(graph)) && this.tabs.some(({ id }) => id === graphs[0]))
      this.setShown({ tab: graphs[0] });
    if (this.picture?.tab !== this.tab.id) return;
    this.awaited = [];
    const [node] = this.picture.numbers(nodes);
    if (node === undefined) return;
    this.goTo(this.picture.nodeBoxes[node]);
    if (quietly) this.hover(-1);
  }

  nextHit(step) {
    const { boxes } = this.found;
    if (!boxes.length) return;
    this.hit = turn([...boxes.keys()], this.hit, step);
    this.goTo(boxes[this.hit]);
    this.view.refresh();
  }

  setShown(changes) {
    const value = { ...this.get("shown"), ...changes };
    this.view.send({ do: "shown", of: "", value });
    this.model.set("shown", value);
  }

  // The picture then begins at the fold that was opened or closed, if it is larger than the window.
  setOpening(opening, first = "") {
    this.aim = "open";
    this.first = first;
    this.setShown({ folds: { ...this.get("shown").folds, [this.tab.id]: opening } });
  }

  fold(box) {
    const opens = this.picture.opens(box),
      fold = opens ?? this.picture.around(box);
    if (!fold) return;
    const chosen = { ...this.opening.chosen, [fold.key]: Boolean(opens) },
      focus = opens ? fold.key : this.outline.path(fold.key).at(-2)?.key;
    this.setOpening({ ...this.opening, chosen, focus }, this.picture.idOf(box));
  }

  // Show a fold as it was when it was opened: those inside are as at first. Without a key, the whole tab is.
  back(key) {
    if (!key) return this.setOpening(AS_AT_FIRST);
    const inside = (inner) => inner !== key && this.outline.path(inner).some((fold) => fold.key === key);
    const chosen = Object.entries(this.opening.chosen ?? {}).filter(([inner]) => !inside(inner));
    this.setOpening({ ...this.opening, chosen: Object.fromEntries(chosen), focus: key });
  }

  // What buttons and keys do, by `data-do`.
  actions = {
    in: () => this.move("zoom", 1.3),
    out: () => this.move("zoom", 1 / 1.3),
    fit: () => {
      this.move("fit");
      this.aim = "fit";
    },
    next: () => this.nextHit(1),
    previous: () => this.nextHit(-1),
    matched: () => this.pick(this.found.nodes),
    region: (of) => this.pick(this.picture.nodesOfRegion(Number(of))),
    module: (of) => this.pick(this.picture.nodesOfModule(of), "only", "module"),
    lasso: () => (this.lasso = !this.lasso),
    map: () => (this.mapOff = !this.mapOff),
    help: () => (this.help = !this.help),
    tab: (of) => this.setShown({ tab: of }),
    "turn tab": (step) => this.setShown({ tab: turn(this.tabs, this.tab, step).id }),
    back: (of) => this.back(of),
    "open all": () => this.setOpening({ all: true }),
    "close all": () => this.setOpening({ all: false }),
    upstream: () => this.pick(this.outline.reach(this.selection, true), "add"),
    downstream: () => this.pick(this.outline.reach(this.selection, false), "add"),
    overlay: (of) => {
      const titles = ["", ...this.overlays.map(({ title }) => title)];
      this.setShown({ overlay: of ?? turn(titles, this.overlay?.title ?? "", 1) });
    },
  };

  act(name, of) {
    if (this.picture) this.actions[name]?.(of);
    this.view.refresh();
    this.draw();
  }
}
