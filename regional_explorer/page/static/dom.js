// Helpers of all views. Text only ever becomes a text node, and only allowed elements are made.

const TAGS = /^(b|button|canvas|circle|code|datalist|dd|details|div|dl|dt|h[134]|i|input|label|li|option|p|path|progress|select|small|span|style|summary|svg|table|tbody|td|th|thead|tr|ul)$/;
const REFUSED = /^(on|href$|src|action|formaction|xlink)/i;
const SVG_TAGS = /^(svg|path|circle)$/;

export function el(tag, attributes = {}, ...children) {
  if (!TAGS.test(tag)) throw new Error(`no element <${tag}> in a view`);
  const element = SVG_TAGS.test(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children.filter(Boolean));
  return element;
}

// Replace the attributes `before` of an element by those of `now`.
export function setAttributes(element, now, before = {}) {
  for (const name of Object.keys(before)) if (!(name in now)) setAttribute(element, name, null);
  for (const [name, value] of Object.entries(now)) if (value !== before[name]) setAttribute(element, name, value);
}

function setAttribute(element, name, value) {
  if (REFUSED.test(name)) throw new Error(`no attribute ${name} in a view`);
  if (value === false || value == null) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : value);
}

// Return whether two lists have the same entries.
export const alike = (some, others) => some.length === others.length && some.every((one, i) => one === others[i]);

// The entry after `current`, or with -1 as the step the one before it; the last and the first are neighbours.
export const turn = (all, current, step) => all.at((all.indexOf(current) + step) % all.length);

// Return whether the actual background of `element` is dark, whoever set it.
export function isDark(element) {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  probe.fillStyle = getComputedStyle(element).backgroundColor;
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  return 0.3 * red + 0.6 * green + 0.1 * blue < 128;
}

// Call `changed` when the theme, a style sheet or the pixels of the screen may have changed: no event tells of colours.
export function followLook(signal, changed) {
  const observer = new MutationObserver(changed);
  for (const element of [document.documentElement, document.body]) observer.observe(element, { attributes: true });
  document.addEventListener("load", changed, { signal, capture: true });
  signal.addEventListener("abort", () => observer.disconnect());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed, { signal });
  const followRatio = () => {
    changed();
    matchMedia(`(resolution: ${devicePixelRatio}dppx)`).addEventListener("change", followRatio, { signal, once: true });
  };
  followRatio();
}

// Return `work` put off: it is done a moment after the last call, and not any more once `signal` aborts.
export function debounced(signal, ms, work) {
  let timer;
  signal.addEventListener("abort", () => clearTimeout(timer));
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  };
}

// Listen to changes of traits, or to messages, until `signal` aborts.
export function follow(model, signal, handlers) {
  for (const [trait, handler] of Object.entries(handlers)) {
    const name = /^msg:|^comm|^change$/.test(trait) ? trait : `change:${trait}`;
    model.on(name, handler);
    signal.addEventListener("abort", () => model.off(name, handler));
  }
}

// The interface of a module that anywidget expects; the elements of a view are its trait `tree`.
export const widget = (View) => ({
  render({ model, el: host }) {
    const controller = new AbortController(), root = el("div", { class: model.get("kind"), role: "group", "aria-label": model.get("label") });
    host.append(root);
    new View(model, root, controller.signal, "tree");
    return () => controller.abort();
  },
});
