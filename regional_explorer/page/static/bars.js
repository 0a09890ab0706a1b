// The texts around the drawing that the page fills: the overlay's button, the status, the tooltip.

import { el } from "./dom.js";

export class Bars {
  constructor(root) {
    const find = (name) => root.querySelector(`.rxg-${name}`);
    this.root = root;
    this.search = root.querySelector("input");
    this.stage = find("stage");
    this.canvas = find("canvas");
    this.map = find("map");
    this.empty = find("empty");
    this.tip = find("tip");
    this.help = find("help");
    this.count = find("count");
    this.selected = find("selected");
    this.trail = find("trail");
    this.live = find("live");
  }

  button(name) {
    return this.root.querySelector(`[data-do=${name}]`);
  }

  press(name, on) {
    this.button(name).setAttribute("aria-pressed", String(on));
    return on;
  }

  // The button of overlays says which one is worn.
  showOverlay(title, available) {
    const button = this.button("overlay"),
      text = title ? `Overlay: ${title}` : "Overlay";
    button.textContent = text;
    button.disabled = !available;
    button.setAttribute("aria-label", `${text}: ${button.title}`);
    this.press("overlay", Boolean(title));
  }

  showStatus(picture, selected, elsewhere) {
    for (const name of ["upstream", "downstream"]) this.button(name).disabled = !selected;
    this.empty.textContent = picture.boxes ? "" : "This graph has no ops.";
    const more = elsewhere ? `, ${elsewhere} in other graphs` : "";
    this.selected.textContent =
      selected || elsewhere
        ? `${selected} of ${picture.nodes} nodes selected${more}`
        : `${picture.nodes} nodes in ${picture.boxes} boxes`;
  }

  showTip(picture, box, x, y) {
    const { tip, stage } = this;
    tip.hidden = box < 0;
    if (box < 0) return;
    const rows = picture.about(box).flatMap(([word, text]) => [el("dt", {}, word), el("dd", {}, text)]);
    tip.replaceChildren(el("b", {}, picture.title(box)), el("dl", {}, ...rows));
    const { offsetWidth: w, offsetHeight: h } = tip,
      { clientWidth: wide, clientHeight: high } = stage;
    tip.style.left = `${Math.max(4, x + 16 + w > wide ? x - 12 - w : x + 16)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14 + h > high ? y - 8 - h : y + 14, high - h - 4))}px`;
  }
}
