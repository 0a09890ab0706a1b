"""A view in Chromium with nothing else in the page."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page

from regional_explorer.ui.widget import SessionView

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

NewPage = Callable[[], Page]

# Models of the same shape as a notebook's, so that nothing but the widgets is measured; the first widget is rendered.
# A click or an answer is timed until its change is drawn.
PAGE = """<!doctype html><meta charset="utf-8"><style>body { margin: 8px } %(style)s</style><div id="host"></div>
<script type="application/json" id="given">%(given)s</script>
<script type="module">
class Model {
  heard = {};
  sent = [];
  widget_manager = { get_model: async () => ({ comm_live: true }) };
  constructor(state) { this.state = state; }
  get(name) { return this.state[name]; }
  set(name, value) { if (this.state[name] !== value) this.answer({ [name]: value }); }
  save_changes() {}
  send(message) { this.sent.push(message); }
  off() {}
  on(name, heard) { (this.heard[name] ??= []).push(heard); }
  tell(name, message) { for (const heard of this.heard[name] ?? []) heard(message); }
  answer(news) {
    Object.assign(this.state, news);
    for (const name of Object.keys(news)) this.tell(`change:${name}`);
    this.tell("change");
  }
}
const { state, code } = JSON.parse(document.getElementById("given").textContent), model = new Model(state);
const { render } = (await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })))).default;
window.state = model.state;
window.sent = model.sent;
window.tell = (message) => model.tell("msg:custom", message);
const find_canvas = () => document.querySelector(".rxg-canvas");
window.drawn = async (begin) => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  find_canvas()?.getContext("2d").getImageData(0, 0, 1, 1);
  return performance.now() - begin;
};
const begin = performance.now();
window.show = () => {
  const closing = new AbortController();
  render({ model, el: document.getElementById("host"), signal: closing.signal });
  return () => closing.abort();
};
window.close_view = show();
window.took = await drawn(begin);
const canvas = find_canvas();
if (canvas) canvas.setPointerCapture = () => {};
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
// On the middle of a box.
window.click = async (box) => {
  const { picture, camera } = document.querySelector(".rxg").rxView, rect = picture.rect(box);
  const [x, y] = camera.toWindow(rect.x + rect.w / 2, rect.y + rect.h / 2);
  const begin = performance.now(), { left, top } = canvas.getBoundingClientRect();
  const where = { clientX: left + x, clientY: top + y, pointerId: 1, detail: 1, bubbles: true };
  for (const name of ["pointerdown", "pointerup", "click"]) canvas.dispatchEvent(new PointerEvent(name, where));
  return drawn(begin);
};
// Takes what the kernel changed.
window.answer = async (news) => {
  const begin = performance.now();
  model.answer(news);
  return drawn(begin);
};
window.ready = true;
</script>"""


@contextmanager
def in_page(widget: SessionView, new_page: NewPage) -> Iterator[Page]:
    """Give a page that shows ``widget`` alone."""
    state = {name: value for name, value in widget.get_state().items() if name[0] != "_"}
    content = json.dumps({"code": widget._esm, "state": state}).replace("<", "\\u003c")
    page = new_page()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(PAGE % {"style": widget._css, "given": content}, encoding="utf-8")
        page.goto(path.as_uri())
        page.wait_for_function("window.ready", timeout=60_000)
    yield page
    page.close()
