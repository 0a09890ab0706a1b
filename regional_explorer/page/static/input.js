// Handles pointer, wheel and keys of the graph view.

import { debounced } from "./dom.js";
import { PLUS } from "./letters.js";

const PAN_STEP = 60;

export function listen(view) {
  const { camera, root, stage, searchField } = view,
    { canvas } = view.painter;
  const on = (target, name, handler, options) => target.addEventListener(name, handler, options);

  /** @returns {[number, number]} */
  const pointOf = ({ offsetX, offsetY }) => [offsetX, offsetY];
  const boxAt = ([px, py]) => view.picture?.at(...camera.toPicture(px, py), 2 / camera.k) ?? -1;
  const hullAt = (point) => {
    const hull = view.picture?.at(...camera.toPicture(...point), 0, view.picture.groups) ?? -1;
    return hull < 0 ? [] : view.picture.nodesOfPiece(view.picture.hulls[hull]);
  };
  const onPlus = (box, point) => {
    if (box < 0 || !view.picture.opens(box)) return false;
    const { x, w } = view.picture.rect(box);
    return camera.toPicture(...point)[0] - x < Math.min(Math.max(PLUS, 12 / camera.k), w / 3);
  };
  const adds = (event) => event.ctrlKey || event.metaKey;

  let press = null, // the last one: where it is, how far it has moved, and the line of a lasso
    held = false;
  on(canvas, "pointerdown", (event) => {
    if (event.button > 1 || !view.picture) return;
    stage.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const [x, y] = pointOf(event);
    press = { x, y, moved: 0, line: event.altKey || view.lasso ? new Path2D(`M${x} ${y}`) : null };
    held = true;
  });
  on(canvas, "pointermove", (event) => {
    if (!view.picture) return;
    const [x, y] = pointOf(event);
    if (!held) {
      const box = boxAt([x, y]);
      root.classList.toggle("rxg-pointing", box >= 0);
      view.hover(box, x, y);
      return;
    }
    press.moved += Math.hypot(event.movementX, event.movementY);
    if (press.line) {
      press.line.lineTo(x, y);
      view.line = press.line;
      view.draw();
    } else if (press.moved > 3) {
      view.hover(-1);
      view.move("pan", x - press.x, y - press.y);
      Object.assign(press, { x, y });
    }
  });
  const release = () => {
    held = false;
    view.line = null;
    view.draw();
  };
  on(canvas, "pointercancel", release);
  on(canvas, "pointerup", (event) => {
    if (held && press.line && press.moved > 3) pickInside(press.line, adds(event));
    release();
  });

  // A press that does not move is a click. The rest of a double click on a + was meant for the picture before.
  let opened = false;
  on(canvas, "click", (event) => {
    if (!press || press.moved > 3 || (opened && event.detail > 1)) return;
    const point = pointOf(event),
      { picture, anchor } = view,
      box = boxAt(point),
      nodes = box < 0 ? hullAt(point) : picture.nodesIn(box);
    view.cursor = -1;
    opened = onPlus(box, point);
    if (opened) return view.fold(box);
    if (box >= 0 && event.shiftKey && anchor >= 0)
      return view.pick(picture.range(anchor, box), adds(event) ? "add" : "only");
    if (box >= 0) view.anchor = box;
    if (nodes.length || !(adds(event) || event.shiftKey))
      view.pick(nodes, adds(event) ? "toggle" : "only", box < 0 ? "" : picture.kind(box));
  });
  on(canvas, "dblclick", (event) => {
    const box = boxAt(pointOf(event)),
      [node] = hullAt(pointOf(event)),
      folded = box < 0 ? view.picture?.nodeBoxes[node] : box;
    if (!opened && folded !== undefined) view.fold(folded);
  });
  on(canvas, "pointerleave", () => {
    if (!held) view.hover(-1);
  });

  function pickInside(line, add) {
    const { picture } = view,
      { pen } = view.painter;
    pen.resetTransform();
    const inside = (box) => {
      const { x, y, w, h } = picture.rect(box);
      return pen.isPointInPath(line, ...camera.toWindow(x + w / 2, y + h / 2));
    };
    const nodes = picture.where((node) => inside(picture.nodeBoxes[node]));
    view.pick(nodes, add ? "add" : "only");
    if (view.lasso) view.act("lasso");
  }

  // The plain wheel scrolls the page; with Ctrl or ⌘, or as a pinch, which browsers report as Ctrl, it zooms.
  const zoom = (event) => {
    view.hover(-1);
    if (!view.picture || !adds(event)) return;
    event.preventDefault();
    view.move("zoom", Math.exp(-event.deltaY * (event.deltaMode ? 0.096 : 0.006)), ...pointOf(event));
  };
  on(canvas, "wheel", zoom, { passive: false });

  const walk = ({ shiftKey }, box) => {
    const from = view.cursor;
    view.goTo(box);
    if (!shiftKey) return;
    if (view.anchor < 0) view.anchor = Math.max(from, 0);
    view.pick(view.picture.range(view.anchor, view.cursor));
  };
  const currentBox = () => [view.cursor, view.hovered].find((box) => box >= 0) ?? view.anchor;
  const pan = ({ shiftKey }, dx, dy) => {
    const [x, y] = shiftKey ? [camera.width * 0.8, camera.height * 0.8] : [PAN_STEP, PAN_STEP];
    view.move("pan", dx * x, dy * y);
  };
  // What keys do besides those of buttons, which have theirs in `data-key`.
  const handlers = {
    ArrowLeft: (event) => pan(event, 1, 0),
    ArrowRight: (event) => pan(event, -1, 0),
    ArrowUp: (event) => pan(event, 0, 1),
    ArrowDown: (event) => pan(event, 0, -1),
    n: (event) => walk(event, currentBox() + 1),
    p: (event) => walk(event, currentBox() - 1),
    Home: (event) => walk(event, 0),
    End: (event) => walk(event, view.picture.boxes - 1),
    " ": (event) => {
      if (currentBox() < 0) return;
      view.anchor = currentBox();
      view.pickBox(view.anchor, adds(event) ? "toggle" : "only");
    },
    a: (event) => adds(event) && view.pick(view.picture.where(() => true)),
    Enter: () => currentBox() >= 0 && view.fold(currentBox()),
    "/": () => searchField.select(),
    m: () => view.act("map"),
    g: () => view.act("turn tab", 1),
    t: () => view.act("turn tab", -1),
  };
  const leave = () => {
    view.cursor = -1;
    view.hover(-1);
  };
  on(stage, "keydown", (event) => {
    if (event.target !== stage || !view.picture || event.altKey) return;
    const name = handlers[event.key] ? event.key : event.key.toLowerCase();
    if (adds(event) && !["a", " "].includes(name)) return;
    const tool = [...root.querySelectorAll("[data-key]")].find(({ dataset }) => dataset.key.includes(name));
    if (handlers[name]) handlers[name](event);
    else if (tool) view.act(tool.dataset.do);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  on(stage, "blur", leave);

  const search = () => {
    if ((view.get("search") ?? "") !== searchField.value) view.model.set("search", searchField.value);
  };
  on(searchField, "input", debounced(view.view.signal, 120, search));
  on(searchField, "change", search); // leaving the field searches at once
  on(searchField, "keydown", (event) => {
    if (event.key === "Escape" && !searchField.value) return;
    event.stopPropagation();
    if (event.key === "Enter") {
      search();
      view.nextHit(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      view.model.set("search", "");
      stage.focus();
    }
  });

  // Close the help, or end the lasso; without them, select nothing. Returns whether it came to that.
  return () => {
    const open = ["help", "lasso"].filter((name) => view[name]);
    for (const name of open) view.act(name);
    if (open.length || !view.picture) return false;
    leave();
    view.pick([]);
    return true;
  };
}
