"""The table of remedies: what each code's remedy promises, and the words of a remedy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.partition import State


@dataclass(frozen=True)
class ActionRemedy:
    """The remedy has actions. Once they are applied ``keeps`` holds; without ``keeps``, the diagnostic is gone.

    ``filled`` has the arguments that the actions need, in their order.
    """

    keeps: Callable[[Exploration, list[Any]], bool] | None = None
    filled: tuple[Any, ...] = ()


@dataclass(frozen=True)
class EditRemedy:
    """The remedy is to change the program: each of the replacements removes the diagnostic."""

    edits: tuple[tuple[tuple[str, str], ...], ...]


@dataclass(frozen=True)
class TextRemedy:
    """The remedy does not remove the diagnostic, for the reason ``why``; its text contains ``action``."""

    why: str
    action: str = ""


def edit_remedy(*alternatives: tuple[str, str] | tuple[tuple[str, str], ...]) -> EditRemedy:
    return EditRemedy(tuple((one,) if isinstance(one[0], str) else one for one in alternatives))


def all_are_compiled(ex: Exploration, _: list[Any]) -> bool:
    return {part.state for part in ex.session.partitions} == {State.COMPILED}


def is_not_in_the_source(_: Exploration, returned: list[Any]) -> bool:
    return "default_partition" not in returned[0]


MEASURED = TextRemedy("a measurement finds it, and a remedy that is a config was measured before it is given")
SHIPPED = TextRemedy("it is about files")
PRINT = ('    print("a graph break")\n', "")
NO_MIN_CUT = (', tracing=rx.Tracing("min_cut")', "")

REMEDIES: dict[str, ActionRemedy | EditRemedy | TextRemedy] = {
    "region-merged": edit_remedy(('rx.region("r"):\n        x = x.cos()', 'rx.region("s"):\n        x = x.cos()')),
    "region-split": ActionRemedy(),
    "region-cycle": ActionRemedy(),
    "region-lost": edit_remedy(
        ('        print("a graph break")\n', ""),
        (
            (
                '        print("a graph break")\n        return x + 1',
                '        x = x + 1\n    print("a graph break")\n    with rx.region("lost"):\n        return x + 1',
            ),
        ),
    ),
    "region-empty": edit_remedy(("x.contiguous()", "x.contiguous().sin()")),
    "region-shrunk": edit_remedy(NO_MIN_CUT, (("    a = x.sin() * y\n", ""), ("a.exp()", "y.exp()"))),
    "backward-unmarked": edit_remedy((("b = a.cos() * a.exp()", "b = a.cos()"), ("return a * b", "return b"))),
    "backward-only": edit_remedy(PRINT),
    "config-conflict": edit_remedy(('"r", max_fusion_size=2', '"s", max_fusion_size=2')),
    "config-nested": ActionRemedy(filled=({"max_fusion_size": 2},)),
    "config-inert": ActionRemedy(),
    "config-global": edit_remedy((", fx_graph_cache=False", "")),
    "config-unknown": ActionRemedy(filled=({"max_fusion_size": 8},)),
    "subgraph-options": ActionRemedy(is_not_in_the_source),
    "annotation-false": edit_remedy(
        ('    with annotate({"compile_with_inductor": False}):\n        return x.sin() + 1', "    return x.sin() + 1"),
        ('"compile_with_inductor": False', '"fallback_to_eager": True'),
    ),
    "graph-break": edit_remedy(
        PRINT, ("ex = ", "torch._dynamo.config.reorderable_logging_functions.add(print)\nex = ")
    ),
    "state-kept": edit_remedy(
        ("ex = rx.explore(Model(), (x,))", "model = Model()\nmodel(x)\nex = rx.explore(model, (x,))")
    ),
    "state-guarded": edit_remedy(
        ("self.calls = 0", 'self.register_buffer("calls", torch.zeros(()))'), ("        self.calls += 1\n", "")
    ),
    "source-changed": TextRemedy("the source is loaded again, by Python"),
    "recompiled": ActionRemedy(all_are_compiled),
    "plan-differs": TextRemedy("the graph is looked at, and the plan saved again"),
    "aot-eager-failed": TextRemedy("nothing has to be done"),
    "region-failed": ActionRemedy(),
    "pass-failed": TextRemedy("the pass is mended"),
    "no-compiler": TextRemedy("a compiler is installed"),
    "artifact-differs": SHIPPED,
    "artifact-damaged": SHIPPED,
    "artifact-unsaved": SHIPPED,
    "full-failed": MEASURED,
    "upstream-failed": TextRemedy("rx.compile runs the plan: tests of the backend"),
    "upstream-merged": TextRemedy("upstream's ids in the source", "ex.to_source()"),
    "upstream-config": TextRemedy("what to run instead"),
    "upstream-ignored": TextRemedy("what to run instead"),
    "plan-failed": MEASURED,
    "variant-failed": MEASURED,
    "trace-differs": TextRemedy("where to look"),
    "call-nondeterministic": edit_remedy(
        ('torch.tensor(int.from_bytes(os.urandom(2), "big") / 65536)', "torch.rand(())"),
    ),
    "variant-wrong": MEASURED,
    "region-numerics": MEASURED,
    "region-slower": MEASURED,
    "plan-slower": MEASURED,
    "region-worth": MEASURED,
    "op-recomputed": MEASURED,
    "fusion-refused": MEASURED,
    "inductor-warning": TextRemedy("what to measure next", "ex.diagnose('r')"),
    "pattern-lost": MEASURED,
    "region-time": MEASURED,
    "kernel-bound": MEASURED,
    "launch-bound": MEASURED,
}
"""The remedy of each code."""


def words_of(found: Diagnostic) -> str:
    """Return a remedy without its actions."""
    return "".join(part for part in found.advice if isinstance(part, str))
