"""A page of Chromium that shows a graph view as a notebook does, with nothing else in it."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from regional_explorer.ui.view import GraphView

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
TRAITS = (
    "kind",
    "label",
    "tree",
    "lit",
    "payload",
    "selection",
    "hover",
    "search",
    "heat",
    "height",
)

NewPage = Callable[[], Page]

READ_STATE = """const read = (value) => {
  if (typeof value?.binary === "string") {
    return new DataView(Uint8Array.from(atob(value.binary), (one) => one.charCodeAt(0)).buffer);
  }
  if (Array.isArray(value)) return value.map(read);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, read(one)]));
};"""
"""JavaScript: makes of a state as JSON what a notebook's page gives a view, bytes as `DataView`."""

# A page with a model of the same shape as a notebook's, so that nothing but the view itself is measured.
PAGE = """<!doctype html><meta charset="utf-8"><style>body { margin: 8px } %(style)s</style><div id="host"></div>
<script type="text/plain" id="code">%(script)s</script><script type="application/json" id="state">%(state)s</script>
<script type="module">
%(read)s
const heard_by = {};
const state = window.state = read(JSON.parse(document.getElementById("state").textContent));
const sent = window.sent = [];
const model = { get: (name) => state[name], set: (name, value) => { state[name] = value; }, save_changes() {},
  off() {}, send: (message) => sent.push(message), on: (name, heard) => { heard_by[name] = heard; } };
window.tell = (message) => heard_by["msg:custom"](message);
const code = new Blob([document.getElementById("code").textContent], { type: "text/javascript" });
const view = await import(URL.createObjectURL(code));
const begin = performance.now();
window.close_view = view.default.render({ model, el: document.getElementById("host") });
const canvas = document.querySelector(".rxg-canvas");
const settled = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
await settled();
canvas.getContext("2d").getImageData(0, 0, 1, 1); // what was drawn is waited for
window.took = performance.now() - begin;
canvas.setPointerCapture = () => {};
window.pan = async (frames) => {
  const at = (name, x, y) => canvas.dispatchEvent(new PointerEvent(name, {
    clientX: 400 + x, clientY: 300 + y, movementX: 5, movementY: 3, buttons: 1, pointerId: 1, bubbles: true }));
  at("pointerdown", 0, 0);
  const start = performance.now();
  for (let frame = 0; frame < frames; frame += 1) {
    at("pointermove", 5 * Math.abs(frame %% 40 - 20), 3 * Math.abs(frame %% 40 - 20));
    await new Promise(requestAnimationFrame);
    canvas.getContext("2d").getImageData(0, 0, 1, 1);
  }
  at("pointerup", 0, 0);
  return 1000 * frames / (performance.now() - start);
};
// What a click changes is waited for until it is drawn.
const drawn = async (begin) => {
  await settled();
  canvas.getContext("2d").getImageData(0, 0, 1, 1);
  return performance.now() - begin;
};
// On the middle of a box.
window.click = async (box) => {
  const { picture, camera } = document.querySelector(".rxg").rxView, rect = picture.rect(box);
  const [x, y] = camera.toWindow(rect.x + rect.w / 2, rect.y + rect.h / 2);
  const begin = performance.now(), { left, top } = canvas.getBoundingClientRect();
  for (const name of ["pointerdown", "pointerup"]) {
    canvas.dispatchEvent(new PointerEvent(name, { clientX: left + x, clientY: top + y, pointerId: 1, bubbles: true }));
  }
  return drawn(begin);
};
window.answer = async (changes) => {
  const news = read(changes), begin = performance.now();
  Object.assign(state, news);
  for (const name of Object.keys(news)) heard_by[`change:${name}`]?.();
  return drawn(begin);
};
window.ready = true;
</script>"""


def traits(view: GraphView, *names: str) -> dict[str, Any]:
    """Return what a page is sent of ``view``, or only what is named."""
    return {name: packed(getattr(view, name)) for name in names or TRAITS}


@contextmanager
def in_page(view: GraphView, new_page: NewPage) -> Iterator[Page]:
    """Give a page that shows ``view``."""
    state = json.dumps(traits(view)).replace("<", "\\u003c")
    page = new_page()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(
            PAGE % {"read": READ_STATE, "style": view._css, "script": view._esm, "state": state}, encoding="utf-8"
        )
        page.goto(path.as_uri())
        page.wait_for_function("window.ready", timeout=60_000)
    yield page
    page.close()


def packed(value: Any) -> Any:
    """Return ``value`` as JSON holds it, with bytes as text."""
    if isinstance(value, bytes):
        return {"binary": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: packed(item) for key, item in value.items()}
    return [packed(item) for item in value] if isinstance(value, (list, tuple)) else value


@contextmanager
def pages() -> Iterator[NewPage | None]:
    """Give a function that opens a page in Chromium, or None where there is none."""
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if executable is None:
        yield None
        return
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield lambda: chromium.new_page(viewport={"width": 1200, "height": 760})
        chromium.close()
