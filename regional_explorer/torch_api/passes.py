"""Runs passes of the user's on the graph of a piece, and finds out what each did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import fake_tensor
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from regional_explorer.record.artifact import PassRun
from regional_explorer.torch_api.graphs import bodies, is_operator
from regional_explorer.torch_api.hidden_state import storage_id
from regional_explorer.torch_api.inductor import compile_context
from regional_explorer.torch_api.prepared import without_constants

if TYPE_CHECKING:
    from torch._subclasses import FakeTensorMode

Pass = Callable[[fx.GraphModule], fx.GraphModule | None]

MOST_NEW_NODES = 10_000
"""A pass that adds more nodes is stopped: one that visits the nodes it adds would never end."""

_KEPT_METADATA = ("custom", "original_aten")
"""The metadata of ops in the canonical form of a piece; all else follows from the graph."""


class _PassError(Exception):
    """A pass left a graph that cannot be compiled in place of the one it got."""


class _Propagation(FakeTensorProp):
    """Computes the fakes of all nodes; ``node`` is the one that it is at."""

    node: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        self.node = n
        return super().run_node(n)


def run_passes(
    gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, passes: Sequence[tuple[str, Pass]]
) -> tuple[fx.GraphModule, tuple[PassRun, ...]]:
    """Return ``gm`` after ``passes``, each with its name, and what each did; ``gm`` itself stays as it is.

    A pass finds the fake value of each node in ``meta["val"]``, and need not set that of new nodes. A pass that raises,
    or leaves a graph that cannot replace the one it got, is left out.
    """
    runs = []
    fakes = without_constants(gm, inputs)
    with compile_context({}, mode, lambda _code: None), enable_python_dispatcher():
        current, problem = _copied(gm), ""
        try:
            _add_fakes(current, fakes, mode)
        except _PassError as error:
            problem = f"no pass can run, because the graph as it was has no fake values: {error}"
        for name, function in passes:
            before, left = current, problem
            if not problem:
                try:
                    current = _result_of(function, _copied(before), fakes, mode)
                except _PassError as error:
                    left = str(error)
            runs.append(
                PassRun(
                    name, _text_of(before), _text_of(current), Counter(_ops_of(before)), Counter(_ops_of(current)), left
                )
            )
    current = _copied(current)  # without the hook that counts new nodes, which torch could not pickle
    for node in current.graph.nodes:
        if node.op != "placeholder":
            node.meta = {key: node.meta[key] for key in _KEPT_METADATA if key in node.meta}
    return current, tuple(runs)


def _copied(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a graph and its bodies; constants are shared."""
    graph = fx.Graph()
    nodes: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        nodes[node] = graph.node_copy(node, nodes.__getitem__)
    copy = fx.GraphModule(gm, graph, class_name="Piece")
    for node, body in bodies(gm):
        setattr(copy, str(node.target), _copied(body))
    return copy


def _result_of(function: Pass, gm: fx.GraphModule, fakes: Sequence[Any], mode: FakeTensorMode) -> fx.GraphModule:
    """Return ``gm`` after a pass, with the fakes of its nodes.

    Raises:
        _PassError: it raised, or its result cannot replace ``gm``.
    """
    inputs, results = _interface(gm)
    shared = _shared(gm)
    new_nodes: list[fx.Node] = []

    def count_new_node(node: fx.Node) -> None:
        new_nodes.append(node)
        if len(new_nodes) > MOST_NEW_NODES:
            raise _PassError(f"it added more than {MOST_NEW_NODES:,} nodes, perhaps because it visits those it adds")

    gm._register_create_node_hook(count_new_node)
    try:
        result: Any = function(gm)
    except _PassError:
        raise
    except Exception as error:
        raise _PassError(f"it raised {_line_of(error)}") from error
    result = gm if result is None else result
    if not isinstance(result, fx.GraphModule):
        raise _PassError(f"it returned {type(result).__name__} instead of a GraphModule")
    try:
        result.graph.lint()
        result.graph.eliminate_dead_code()
        result.recompile()
        inputs_after, results_after = _interface(result)
    except Exception as error:
        raise _PassError(f"it left a graph that is malformed: {_line_of(error)}") from error
    if inputs_after != inputs:
        raise _PassError(f"it changed the inputs from {', '.join(inputs)} to {', '.join(inputs_after)}")
    if len(results_after) != len(results):
        raise _PassError(f"it changed the number of results from {len(results)} to {len(results_after)}")
    _add_fakes(result, fakes, mode)
    for number, (before, after) in enumerate(zip(results, _interface(result)[1], strict=True)):
        if _shape_of(before) != _shape_of(after):
            raise _PassError(f"it changed result {number} from {_shape_of(before)} to {_shape_of(after)}")
    if _shared(result) != shared:  # the code around the piece may write to what it takes and returns
        raise _PassError("it changed which results share memory with inputs or with each other: clone them")
    return result


def _add_fakes(gm: fx.GraphModule, fakes: Sequence[Any], mode: FakeTensorMode) -> None:
    """Compute the fakes of all nodes anew."""
    for node in gm.graph.nodes:
        if node.op != "placeholder":
            node.meta.pop("val", None)
    propagation = _Propagation(gm, mode)
    try:
        with mock.patch.object(fake_tensor.log, "exception"):  # the error is told once, in a sentence
            propagation.propagate_dont_convert_inputs(*fakes)
    except Exception as error:
        node = propagation.node
        where = "" if node is None else f"{node.target} ({node.name}): "
        raise _PassError(f"{where}{_line_of(error)}") from error


def _interface(gm: fx.GraphModule) -> tuple[list[str], list[Any]]:
    """Return the names of the inputs of a graph, and the fakes of its results, as far as they are known."""
    results: Any = gm.graph.output_node().args[0]
    if not isinstance(results, (tuple, list)):
        raise _PassError("its result is no tuple")
    fakes = [result.meta.get("val") if isinstance(result, fx.Node) else result for result in results]
    return [node.name for node in gm.graph.find_nodes(op="placeholder")], fakes


def _shared(gm: fx.GraphModule) -> list[int]:
    """Return for each result the number of the first input or result with the same storage."""
    results: Any = gm.graph.output_node().args[0]
    shown = [*gm.graph.find_nodes(op="placeholder"), *results]
    storages = [storage_id(node) if isinstance(node, fx.Node) else None for node in shown]
    return [storages.index(storage) for storage in storages if storage is not None]


def _shape_of(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return str(value)
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"


def _line_of(error: Exception) -> str:
    """Return the first line of an error; the interpreter adds more."""
    lines = (line.strip() for line in str(error).splitlines())
    return f"{type(error).__name__}: {next(filter(None, lines), '')}".rstrip(".: ")


def _text_of(gm: fx.GraphModule) -> str:
    lines = gm.print_readable(print_output=False).strip().splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith("# "))  # "No stacktrace found for …"


def _ops_of(gm: fx.GraphModule) -> Iterator[str]:
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output"):
            target = node.target
            name = str(target) if is_operator(target) else str(getattr(target, "__name__", target))
            yield name.removesuffix(".default")
    for _, body in bodies(gm):
        yield from _ops_of(body)
