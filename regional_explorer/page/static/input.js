// Handles pointer, wheel and keys of the graph view.

import { debounced } from "./dom.js";
import { PLUS } from "./letters.js";

const PAN_STEP = 60, // pixels that an arrow key moves the window
  DOUBLE_MS = 500; // between the two clicks of a double click

export function listen(view) {
  const { signal, camera, root, stage, searchField } = view,
    { canvas } = view.painter;
  const on = (target, name, handler, options = {}) => target.addEventListener(name, handler, { signal, ...options });

  // A press that does not move is a click. The rest of a double click on a + was meant for the picture before.
  let drag = null,
    opener = null; // the last click on a +
  const isRestOfDouble = ({ timeStamp, clientX, clientY }) =>
    opener &&
    timeStamp - opener.timeStamp < DOUBLE_MS &&
    Math.hypot(clientX - opener.clientX, clientY - opener.clientY) < 4;
  /** @returns {[number, number]} */
  const pointOf = (event) => {
    const { left, top } = stage.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
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

  on(canvas, "pointerdown", (event) => {
    if (event.button > 1 || !view.picture) return;
    stage.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const [x, y] = pointOf(event);
    drag = { x, y, moved: 0, line: event.altKey || view.lasso ? new Path2D(`M${x} ${y}`) : null };
  });
  on(canvas, "pointermove", (event) => {
    if (!view.picture) return;
    const [x, y] = pointOf(event);
    if (!drag) {
      const box = boxAt([x, y]);
      root.classList.toggle("rxg-pointing", box >= 0);
      view.hover(box, x, y);
      return;
    }
    drag.moved += Math.hypot(event.movementX, event.movementY);
    if (drag.line) {
      drag.line.lineTo(x, y);
      view.line = drag.line;
      view.draw();
    } else if (drag.moved > 3) {
      root.classList.add("rxg-moving");
      view.hover(-1);
      view.move("pan", x - drag.x, y - drag.y);
      Object.assign(drag, { x, y });
    }
  });
  const release = () => {
    const press = drag;
    drag = view.line = null;
    root.classList.remove("rxg-moving");
    view.draw();
    return press;
  };
  on(canvas, "pointerup", (event) => {
    const press = release();
    if (press?.line && press.moved > 3) pickInside(press.line, adds(event));
    else if (press?.moved <= 3) click(pointOf(event), event);
  });
  // The right button selects; what is selected has its buttons below the graph.
  on(canvas, "contextmenu", (event) => {
    const box = boxAt(pointOf(event));
    if (box < 0) return;
    event.preventDefault();
    event.stopPropagation(); // or JupyterLab shows its own menu
    view.pickBox(box);
  });
  on(canvas, "pointercancel", release);
  on(canvas, "pointerleave", () => {
    if (!drag) view.hover(-1);
  });
  on(canvas, "dblclick", (event) => {
    if (isRestOfDouble(event)) return;
    const box = boxAt(pointOf(event)),
      [node] = hullAt(pointOf(event));
    if (box >= 0) view.fold(box);
    else if (node !== undefined) view.fold(view.picture.nodeBoxes[node]);
  });

  function click(point, event) {
    if (isRestOfDouble(event)) return;
    const { picture, anchor } = view,
      box = boxAt(point),
      nodes = box < 0 ? hullAt(point) : picture.nodesIn(box);
    view.cursor = -1;
    if (onPlus(box, point)) {
      opener = event;
      return view.fold(box);
    }
    if (box >= 0 && event.shiftKey && anchor >= 0)
      return view.pick(picture.range(anchor, box), adds(event) ? "add" : "only");
    if (box >= 0) view.anchor = box;
    if (nodes.length || !(adds(event) || event.shiftKey))
      view.pick(nodes, adds(event) ? "toggle" : "only", box < 0 ? "" : picture.kind(box));
  }

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
  const wheel = (event) => {
    view.hover(-1);
    if (!view.picture || !adds(event)) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    view.move("zoom", Math.exp(-event.deltaY * unit * 0.006), ...pointOf(event));
  };
  on(canvas, "wheel", wheel, { passive: false });

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
    g: () => view.act("next tab"),
    t: () => view.act("tab before"),
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
  on(searchField, "input", debounced(signal, 120, search));
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
