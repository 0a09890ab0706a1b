// Helpers of all views. Text only ever becomes a text node; which elements there are, the kernel says.

export function build(part) {
  if (typeof part === "string") return part;
  const [tag, attributes, ...children] = part;
  const element = /^(svg|path|circle)$/.test(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children.map(build));
  return element;
}

function setAttributes(element, now, before = {}) {
  for (const name of Object.keys({ ...before, ...now })) {
    const value = now[name] ?? false;
    if (value === before[name]) continue;
    if (value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

const IDENTITY = ["data-do", "data-of", "data-part", "type"];
const isTwin = (a, b) => Array.isArray(a) && a[0] === b?.[0] && IDENTITY.every((key) => a[1][key] === b[1][key]);
const filled = new WeakMap(); // the children that an element was given last

// Fill an element with the children that `now` describes. Only those that differ change: focus and scroll stay.
export function fill(parent, now) {
  patch(parent, now, filled.get(parent) ?? []);
  filled.set(parent, now);
}

// What others filled stays: a child without described children keeps those that it has.
function patch(parent, now, before) {
  if (now === before) return;
  now.forEach((part, i) => {
    const old = before[i], child = parent.childNodes[i];
    if (part === old) return;
    if (child && isTwin(part, old)) {
      setAttributes(child, part[1], old[1]);
      patch(child, part.slice(2), old.slice(2));
    } else if (child) child.replaceWith(build(part));
    else parent.append(build(part));
  });
  for (let i = now.length; i < before.length; i += 1) parent.lastChild.remove();
}

// Copy what a button has in `data-of`, and say so. Without HTTPS or permission only the old command works.
export async function copy(item) {
  const text = item.dataset.of;
  const command = () => {
    const onCopy = (event) => { event.clipboardData.setData("text/plain", text); event.preventDefault(); event.stopPropagation(); };
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

export const alike = (some, others) => some.length === others.length && some.every((one, i) => one === others[i]);

// The entry `step` after `current`, or the first or the last; these are neighbours.
export const turn = (all, current, step) => all.at((Math.max(all.indexOf(current), step < 0 ? 0 : -1) + step) % all.length);

export function isDark(element) {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  probe.fillStyle = getComputedStyle(element).backgroundColor;
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  return 0.3 * red + 0.6 * green + 0.1 * blue < 128;
}

// Call `changed` when theme, style sheets or the screen may have changed: no event tells of colours.
export function followLook(signal, changed) {
  const observer = new MutationObserver(changed);
  for (const element of [document.documentElement, document.body]) observer.observe(element, { attributes: true });
  signal.addEventListener("abort", () => observer.disconnect());
  document.addEventListener("load", changed, { signal, capture: true });
  addEventListener("resize", changed, { signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed, { signal });
}

// Return `work` put off until a moment after the last call; once `signal` aborts it is not done.
export function debounced(signal, ms, work) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => { if (!signal.aborted) work(); }, ms);
  };
}

// What anywidget expects.
export const widget = (View) => ({
  render({ model, el: host, signal }) {
    const root = build(["div", { class: model.get("kind"), role: "group", "aria-label": model.get("label") }]);
    host.append(root);
    // No shortcut of JupyterLab applies to an element with this attribute; on one around it, it would come too late.
    host.addEventListener("focusin", ({ target }) => { target.dataset.lmSuppressShortcuts = "true"; });
    new View(model, root, signal);
  },
});
