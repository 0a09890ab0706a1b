// The panel: parts described by the kernel, the views in them, and input fields.

import { debounced, el, follow, widget } from "./dom.js";
import { ElementTree } from "./tree.js";

const TYPING_MS = 200;
const PATIENCE_MS = 8000;
const RESTARTED = "The kernel was restarted: run the cell again.";
const SILENT = "The kernel does not answer: it is busy, or it was restarted; then run the cell again.";

class Panel extends ElementTree {
  constructor(model, host, signal, page) {
    super(model, host, signal);
    // Messages are numbered: the kernel handles them in this order, and reports the last one handled.
    Object.assign(this, { page: Math.random().toString(36).slice(2), number: 0, models: {} });
    const flush = debounced(signal, TYPING_MS, () => this.flush());
    this.on("input", (item, { target }) => { if (item) this.type(target); flush(); });
    this.root.addEventListener("keydown", (event) => this.escape(event), { signal });
    this.gone = el("div", { class: "rx-gone", role: "alert", "data-lm-suppress-shortcuts": "true" });
    this.gone.addEventListener("click", ({ target }) => { if (target.dataset.of) this.copy(target); });
    const timer = setInterval(() => this.watch(), 1000);
    follow(model, signal, { change: () => this.show(), comm_live_update: () => this.watch() });
    signal.addEventListener("abort", () => { clearInterval(timer); this.gone.remove(); });
    for (const slot of this.all("[data-view]")) this.mount(slot, page);
    this.send({ do: "here", of: "" });
  }

  // Without its kernel the panel keeps its contents, and the plan. ipywidgets reports a lost kernel on a view's model.
  watch() {
    const answered = this.model.get("answered")[this.page] ?? 0, now = Date.now();
    if (answered >= this.number) this.asked = now;
    // A job reports progress often: if nothing arrives, ask the kernel.
    if (answered >= this.number && this.all("progress").length && now - this.lastUpdate > PATIENCE_MS) this.send({ do: "here", of: "" });
    const text = this.raw?.comm_live === false ? RESTARTED : now - this.asked > PATIENCE_MS ? SILENT : "";
    if (text === this.trouble) return;
    this.trouble = text;
    this.root.inert = text === RESTARTED;
    const copy = el("button", { type: "button", "data-of": this.model.get("plan"), title: "Paste it after %regional_compile --plan" }, "Copy plan");
    this.gone.replaceChildren(el("span", {}, text), copy);
    if (text) this.root.before(this.gone);
    else this.gone.remove();
  }

  async mount(slot, page) {
    const name = slot.dataset.view, ref = this.model.get("views")[name];
    this.models[name] = await page.getModel(ref);
    this.raw ??= await this.model.widget_manager.get_model(ref.replace("anywidget:", ""));
    await (await page.getWidget(ref)).render({ el: slot, signal: this.signal });
  }

  part(name) { return this.model.get(`part_${name}`) ?? []; }

  // A view manages its own elements.
  patch(parent, now, before) { return parent.dataset?.view ? now : super.patch(parent, now, before); }

  show() {
    super.show();
    this.lastUpdate = Date.now();
    const answered = this.model.get("answered")[this.page] ?? 0;
    for (const field of this.all("input, select")) {
      if (field.sent <= answered) field.sent = 0;
      if (field.sent || field.dirty) continue; // what was typed is newer than the kernel's value
      if (field.type === "checkbox") field.checked = field.hasAttribute("checked");
      else {
        const value = field.tagName === "SELECT" ? field.querySelector("[selected]")?.value ?? "" : field.getAttribute("value") ?? "";
        if (field.value !== value) field.value = value;
      }
    }
  }

  // Live fields are sent while the user types, others on Enter or when the field loses the focus.
  type(field) {
    field.dirty = true;
    this.live = field.dataset.live === undefined ? null : field;
  }

  // What was typed is sent before the next press.
  flush() {
    const { live } = this;
    this.live = null;
    if (live) this.press(live, {}, live.value);
  }

  press(item, event, value = null) {
    if (value !== null && !item.dirty) return; // already sent
    if (this.live === item) this.live = null;
    this.flush();
    // The graph is another widget: its selection is sent along, or it might arrive later.
    const number = this.send({ ...this.message(item, event, value), selection: this.models.graph?.get("selection") });
    if (value !== null) Object.assign(item, { sent: number, dirty: false });
  }

  key(item, event) {
    const { target } = event;
    if (event.key === "Enter" && target.tagName === "INPUT" && target.dirty) this.press(target, event, target.value);
    else super.key(item, event);
  }

  // Wherever the focus is: Escape first closes what is open over the graph, else it clears the selection.
  escape(event) {
    const stage = this.root.querySelector(".rxg-stage");
    if (event.key !== "Escape" || event.target.tagName === "SELECT") return;
    const unhandled = event.target.closest(".rxg") ? !event.defaultPrevented : stage?.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true }));
    if (unhandled && event.isTrusted) this.send({ do: "clear", of: "" });
  }

  send(message) {
    this.number += 1;
    this.model.send({ ...message, page: this.page, number: this.number });
    return this.number;
  }

  // The kernel pings, to see whether the page still exists.
  onMessage(message) { if (message.do) this.send({ do: "here", of: "" }); }
}

export default widget(Panel);
