// Shows elements that the kernel describes, changing what differs, and sends what is done to those with `data-do`.

import { el, follow, setAttributes, turn } from "./dom.js";

const build = (part) => (typeof part === "string" ? part : el(part[0], part[1], ...part.slice(2).map(build)));
const same = (a, b) => a === b || JSON.stringify(a) === JSON.stringify(b);
// The attributes that identify an element: if only others change, the element is updated in place.
const IDENTITY = ["data-do", "data-of", "data-part", "type"];
const alike = (a, b) => Array.isArray(a) && a[0] === b?.[0] && IDENTITY.every((key) => a[1][key] === b[1][key]);
const LISTS = "tbody, .rxs-list";

export class ElementTree {
  /** @type {any} */ model;
  /** @type {HTMLElement} */ root;
  /** @type {AbortSignal} */ signal;
  /** @type {string | null} the trait with the elements in `root` */ tree;
  filled = new WeakMap(); // the children that an element was given last

  // Elements with `data-part` or `data-bar` hold the part of that name.
  constructor(model, root, signal, tree) {
    Object.assign(this, { model, root, signal, tree });
    root.dataset.lmSuppressShortcuts = "true"; // JupyterLab's shortcuts do not apply inside
    this.on("click", (item, event) => {
      if (item?.dataset.do === "copy") this.copy(item);
      else if (item && !/^(INPUT|SELECT|OPTION)$/.test(event.target.tagName)) this.press(item, event);
    });
    this.on("change", (item, event) => { if (item) this.press(item, event, event.target.type === "checkbox" ? event.target.checked : event.target.value); });
    this.on("keydown", (item, event) => this.key(item, event));
    follow(model, signal, { "msg:custom": (message) => this.onMessage(message) });
    signal.addEventListener("abort", () => this.root.remove());
  }

  // Listen to events in this view, but not in views inside it.
  on(name, handler) {
    this.root.addEventListener(name, (event) => {
      if (this.owns(event.target)) handler(event.target.closest?.("[data-do]"), event);
    }, { signal: this.signal });
  }

  owns(element) { return element.closest?.("[data-lm-suppress-shortcuts]") === this.root; }

  all(selector) { return [...this.root.querySelectorAll(selector)].filter((element) => this.owns(element)); }

  get(name) { return this.model.get(name); }

  onMessage(_message) {}

  part(_name) { return []; }

  send(_message) {}

  // Only elements that differ are changed, so that focus and scroll positions stay.
  show() {
    const active = /** @type {HTMLElement} */ (document.activeElement), dataset = this.root.contains(active) && this.owns(active) ? active.dataset : null;
    if (this.tree) this.fill(this.root, this.get(this.tree));
    for (const slot of this.all("[data-part], [data-bar]")) this.fill(slot, this.part(slot.dataset.part ?? slot.dataset.bar));
    for (const list of this.all(LISTS)) {
      const rows = this.rows(list);
      if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
    }
    const tabMoved = active.role === "tab" && active.tabIndex < 0; // the focus follows the tab that is shown
    if (!dataset?.do || (this.root.contains(document.activeElement) && !tabMoved)) return;
    const twins = this.all("[data-do]").filter((element) => element.dataset.do === dataset.do);
    const twin = twins.find((element) => (element.role === "tab" ? element.tabIndex === 0 : element.dataset.of === dataset.of));
    twin?.focus({ preventScroll: true });
  }

  fill(parent, now) {
    const before = this.filled.get(parent) ?? [];
    if (now !== before) this.patch(parent, now, before);
    this.filled.set(parent, now);
  }

  patch(parent, now, before) {
    now.forEach((part, i) => {
      const old = before[i], child = parent.childNodes[i];
      if (same(part, old)) return;
      if (child && alike(part, old)) {
        setAttributes(child, part[1], old[1]);
        if (!same(part.slice(2), old.slice(2))) this.patch(child, part.slice(2), old.slice(2));
      } else if (child) child.replaceWith(build(part));
      else parent.append(build(part));
    });
    while (parent.childNodes.length > now.length) parent.lastChild.remove();
  }

  /** @returns {HTMLElement[]} the rows of a list that arrow keys move between */
  rows(list) { return [...(list?.querySelectorAll("[data-do=pick], [data-do=nodes]") ?? [])]; }

  press(item, event, value = null) { this.send(this.message(item, event, value)); }

  message(item, { shiftKey = false, ctrlKey, metaKey }, value) {
    return { do: item.dataset.do, of: item.dataset.of ?? "", value, shift: shiftKey, ctrl: Boolean(ctrlKey || metaKey) };
  }

  // Without HTTPS or permission only the old copy command works.
  async copy(item) {
    const text = item.dataset.of;
    const onCopy = (event) => { event.clipboardData.setData("text/plain", text); event.preventDefault(); event.stopPropagation(); };
    const command = () => {
      document.addEventListener("copy", onCopy, true);
      const done = document.execCommand("copy");
      document.removeEventListener("copy", onCopy, true);
      return done;
    };
    item.named ??= item.textContent;
    const done = (await navigator.clipboard?.writeText(text).then(() => true, command)) ?? command();
    item.textContent = done ? "Copied" : "Copying failed";
    clearTimeout(item.timer);
    item.timer = setTimeout(() => { item.textContent = item.named; }, 2000);
  }

  // Arrow keys move between tabs or rows, with Shift they extend the selection; Enter selects a row, Space adds one.
  key(item, event) {
    const { key, shiftKey, target } = event, rows = this.rows(target.closest(LISTS)), from = rows.indexOf(target);
    if (target.role === "tab" && /^Arrow(Left|Right)$/.test(key)) {
      const tabs = this.all("[role=tab]"), step = key === "ArrowRight" ? 1 : -1;
      this.press(turn(tabs, target, step), event);
    }
    if (from < 0) return;
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[key];
    const next = step && rows[Math.max(0, Math.min(rows.length - 1, from + step))];
    if (next) {
      for (const row of rows) row.tabIndex = row === next ? 0 : -1;
      next.closest("details")?.setAttribute("open", "");
      next.focus();
    }
    if (next && shiftKey) this.press(next, event);
    else if (key === " " || key === "Enter") this.press(item, { shiftKey, ctrlKey: key === " " || event.ctrlKey });
    else if (!next) return;
    event.preventDefault();
    event.stopPropagation();
  }
}
