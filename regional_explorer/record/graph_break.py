"""Graph breaks: where Dynamo ended a graph, what runs eagerly because of it, and what helps."""

from __future__ import annotations

from collections.abc import Sequence

from regional_explorer.errors import listing
from regional_explorer.record.graph import MarkedBlock, ModuleCall, SourceLine
from regional_explorer.record.record import Integer, Record

MOST_MODULES = 8


def named_modules(calls: Sequence[ModuleCall]) -> str:
    """Return ``module '1' (ReLU)``, or ``modules '1' (ReLU), '2' (Linear)``; a module without a path has its class."""
    texts = dict.fromkeys(f"{call.path!r} ({call.class_name})" if call.path else call.class_name for call in calls)
    return f"module{'s' if len(texts) > 1 else ''} {listing(texts, MOST_MODULES)}" if texts else ""


class UntracedOps(Record, frozen=True):
    """Ops of one operator, module and line that run in no graph because of a graph break."""

    op: str
    """The operator."""
    count: Integer
    """How many there are."""
    module: ModuleCall | None = None
    """The innermost module call."""
    line: SourceLine | None = None
    """The innermost line of the user's program."""
    function: str = ""
    """The user's function in which nothing was traced; without it, the module itself calls the ops."""
    is_cause_known: bool = True
    """False if it is unknown which of the call's breaks is the cause."""

    @property
    def place(self) -> str:
        """The module or function that runs eagerly: ``module '1' (ReLU)``, or ``function mix``."""
        if self.function and not (self.module and self.module.path):
            return f"function {(self.line and self.line.scope) or self.function}"
        return named_modules([self.module]) if self.module else self.op


class GraphBreak(Record, frozen=True):
    """A place where Dynamo ended one graph; the code there runs in plain Python."""

    reason: str
    """Dynamo's reason."""
    stack: tuple[SourceLine, ...] = ()
    """The user's lines, the innermost last."""
    blocks: tuple[MarkedBlock, ...] = ()
    """The marked blocks that it happened in, outermost first: they run entirely in plain Python."""
    hint: str = ""
    """The workaround that torch suggests, if any."""
    modules: tuple[str, ...] = ()
    """The paths of the modules that it happened in."""
    innermost: SourceLine | None = None
    """The innermost line, also if it is in a library."""
    broken: tuple[ModuleCall, ...] = ()
    """The innermost modules. For a break in a hook: all modules with the hook, or none for a hook of all modules."""
    hook: str = ""
    """The kind of hook that it happened in, such as ``forward hook``."""
    untraced: tuple[UntracedOps, ...] = ()
    """The ops that run in no graph because of it."""

    @property
    def source(self) -> SourceLine | None:
        """The innermost line of the user's program, or None."""
        return self.stack[-1] if self.stack else None

    @property
    def in_library(self) -> bool:
        """Whether the innermost line belongs to torch or another library, so that the user cannot move it."""
        return self.innermost is not None and (self.innermost.in_library or self.innermost != self.source)

    @property
    def own_line(self) -> SourceLine | None:
        """The innermost line that the user can edit, or else ``source``."""
        return next((line for line in reversed(self.stack) if not line.in_library), self.source)

    @property
    def inside(self) -> str:
        """The hook and the modules: ``in a forward hook of module '1' (ReLU)``; empty outside of any."""
        preposition = f"in a {self.hook}{' of' if self.broken else ''}" if self.hook else "in" if self.broken else ""
        return f"{preposition} {named_modules(self.broken)}".strip()

    @property
    def place(self) -> str:
        """The modules and the innermost line: ``in module '1' (BatchNorm1d), at batchnorm.py:192 in forward``."""
        line = self.innermost or self.source
        return ", ".join(filter(None, (self.inside, f"at {line}" if line else ""))) or "in the call itself"

    @property
    def place_and_caller(self) -> str:
        """The place, and the user's line that leads to it if it is another line."""
        own = self.own_line
        return f"{self.place}, called at {own}" if self.in_library and own not in (None, self.innermost) else self.place

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is in a hook or a library, where the user's line alone does not explain it."""
        return bool(self.hook) or self.in_library

    @property
    def advice(self) -> str:
        """The remedy if a region should reach across it, in a sentence."""
        if self.hook:
            return "Remove the hook while you explore: handle.remove(), on what registering it returned."
        if self.in_library:
            used = "module" if self.broken else "function"
            return (
                self._known or f"You cannot move this line: use another {used} there, or other options of the {used}."
            )
        if "branch" in self.reason:
            return "Choose without a branch, as torch.where does, if a region should reach across it."
        return "Move this line out of the call if a region should reach across it."

    @property
    def torch_hint(self) -> str:
        """Torch's own hint as a sentence, unless it is known not to help."""
        return f"Torch's own hint: {self.hint}." if self.hint and not self._known else ""

    @property
    def advice_in_block(self) -> str:
        """The remedy if it happened in a marked block."""
        if self.is_elsewhere:
            return f"End the block before this call, and begin another after it. {self.advice}"
        return "Move this line out of the block, or end the block before it and begin another after it."

    @property
    def _known(self) -> str:
        file = self.innermost.file if self.innermost else ""
        return next((text for (end, words), text in _KNOWN.items() if file.endswith(end) and words in self.reason), "")


_KNOWN = {
    ("/torch/nn/modules/batchnorm.py", "item()"): (
        "Give the batch norm a momentum: with momentum=None it reads num_batches_tracked as a number. "
        "torch._dynamo.config.capture_scalar_outputs does not help: it divides by that number."
    )
}
"""Remedies for lines of libraries where torch's hint does not help, by the end of the file and words of the reason."""
