// A table that the kernel describes: elements as nested lists. What is pressed or typed goes back to it.

import { el, follow, walk, widget } from "./dom.js";

const build = (part) => (typeof part === "string" ? part : el(part[0], part[1], ...part.slice(2).map(build)));

class View {
  constructor(model, host, signal) {
    Object.assign(this, { model, parts: [] });
    // Keys that are pressed here are not JupyterLab's.
    this.root = el("div", { class: "rxt", "data-lm-suppress-shortcuts": "true" });
    host.append(this.root);
    const on = (name, handler) => this.root.addEventListener(name, (event) => handler(event, event.target.closest("[data-do]")), { signal });
    on("click", (event, at) => {
      if (at?.dataset.do === "copy") navigator.clipboard.writeText(at.dataset.of).then(() => { at.textContent = "Copied"; });
      else if (at && !/^(INPUT|SELECT)$/.test(event.target.tagName)) this.tell(at, event);
    });
    on("change", (event, at) => this.tell(at, event, event.target.type === "checkbox" ? event.target.checked : event.target.value));
    on("keydown", (event, at) => this.key(event, at));
    follow(model, signal, {
      tree: () => this.show(),
      "msg:custom": () => { this.parts = []; this.show(); }, // what was typed may not be what stands
    });
    signal.addEventListener("abort", () => this.root.remove());
    this.show();
  }

  // Only what differs is built anew, so that the rest keeps its focus and its place.
  show() {
    const { dataset } = this.root.contains(document.activeElement) ? document.activeElement : {};
    this.parts = this.patch(this.root, this.model.get("tree"), this.parts);
    const rows = this.rows();
    if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
    if (!dataset?.do || this.root.contains(document.activeElement)) return;
    const twin = [...this.root.querySelectorAll("[data-do]")].find((one) => one.dataset.do === dataset.do && one.dataset.of === dataset.of);
    twin?.focus({ preventScroll: true });
  }

  patch(parent, now, before) {
    now.forEach((part, at) => {
      const was = before[at], child = parent.childNodes[at];
      if (JSON.stringify(part) === JSON.stringify(was)) return;
      const alike = Array.isArray(part) && was?.[0] === part[0] && JSON.stringify(was[1]) === JSON.stringify(part[1]);
      if (alike) this.patch(child, part.slice(2), was.slice(2));
      else if (child) child.replaceWith(build(part));
      else parent.append(build(part));
    });
    while (parent.childNodes.length > now.length) parent.lastChild.remove();
    return now;
  }

  rows() { return [...this.root.querySelectorAll("tr[data-do]")]; }

  tell(at, { shiftKey, ctrlKey, metaKey }, value = null) {
    this.model.send({ do: at.dataset.do, of: at.dataset.of ?? "", value, shift: shiftKey ?? false, ctrl: (ctrlKey || metaKey) ?? false });
  }

  key(event, at) {
    const rows = this.rows(), row = rows.indexOf(event.target);
    if (row < 0) return;
    const next = walk(rows, row, event);
    if (next) {
      if (event.shiftKey) this.tell(next, event);
    } else if (event.key === " " || event.key === "Enter") {
      this.tell(at, { ...event, shiftKey: event.shiftKey, ctrlKey: event.key === " " });
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

export default widget(View);
