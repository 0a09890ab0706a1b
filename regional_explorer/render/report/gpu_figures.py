"""The figures of kernels on a GPU that is not there: resources and bounds as text, and how two versions differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from regional_explorer.record.code_diff import CodeDiff, KernelPair
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.kernels import ArtifactCode, GpuResources
from regional_explorer.render.style.formats import NONE, duration, size
from regional_explorer.render.style.untrusted import clean


def resource_texts(resources: GpuResources) -> Mapping[str, str]:
    """Return the resources that a kernel takes, by the title of their column."""
    return {
        "registers": NONE if resources.registers is None else str(resources.registers),
        "spilled": NONE if resources.spilled_bytes is None else f"{resources.spilled_bytes} B",
        "shared": size(resources.shared_bytes),
        "occupancy": NONE if resources.occupancy is None else f"{100 * resources.occupancy:.0f} %",
        "launch": f"{resources.launch} (first of {resources.configs})" if resources.configs > 1 else resources.launch,
    }


def bound_text(bound_s: float | None) -> str:
    """Return a bound with ``≥``, which tells it from a time that was measured."""
    return NONE if bound_s is None else f"≥ {duration(bound_s)}"


def resource_changes(diff: CodeDiff) -> Iterator[str]:
    """Yield a line per kernel whose resources differ, and one for the sum of the bounds; none without a target."""
    for pair in diff.kernels:
        if changes := list(_kernel_changes(pair)):
            yield f"{_kernel_names(pair)}: {', '.join(changes)}"
    before, after = (bound_text(_bounds_s(code)) for code in (diff.before, diff.after))
    if before != after:
        yield f"bounds, added up: {before} → {after}; nothing was measured"


def _kernel_names(pair: KernelPair) -> str:
    names = [clean(kernel.name) for kernel in (pair.before, pair.after) if kernel is not None]
    return f"{' → '.join(dict.fromkeys(names))} ({pair.word})"


def _kernel_changes(pair: KernelPair) -> Iterator[str]:
    before, after = (
        None if kernel is None or kernel.gpu is None else resource_texts(kernel.gpu)
        for kernel in (pair.before, pair.after)
    )
    if before is not None and after is not None:
        yield from (f"{title} {text} → {after[title]}" for title, text in before.items() if text != after[title])
    elif (only := after or before) is not None:
        yield from (f"{title} {text}" for title, text in only.items())


def _bounds_s(code: ArtifactCode) -> float | None:
    """Return the sum of the bounds of all kernels; None if there is no target or one of them is unknown."""
    target = GPU_TARGETS.get(code.target)
    if target is None:
        return None
    bounds = [target.bound_s(kernel.bytes_moved, kernel.operations, kernel.dtype) for kernel in code.kernels]
    return None if None in bounds else sum(bound for bound in bounds if bound is not None)
