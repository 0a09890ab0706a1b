// @ts-nocheck
// Shows the element tree that the kernel describes, changing what differs; announces texts; sends events of its rows.

import { el, follow, setAttributes } from "./dom.js";

const build = (part) => (typeof part === "string" ? part : el(part[0], part[1], ...part.slice(2).map(build)));
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
// The attributes that identify an element: if only others change, the element is updated in place.
const KEYS = ["data-do", "data-of", "data-view", "data-part", "type"];
const alike = (one, other) => Array.isArray(one) && one[0] === other?.[0] && KEYS.every((key) => one[1][key] === other[1][key]);

export class ElementTree {
  constructor(model, host, signal) {
    Object.assign(this, { model, signal, parts: [] });
    const label = model.get("label");
    // JupyterLab's shortcuts do not apply inside.
    this.root = el("div", { class: model.get("kind"), role: label && "group", "aria-label": label, "data-lm-suppress-shortcuts": "true" });
    host.append(this.root);
    this.on("click", (at, event) => {
      if (at?.dataset.do === "copy") this.copy(at);
      else if (at && !/^(INPUT|SELECT|OPTION)$/.test(event.target.tagName)) this.press(at, event);
    });
    this.on("change", (at, event) => { if (at) this.press(at, event, event.target.type === "checkbox" ? event.target.checked : event.target.value); });
    this.on("keydown", (at, event) => this.key(at, event));
    for (const name of ["pointerover", "pointerleave", "focusin"]) this.on(name, (at) => this.point(at));
    follow(model, signal, { tree: () => this.show(), lit: () => this.highlight(), "msg:custom": (message) => this.onMessage(message) });
    signal.addEventListener("abort", () => { clearTimeout(this.pointing); this.root.remove(); });
    this.show();
  }

  // Listen to events in this view, but not in views inside it.
  on(name, handler) {
    this.root.addEventListener(name, (event) => {
      if (this.owns(event.target)) handler(event.target.closest?.("[data-do]"), event);
    }, { signal: this.signal });
  }

  owns(element) { return element.closest?.("[data-lm-suppress-shortcuts]") === this.root; }

  all(selector) { return [...this.root.querySelectorAll(selector)].filter((one) => this.owns(one)); }

  onMessage() {}

  content() { return this.model.get("tree"); }

  // Only elements that differ are changed, so that focus and scroll positions stay.
  show() {
    const active = document.activeElement, { dataset } = this.root.contains(active) && this.owns(active) ? active : {};
    this.parts = this.patch(this.root, this.content(), this.parts);
    const rows = this.rows();
    if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
    this.highlight();
    const moved = active.role === "tab" && active.tabIndex < 0; // the focus follows the tab that is shown
    if (!dataset?.do || (this.root.contains(document.activeElement) && !moved)) return;
    const twins = this.all("[data-do]").filter((one) => one.dataset.do === dataset.do);
    const twin = twins.find((one) => (one.role === "tab" ? one.tabIndex === 0 : one.dataset.of === dataset.of));
    twin?.focus({ preventScroll: true });
  }

  patch(parent, now, before) {
    now.forEach((part, at) => {
      const was = before[at], child = parent.childNodes[at];
      if (same(part, was)) return;
      if (child && alike(part, was)) {
        setAttributes(child, part[1], was[1]);
        if (!same(part.slice(2), was.slice(2))) this.patch(child, part.slice(2), was.slice(2));
      } else if (child) child.replaceWith(build(part));
      else parent.append(build(part));
    });
    while (parent.childNodes.length > now.length) parent.lastChild.remove();
    return now;
  }

  rows() { return this.all("[data-do=pick]"); }

  // Highlight rows without rebuilding them: `lit` has words for each row by its `of`, and a text to announce.
  highlight() {
    const lit = this.model.get("lit");
    if (!lit) return;
    for (const row of this.rows()) {
      row.dataset.lit = lit.rows[row.dataset.of] ?? "";
      row.setAttribute("aria-selected", String(row.dataset.lit.includes("selected")));
    }
    const status = this.root.querySelector("[role=status]");
    if (status.textContent !== lit.say) status.textContent = lit.say;
    if (!this.root.matches(":hover, :focus-within")) this.root.querySelector("[data-lit~=hovered]")?.scrollIntoView({ block: "nearest" });
  }

  point(at) {
    if (!this.model.get("lit")) return;
    clearTimeout(this.pointing);
    this.pointing = setTimeout(() => this.model.send({ do: "point", of: at?.dataset.of ?? "" }), 60);
  }

  press(at, event, value = null) { this.model.send(this.message(at, event, value)); }

  message(at, { shiftKey = false, ctrlKey, metaKey }, value) {
    return { do: at.dataset.do, of: at.dataset.of ?? "", value, shift: shiftKey, ctrl: Boolean(ctrlKey || metaKey) };
  }

  // Pages without HTTPS have no navigator.clipboard, only the old copy command.
  copy(at) {
    const done = () => {
      const text = at.textContent;
      at.textContent = "Copied";
      setTimeout(() => { at.textContent = text; }, 2000);
    };
    const old = (event) => { event.clipboardData.setData("text/plain", at.dataset.of); event.preventDefault(); event.stopPropagation(); };
    if (navigator.clipboard) navigator.clipboard.writeText(at.dataset.of).then(done);
    else {
      document.addEventListener("copy", old, { once: true, capture: true });
      document.execCommand("copy");
      done();
    }
  }

  // Arrow keys move between rows, with Shift they extend the selection; Enter selects one, Space adds one.
  key(at, event) {
    const rows = this.rows(), from = rows.indexOf(event.target), { key, shiftKey } = event;
    if (from < 0) return;
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[key];
    const next = step && rows[Math.max(0, Math.min(rows.length - 1, from + step))];
    if (next) {
      for (const row of rows) row.tabIndex = row === next ? 0 : -1;
      next.closest("details")?.setAttribute("open", "");
      next.focus();
    }
    if (next && shiftKey) this.press(next, event);
    else if (key === " " || key === "Enter") this.press(at, { shiftKey, ctrlKey: key === " " || event.ctrlKey });
    else if (!next) {
      if (key === "Escape" && this.model.get("lit")) this.model.send({ do: "clear", of: "" });
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
