"""Writes one partition as a stand-alone script."""

from __future__ import annotations

from dataclasses import replace
from textwrap import indent

from regional_explorer.compiler.workpiece import WantedArtifact
from regional_explorer.errors import RegionCompileError, ReproError
from regional_explorer.torch_api.graphs import fake_mode_with_symbols, is_carved
from regional_explorer.torch_api.repros import torch_script


def repro_script(title: str, wanted: WantedArtifact) -> str:
    """Return torch's script for the piece of an artifact, after its passes, below a title.

    Raises:
        ReproError: the script would not do what Inductor does here; the message says why.
    """
    if (backend := wanted.treatment.backend) is not None:
        raise ReproError(f"the backend {backend.name!r} compiles it, not Inductor.")
    mode, piece = fake_mode_with_symbols(), wanted.workpiece.piece
    gm, fakes, *_ = wanted._replace(workpiece=replace(wanted.workpiece, weights=None)).treated(mode)
    for node in filter(is_carved, gm.graph.nodes):
        raise ReproError(f"it would compile {node.target}, which is carved out.")
    title += "\nWritten by regional_explorer, with torch's generator of such scripts. The inputs are made up."
    if piece.unwritten:
        title += "\nIn the plan, weights are constants, which Inductor folds and packs. Here they are inputs."
    try:
        return f"{indent(title, '# ')}\n{torch_script(gm, fakes, mode, wanted.config, piece.prepared)}"
    except RegionCompileError as error:
        raise ReproError(f"the compile fails before Inductor has the graph. {error}") from error
