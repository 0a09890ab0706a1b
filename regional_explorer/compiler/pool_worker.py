"""The helper process of the compile pool: compiles the partitions it receives into Inductor's caches on disk."""

from __future__ import annotations

import pickle
from queue import SimpleQueue

from regional_explorer.compiler.child import answer_channel, serve_parent
from regional_explorer.record.artifact import ArtifactCompile


def main() -> None:
    """In the child: apply the parent's settings, then answer each piece with the record of its compile."""
    pieces: SimpleQueue[bytes] = SimpleQueue()
    serve_parent(pieces.put)
    answer = answer_channel()
    from regional_explorer.compiler.warmup import warm_toolchain
    from regional_explorer.torch_api.config import Settings

    settings = pickle.loads(pieces.get())  # noqa: S301 - from the process that started this one
    settings.apply()
    if Settings.now() != settings:
        return
    # The imports of the first compile happen before a piece is taken: until then another process may take it.
    warm_toolchain("cpu")
    answer(None)
    while True:
        answer(_compile_received(pieces.get()))


def _compile_received(message: bytes) -> ArtifactCompile | None:
    """Return the record of a cold compile; None if it came from the cache, or failed: the parent then reports why."""
    from regional_explorer.torch_api.graphs import fake_mode_with_symbols
    from regional_explorer.torch_api.inductor import compile_piece
    from regional_explorer.torch_api.shipping import load_piece

    piece, config = pickle.loads(message)  # noqa: S301 - from the process that started this one
    mode = fake_mode_with_symbols()
    try:
        compiled = compile_piece(*load_piece(piece, mode), mode, config)
    except Exception:  # noqa: BLE001 - whatever it is, the next piece may compile
        return None
    return compiled.made if compiled.made.cache == "cold" else None
