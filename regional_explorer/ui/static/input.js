// Pointer, wheel and keys of the graph view.

import { el } from "./dom.js";
import { boxesInside } from "./lasso.js";

const STEP = 60; // pixels that an arrow key moves the window
const KEYS = [
  ["Drag, wheel, arrows", "move; with Shift far"],
  ["Ctrl+wheel, + −", "zoom"],
  ["N P, Home End", "walk through the boxes; with Shift select"],
  ["Click, Space", "select; with Ctrl add or drop, Shift all between"],
  ["Alt+drag, L", "lasso; with Ctrl add"],
  ["Double-click, Enter", "open it, or close what is around it"],
  ["F, E, C", "show all of it, expand all, collapse all"],
  ["U, D, S", "select upstream, downstream, the matches"],
  ["Ctrl+A, Esc", "select all, none"],
  ["/", "search"],
  ["G, T", "next graph, the one before"],
  ["O, M", "next overlay; map on or off"],
];

export function listen(view) {
  const { stage, bars, signal, camera, root } = view;
  const on = (target, name, handler, options = {}) => target.addEventListener(name, handler, { signal, ...options });
  bars.help.append(...KEYS.flatMap(([keys, text]) => [el("dt", { text: keys }), el("dd", { text })]));

  // ---- pointer: a press that does not move is a click
  let drag = null;
  const at = (event) => {
    const { left, top } = stage.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  const boxAt = ([px, py]) => view.picture?.at(...camera.toPicture(px, py), 2 / camera.k) ?? -1;
  const hullAt = (point) => {
    const group = view.picture?.at(...camera.toPicture(...point), 0, view.picture.groups) ?? -1;
    return group < 0 ? [] : view.picture.nodesOfPiece(view.picture.groupPieces[group]);
  };

  on(view.canvas, "pointerdown", (event) => {
    if (event.button > 1 || !view.picture) return;
    stage.focus({ preventScroll: true });
    view.canvas.setPointerCapture(event.pointerId);
    const [x, y] = at(event);
    drag = { x, y, moved: 0, points: event.altKey || view.lassoing ? [[x, y]] : null };
  });
  on(view.canvas, "pointermove", (event) => {
    if (!view.picture) return;
    const [x, y] = at(event);
    if (!drag) {
      const box = boxAt([x, y]);
      root.classList.toggle("rxg-pointing", box >= 0);
      view.hover(box, x, y);
      return;
    }
    drag.moved += Math.hypot(event.movementX, event.movementY);
    if (drag.points) {
      drag.points.push([x, y]);
      view.lasso = drag.points;
      view.draw();
    } else if (drag.moved > 3) {
      root.classList.add("rxg-moving");
      view.hover(-1);
      camera.pan(x - drag.x, y - drag.y);
      Object.assign(drag, { x, y });
      view.touched = true;
      view.draw();
    }
  });
  on(view.canvas, "pointerup", (event) => {
    const done = drag;
    drag = null;
    root.classList.remove("rxg-moving");
    if (!done) return;
    if (done.points && done.moved > 3) pickInside(done.points, event.ctrlKey || event.metaKey);
    else if (done.moved <= 3) click(boxAt(at(event)), event, at(event));
    view.lasso = null;
  });
  on(view.canvas, "pointercancel", () => { drag = view.lasso = null; });
  on(view.canvas, "pointerleave", () => { if (!drag) view.hover(-1); });
  on(view.canvas, "dblclick", (event) => {
    const box = boxAt(at(event));
    const [node] = hullAt(at(event));
    if (box >= 0) view.fold(box);
    else if (node !== undefined) view.fold(view.picture.nodeBoxes[node]);
  });

  function click(box, { shiftKey, ctrlKey, metaKey }, point) {
    const { picture } = view;
    view.cursor = -1;
    if (box < 0) {
      const nodes = hullAt(point);
      if (nodes.length) view.pick(nodes, ctrlKey || metaKey ? "toggle" : "only");
      else if (!ctrlKey && !metaKey && !shiftKey) view.pick([]);
      return;
    }
    if (shiftKey && view.anchor >= 0 && view.anchor < picture.boxes) {
      view.pick(picture.range(view.anchor, box), ctrlKey || metaKey ? "add" : "only");
    } else {
      view.anchor = box;
      view.pick([...picture.nodesIn(box)], ctrlKey || metaKey ? "toggle" : "only");
    }
  }

  function pickInside(points, add) {
    const inside = boxesInside(points, view.picture, camera, view.painter.pen);
    view.pick(view.picture.where((node) => inside.has(view.picture.nodeBoxes[node])), add ? "add" : "only");
    if (view.lassoing) view.act("lasso");
  }

  // ---- wheel: two fingers move, a pinch or Ctrl zooms
  on(view.canvas, "wheel", (event) => {
    if (!view.picture) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey) camera.zoom(Math.exp(-event.deltaY * unit * 0.006), ...at(event));
    else if (event.shiftKey && !event.deltaX) camera.pan(-event.deltaY * unit, 0);
    else camera.pan(-event.deltaX * unit, -event.deltaY * unit);
    view.touched = true;
    view.hover(-1);
    view.draw();
  }, { passive: false });

  // ---- keys
  const walk = (box, extend) => {
    const from = view.cursor;
    view.goTo(box);
    if (!extend) return;
    if (view.anchor < 0) view.anchor = Math.max(from, 0);
    view.pick(view.picture.range(view.anchor, view.cursor));
  };
  const near = () => (view.cursor >= 0 ? view.cursor : Math.max(view.anchor, view.hovered));
  const move = (dx, dy) => (event) => {
    const [x, y] = event.shiftKey ? [camera.width * 0.8, camera.height * 0.8] : [STEP, STEP];
    camera.pan(-dx * x, -dy * y);
    view.touched = true;
    view.draw();
  };
  const act = (name) => () => view.act(name);
  const nextTab = (step) => () => {
    const ids = view.get("tabs").map(([id]) => id);
    if (ids.length) view.tab(ids[(ids.indexOf(view.get("tab")) + step + ids.length) % ids.length]);
  };
  const keys = {
    ArrowLeft: move(-1, 0), ArrowRight: move(1, 0), ArrowUp: move(0, -1), ArrowDown: move(0, 1),
    "+": act("in"), "=": act("in"), "-": act("out"), f: act("fit"), l: act("lasso"), u: act("upstream"), d: act("downstream"),
    e: act("open"), c: act("close"), o: act("overlay"), m: act("map"), s: act("matched"), "?": act("help"),
    n: (event) => walk(near() + 1, event.shiftKey), p: (event) => walk(near() - 1, event.shiftKey),
    Home: (event) => walk(0, event.shiftKey), End: (event) => walk(view.picture.boxes - 1, event.shiftKey),
    " ": (event) => { if (near() >= 0) { view.anchor = near(); view.pick([...view.picture.nodesIn(near())], event.ctrlKey ? "toggle" : "only"); } },
    Enter: () => { if (near() >= 0) view.fold(near()); },
    "/": () => bars.search.select(), g: nextTab(1), t: nextTab(-1),
    Escape: () => {
      if (!bars.help.hidden) view.act("help");
      else if (view.lassoing) view.act("lasso");
      else { view.cursor = -1; view.hover(-1); view.pick([]); }
    },
  };
  on(stage, "keydown", (event) => {
    if (event.target !== stage || !view.picture || event.altKey) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key.toLowerCase() !== "a") return;
      view.pick(view.picture.where(() => true));
    } else {
      const key = keys[event.key] ?? keys[event.key.toLowerCase()];
      if (!key) return;
      key(event);
    }
    event.preventDefault();
    event.stopPropagation();
  });
  on(stage, "blur", () => { view.cursor = -1; view.hover(-1); });

  let typing;
  on(bars.search, "input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => view.tell("search", bars.search.value), 120);
  });
  on(bars.search, "keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") {
      clearTimeout(typing);
      if (view.get("search") !== bars.search.value) view.tell("search", bars.search.value);
      view.nextHit(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      view.tell("search", "");
      stage.focus();
    }
  });
  on(bars.tabs, "keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) nextTab(step)();
  });
}
