// The panel: the view of a session with input fields, and what is shown when its kernel is gone.

import { copy, debounced, widget } from "./dom.js";
import { SessionView } from "./view.js";

const TYPING_MS = 200;
const PATIENCE_MS = 8000;
const LIVE = "[data-live]";
const REMOTE = "[data-do]:is(button, input, select):not([data-do=copy], [data-do=file], [data-do=pane]:not([data-of=code]), [data-do=column], [data-do=full], .rxg *)"; // needs the kernel
const RESTARTED = "The kernel was restarted: run the cell again.";
const SILENT = "The kernel does not answer: it is busy, or it was restarted; then run the cell again.";

class Panel extends SessionView {
  trouble = ""; // why the kernel does not answer, in words

  constructor(model, root, signal) {
    super(model, root, signal);
    const flush = debounced(signal, TYPING_MS, () => this.flush());
    // Live fields are sent while the user types, others on Enter or when the field loses the focus.
    this.on("input", (item) => { if (item) item.dirty = true; flush(); });
    // What was typed and taken back is no change. A field that the window left is still the active element.
    this.on("focusout", (_, { target }) => { target.dirty &&= target === document.activeElement || target.matches(LIVE); });
    const timer = setInterval(() => this.watch(), 1000);
    model.on("comm_live_update", () => this.watch());
    signal.addEventListener("abort", () => clearInterval(timer));
    // ipywidgets reports a lost kernel on the model that anywidget wraps.
    model.widget_manager.get_model(this.get("id")).then((raw) => { this.raw = raw; });
    this.send({ do: "here", of: "" });
  }

  // Without its kernel the panel keeps its contents, and the plan.
  watch() {
    const now = Date.now(), answered = this.answered >= this.number;
    if (answered) this.asked = now;
    // A job reports progress often: if not, ask the kernel.
    if (answered && this.all("progress").length && now - this.lastUpdate > PATIENCE_MS) this.send({ do: "here", of: "" });
    const text = this.raw?.comm_live === false ? RESTARTED : now - this.asked > PATIENCE_MS ? SILENT : "";
    if (text === this.trouble) return;
    this.trouble = text;
    const plan = { type: "button", "data-do": "copy", "data-of": this.get("plan"), title: "Paste it after %regional_compile --plan" };
    this.model.set("part_gone", text ? [["span", {}, text], ["button", plan, "Copy plan"]] : []);
    this.show();
  }

  show() {
    const dead = this.trouble === RESTARTED;
    this.root.classList.toggle("rx-dead", dead);
    super.show();
    if (dead) for (const item of this.all(REMOTE)) item.disabled = true;
    this.lastUpdate = Date.now();
    for (const field of this.all("[data-do]:is(input, select)")) {
      if (field.sent > this.answered || field.dirty) continue; // what was typed is newer than the kernel's value
      const value = field.querySelector("[selected]")?.value ?? field.defaultValue ?? "";
      if (field.type === "checkbox") field.checked = field.defaultChecked;
      else if (field.value !== value) field.value = value;
    }
  }

  // What was typed is sent before the next press.
  flush() {
    for (const field of this.all(LIVE)) this.press(field, {}, field.value);
  }

  press(item, event, value = null) {
    const { do: does, of } = item.dataset;
    if (does === "file") return this.openFile(item, of);
    if (does === "save") item.closest("details").open = false;
    if (value !== null && !item.dirty) return; // already sent
    item.dirty = false;
    this.flush();
    item.sent = super.press(item, event, value);
  }

  // Open a file of the notebook's folder; where its address is not known, copy its name.
  openFile(item, name) {
    const config = document.querySelector("#jupyter-config-data"), path = this.model.widget_manager.context?.path;
    if (!config || path === undefined) return copy(item);
    const parts = ["files", ...path.split("/").slice(0, -1), name];
    open(JSON.parse(config.textContent).baseUrl + parts.map(encodeURIComponent).join("/"));
  }

  key(item, event) {
    const { target } = event;
    if (event.key !== "Enter" || target.tagName !== "INPUT") return super.key(item, event);
    if (target.dirty) this.press(target, event, target.value);
    this.root.querySelector(`[data-do="${target.dataset.enter}"]`)?.click();
  }
}

export default widget(Panel);
