// The few helpers that both views build their elements with. Text only ever becomes a text node.

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(Boolean));
  return element;
}

export function button(text, title, press, attributes = {}) {
  const element = el("button", { type: "button", text, title, ...attributes });
  element.addEventListener("click", press);
  return element;
}

// Tell whether the page is dark by the background that really lies behind `element`, whoever set it.
export function isDark(element) {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  probe.fillStyle = getComputedStyle(element).backgroundColor;
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  return 0.3 * red + 0.6 * green + 0.1 * blue < 128;
}

// Arrays arrive as views on one big buffer, at offsets that typed arrays may not start at.
export function numbers(Type, view) {
  if (!view) return new Type(0);
  const bytes = new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength).slice();
  return new Type(bytes.buffer);
}

// Listen to changes of traits, or to messages, until `signal` ends it.
export function follow(model, signal, handlers) {
  for (const [trait, handler] of Object.entries(handlers)) {
    const name = trait.startsWith("msg:") ? trait : `change:${trait}`;
    model.on(name, handler);
    signal.addEventListener("abort", () => model.off(name, handler));
  }
}

// Change a trait. The change waits in the page while the kernel is busy with the one before, a message does not:
// whatever is pressed next, the kernel knows the selection by then.
export function tell(model, name, value) {
  model.set(name, value);
  model.save_changes();
  if (name === "selection") model.send({ do: "select", nodes: value });
}

export const sameList = (one, other) => one.length === other.length && one.every((item, at) => item === other[at]);

// Move the focus among rows, of which one at a time can be tabbed to; gives the row that has it now, if a key moved it.
export function walk(rows, from, { key }) {
  const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[key];
  const next = rows[Math.max(0, Math.min(rows.length - 1, from + step))];
  if (!next) return null;
  for (const row of rows) row.tabIndex = row === next ? 0 : -1;
  next.closest("details")?.setAttribute("open", "");
  next.focus();
  return next;
}

// The module that anywidget asks for: it shows a view until the signal ends.
export const widget = (View) => ({
  render({ model, el: host }) {
    const ending = new AbortController();
    new View(model, host, ending.signal);
    return () => ending.abort();
  },
});
