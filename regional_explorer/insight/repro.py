"""Writes one partition as a stand-alone script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import indent
from typing import Any

from regional_explorer.compiler.fingerprint import Layout, canonical
from regional_explorer.errors import RegionCompileError, ReproError
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.graphs import fake_mode_with_symbols, is_carved
from regional_explorer.torch_api.repros import torch_script


def repro_script(title: str, piece: Piece, inputs: Sequence[Layout], config: Mapping[str, Any]) -> str:
    """Return torch's script for one partition whose inputs have these layouts, below a title.

    Raises:
        ReproError: the script would not do what Inductor does here; the message says why.
    """
    mode = fake_mode_with_symbols()
    gm, fakes, _ = canonical(piece, inputs, mode)
    for node in filter(is_carved, gm.graph.nodes):
        raise ReproError(f"it would compile {node.target}, which is carved out.")
    title += "\nWritten by regional_explorer, with torch's generator of such scripts. The inputs are made up."
    if piece.unwritten:
        title += "\nIn the plan, weights are constants, which Inductor folds and packs. Here they are inputs."
    try:
        return f"{indent(title, '# ')}\n{torch_script(gm, fakes, mode, config, piece.prepared)}"
    except RegionCompileError as error:
        raise ReproError(f"the compile fails before Inductor has the graph. {error}") from error
