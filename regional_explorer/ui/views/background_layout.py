"""Computes the layout of the latest picture on a background thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from regional_explorer.render.picture.placement import Placement, arranged
from regional_explorer.render.picture.scene import Scene

LAYOUT_TIME_LIMIT_S = 6.0
"""How long Graphviz may take to improve a layout that is already shown."""


class BackgroundLayout:
    """Computes one layout at a time; a newer picture replaces one that waits, and stops the layout of an older one.

    ``on_layout`` is called with the number and the scene of a picture and its placement, or None if none was found in
    time; ``on_error`` with the number and the error if the layout or ``on_layout`` fails. ``lock`` is held during these
    calls; callers of ``submit`` and ``cancel`` must hold it.
    """

    def __init__(
        self,
        lock: threading.RLock,
        on_layout: Callable[[int, Scene, Placement | None], None],
        on_error: Callable[[int, Exception], None],
        *,
        time_limit_s: float = LAYOUT_TIME_LIMIT_S,
        arrange: Callable[..., Placement | None] = arranged,
    ) -> None:
        self.time_limit_s = time_limit_s
        self._lock = lock
        self._on_layout = on_layout
        self._on_error = on_error
        self._arrange = arrange
        self._thread = threading.Thread()
        self._is_running = False
        self._waiting_task: tuple[int, Scene] | None = None
        self._stop = threading.Event()

    def submit(self, number: int, scene: Scene) -> None:
        """Compute the layout of ``scene``, the picture called ``number``, in place of those before."""
        self._stop.set()
        self._waiting_task = (number, scene)
        if not self._is_running:
            self._is_running = True
            self._thread = threading.Thread(target=self._compute_layouts, name="arranging a graph", daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """Stop the layout that is being computed, and discard one that waits."""
        self._stop.set()
        self._waiting_task = None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no layout is being computed; return whether that is so."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _compute_layouts(self) -> None:
        """Compute the layout of the latest picture until there is no newer one."""
        while True:
            with self._lock:
                task, self._waiting_task = self._waiting_task, None
                self._stop = stop = threading.Event()
                self._is_running = task is not None
            if task is None:
                return
            number, scene = task
            try:
                placement = self._arrange(scene, time_limit_s=self.time_limit_s, stop=stop)
                with self._lock:
                    self._on_layout(number, scene, placement)
            except Exception as error:  # noqa: BLE001 - newer pictures are still to be arranged, on this thread
                with self._lock:
                    self._on_error(number, error)
