// What views build on. Text only ever becomes a text node.

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(Boolean));
  return element;
}

// Tell whether the page is dark by what really lies behind `element`, whoever set it.
export function isDark(element) {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  probe.fillStyle = getComputedStyle(element).backgroundColor;
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  return 0.3 * red + 0.6 * green + 0.1 * blue < 128;
}

// Listen to changes of traits, or to messages, until `signal` ends it.
export function follow(model, signal, handlers) {
  for (const [trait, handler] of Object.entries(handlers)) {
    const name = trait.startsWith("msg:") ? trait : `change:${trait}`;
    model.on(name, handler);
    signal.addEventListener("abort", () => model.off(name, handler));
  }
}

// What anywidget asks of a module.
export const widget = (View) => ({
  render({ model, el: host }) {
    const ending = new AbortController();
    new View(model, host, ending.signal);
    return () => ending.abort();
  },
});
