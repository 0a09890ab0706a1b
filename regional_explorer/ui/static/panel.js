// The panel: parts that the kernel describes, views inside of them, and fields that are typed in.

import { follow, widget } from "./dom.js";
import { Sheet } from "./tree.js";

const TYPING_MS = 200;

class Panel extends Sheet {
  constructor(model, host, signal, page) {
    super(model, host, signal);
    // Messages are numbered: the kernel handles them in this order, and says which was the last.
    Object.assign(this, { page: Math.random().toString(36).slice(2), number: 0, models: {} });
    this.on("input", (at, { target }) => { if (at) this.type(target); });
    follow(model, signal, { change: () => this.show() });
    signal.addEventListener("abort", () => clearTimeout(this.typing));
    for (const place of this.all("[data-view]")) this.mount(place, page);
    this.send({ do: "here", of: "" });
  }

  async mount(place, page) {
    const name = place.dataset.view, ref = this.model.get("views")[name];
    this.models[name] = await page.getModel(ref);
    await (await page.getWidget(ref)).render({ el: place, signal: this.signal });
  }

  content() { return this.model.get("tree").map((part) => this.filled(part)); }

  filled(part) {
    if (typeof part === "string") return part;
    const [tag, attributes, ...inside] = part, name = attributes["data-part"];
    return [tag, attributes, ...(name ? this.model.get(`part_${name}`) ?? [] : inside.map((one) => this.filled(one)))];
  }

  // The elements of a view are its own.
  patch(parent, now, before) { return parent.dataset?.view ? now : super.patch(parent, now, before); }

  show() {
    super.show();
    const answered = this.model.get("answered")[this.page] ?? 0;
    for (const field of this.all("input, select")) {
      if (field.sent <= answered) field.sent = 0;
      if (field.sent || field.dirty) continue; // what is typed is newer than what the kernel knows
      if (field.type === "checkbox") field.checked = field.hasAttribute("checked");
      else {
        const value = field.tagName === "SELECT" ? field.querySelector("[selected]")?.value ?? "" : field.getAttribute("value") ?? "";
        if (field.value !== value) field.value = value;
      }
    }
  }

  // Fields that are live are sent while one types, others when one leaves them or presses Enter.
  type(field) {
    field.dirty = true;
    clearTimeout(this.typing);
    this.live = field.dataset.live === undefined ? null : field;
    if (this.live) this.typing = setTimeout(() => this.flush(), TYPING_MS);
  }

  // What was typed goes before what is pressed next.
  flush() {
    clearTimeout(this.typing);
    const { live } = this;
    this.live = null;
    if (live) this.press(live, {}, live.value);
  }

  press(at, event, value = null) {
    if (value !== null && !at.dirty) return; // it went already
    if (this.live === at) this.live = null;
    this.flush();
    // The graph is another widget: what was selected there goes along, or it might come later.
    const number = this.send({ ...this.message(at, event, value), selection: this.models.graph?.get("selection") });
    if (value !== null) Object.assign(at, { sent: number, dirty: false });
  }

  key(at, event) {
    const { target } = event;
    if (event.key === "Enter" && target.tagName === "INPUT" && target.dirty) this.press(target, event, target.value);
    else super.key(at, event);
  }

  send(message) {
    this.number += 1;
    this.model.send({ ...message, page: this.page, number: this.number });
    return this.number;
  }

  // The kernel asks whether this is still a page.
  heed(message) { if (message.do) this.send({ do: "here", of: "" }); }
}

export default widget(Panel);
