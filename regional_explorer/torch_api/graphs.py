"""FX graphs, the keys of their metadata, fake modes and dynamic sizes."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import sympy
import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._functorch import aot_autograd
from torch._higher_order_ops.effects import with_effects
from torch._higher_order_ops.triton_kernel_wrap import (
    kernel_side_table,
    triton_kernel_wrapper_functional,
    triton_kernel_wrapper_mutation,
)
from torch._prims.rng_prims import run_and_save_rng_state
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.fx.graph import _BoxedCodeGen
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    is_traceable_wrapper_subclass,
)

ANNOTATION = "compile_with_inductor"
"""The key under which ``torch.fx.passes.regional_inductor`` looks for a mark."""

FALLBACK = "fallback_to_eager"
"""The key that carves an op out of a region; Inductor itself respects it too (pytorch #166339)."""

ORIGIN = "regional_explorer_origin"
"""Our own key in ``node.meta["custom"]``: the id of the Dynamo node a node descends from."""

MARKS = "regional_explorer_marks"
"""Our own key in ``current_meta["custom"]`` while Dynamo traces a marked block: the ``OpenMark`` of each open block."""


_NOT_THE_USERS = frozenset(
    (
        *(ANNOTATION, FALLBACK, ORIGIN, MARKS),
        *("call_id", "nested_region_config", "stream", "_region_activation_memory_budget"),
    )
)
"""The keys of ``node.meta["custom"]`` that torch or we set; all other keys are from the user's own ``annotate``."""


def user_annotations(custom: Mapping[str, Any]) -> dict[str, str]:
    """Return the user's own keys of ``annotate``, with their values as texts."""
    return {
        str(key): str(value)
        for key, value in custom.items()
        if key not in _NOT_THE_USERS and isinstance(value, (str, int, float))
    }


@functools.cache
def inductor_honours_fallback() -> bool:
    """Return whether Inductor honours ``FALLBACK`` on an op and calls its eager kernel; torch 2.11 does not."""
    import torch._inductor.graph

    return FALLBACK in inspect.getsource(torch._inductor.graph)


@functools.cache
def inductor_keeps_random_order() -> bool:
    """Return whether random ops keep their order with ``fallback_random``: torch 2.13 and newer (pytorch #181245)."""
    from torch._inductor.fx_passes import post_grad

    return hasattr(post_grad, "_chain_random_ops_for_ordering")


BoxedCall = Callable[[list[Any]], Any]
_Call = TypeVar("_Call", bound=Callable[..., Any])


def boxed(gm: fx.GraphModule) -> BoxedCall:
    """Return ``gm`` as a function of one argument list, which it empties so that activations can be freed."""
    gm.graph.set_codegen(_BoxedCodeGen())
    gm.recompile()
    return gm.forward


def declare_boxed(call: _Call) -> _Call:
    """Return ``call``, a function or a method, which AOTAutograd now gives one argument list to empty."""
    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def bodies(gm: fx.GraphModule) -> Iterator[tuple[fx.Node, fx.GraphModule]]:
    """Yield the bodies of the higher-order ops of ``gm`` with the ``get_attr`` node that names them, each body once."""
    seen_ids: set[int] = set()
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            body = resolve(gm, node)
            if isinstance(body, fx.GraphModule) and id(body) not in seen_ids:
                seen_ids.add(id(body))
                yield node, body


def resolve(gm: fx.GraphModule, node: fx.Node) -> Any:
    """Return the value that a ``get_attr`` node refers to."""
    return functools.reduce(getattr, str(node.target).split("."), gm)


def input_expression(node: fx.Node) -> str:
    """Return Dynamo's expression for an input of its graph, such as ``L['x']``, or an empty text."""
    source = getattr(node, "_dynamo_source", None) or getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def is_python_float(node: fx.Node) -> bool:
    """Return whether an input of Dynamo's graph is a float of Python's, which torch passes as a 0-d float64 tensor."""
    argument: Any = node.meta.get("grapharg")
    return getattr(argument, "pass_arg_as_tensor", False) and not argument.is_tensor


def is_operator(target: Any) -> bool:
    """Return whether a node's target is one of torch's operators, whose ``str`` is its full name."""
    return isinstance(target, torch._ops.OpOverload | torch._ops.HigherOrderOperator)


def target_key(node: fx.Node) -> str:
    """Return the target of a node as text that is equal for equal code."""
    target = node.target
    if isinstance(target, str) or is_operator(target):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"


def user_kernel(node: fx.Node) -> Mapping[str, Any]:
    """Return the values of the index arguments in a call of a user's Triton kernel; empty for other nodes.

    The indices refer to the kernel and its constant arguments in tables of this process. As in the keys of Inductor's
    caches (``FxGraphHashDetails``, torch 2.13), a kernel is identified by its source, the source of the functions it
    calls, and the configs that it is tuned over.
    """
    if node.target not in (triton_kernel_wrapper_functional, triton_kernel_wrapper_mutation):
        return {}
    from torch._inductor.codegen.wrapper import user_defined_triton_kernel_transitive_closure_source_code

    kernel: Any = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])  # type: ignore[arg-type]  # an int
    constants = kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"])  # type: ignore[arg-type]  # an int
    configs = getattr(kernel, "configs", None)  # an autotuner has them; its ``fn`` is the kernel
    tuned_over = sorted(sorted(map(str, config.all_kwargs().items())) for config in configs or ())
    source = user_defined_triton_kernel_transitive_closure_source_code(kernel if configs is None else kernel.fn)
    return {"kernel_idx": (source, tuned_over), "constant_args_idx": constants}


def is_random_op(node: fx.Node) -> bool:
    """Return whether a node draws from a random generator.

    Attention and recurrent ops are tagged as random for the dropout within them; without dropout, or outside of
    training, they draw nothing.
    """
    return _is_random_call(node.target, node.args, node.kwargs)


def runs_random_op(node: fx.Node) -> bool:
    """Return whether a node draws from a random generator, itself or in a body or checkpointed op that it runs.

    ``run_with_rng_state``, which repeats that op in the backward, leaves the generator as it was.
    """
    if node.target is run_and_save_rng_state:
        operator, *args = node.args
        return _is_random_call(operator, args, node.kwargs)
    gm = node.graph.owning_module
    attributes = [resolve(gm, source) for source in node.all_input_nodes if gm is not None and source.op == "get_attr"]
    return is_random_op(node) or any(
        runs_random_op(inner) for body in attributes if isinstance(body, fx.GraphModule) for inner in body.graph.nodes
    )


def keeps_random_order(gm: fx.GraphModule) -> bool:
    """Return whether Inductor, with ``fallback_random``, draws in the order of a graph's nodes, as eager does."""
    return inductor_keeps_random_order() or sum(map(runs_random_op, gm.graph.nodes)) <= 1


def _is_random_call(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if torch.Tag.nondeterministic_seeded not in getattr(operator, "tags", ()):
        return False
    arguments = _arguments(operator, args, kwargs)
    return all(arguments.get(name, True) not in (0, False) for name in ("dropout_p", "dropout", "train", "training"))


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call of an operator by name, with the defaults of omitted arguments."""
    return _arguments(node.target, node.args, node.kwargs)


def _arguments(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    arguments = operator._schema.arguments
    positional = {argument.name: value for argument, value in zip(arguments, args, strict=False)}
    return {argument.name: argument.default_value for argument in arguments} | positional | dict(kwargs)


def writes_inputs(operator: Any) -> bool:
    """Return whether an operator writes to one of its inputs."""
    schema = getattr(operator, "_schema", None)
    return schema is not None and schema.is_mutable


def returns_new_tensors(node: fx.Node) -> bool:
    """Return whether a node is an operator that returns new tensors: no view, and no write in place."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    return not schema.is_mutable and all(result.alias_info is None for result in schema.returns)


def written_arguments(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a call that an operator writes to in place, the members of a list one by one."""
    written: list[Any] = []
    for index, name in _written_places(operator) if isinstance(operator, torch._ops.OpOverload) else ():
        argument = args[index] if index < len(args) else kwargs.get(name)
        written += argument if isinstance(argument, (list, tuple)) else [argument]
    return written


_WRITES_STATISTICS = re.compile(r"aten::(?!.*(backward|functional|no_update|no_training))")


@functools.lru_cache(maxsize=2048)
def _written_places(operator: torch._ops.OpOverload) -> tuple[tuple[int, str], ...]:
    """Return the positions and names of the arguments that an operator writes to."""
    schema = operator._schema
    # Batch norm writes its running statistics, but its schema does not say so (native_batch_norm, torch 2.13).
    writes_statistics = _WRITES_STATISTICS.match(schema.name) is not None
    return tuple(
        (index, argument.name)
        for index, argument in enumerate(schema.arguments)
        if (argument.alias_info is not None and argument.alias_info.is_write)
        or (writes_statistics and argument.name.startswith("running_"))
    )


def computes_nothing(node: fx.Node) -> bool:
    """Return whether a node is a view, a ``getitem`` or arithmetic on sizes."""
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return True
    if target._schema.name in ("aten::_unsafe_view", "aten::detach", "aten::alias", "aten::lift_fresh_copy"):
        return True
    aliases = [result.alias_info for result in target._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


def only_computes(gm: fx.GraphModule) -> bool:
    """Return whether a second run of a graph on the same inputs would have no effect, except on random generators.

    Ops of libraries may count or send something, collectives wait for their peers, and an op with an effect token has
    an effect. A higher-order op has the effects of its bodies; without bodies it may call any op.
    """
    return all(map(_only_computes, gm.graph.nodes)) and all(only_computes(body) for _, body in bodies(gm))


def _only_computes(node: fx.Node) -> bool:
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return node.target is not with_effects and any(source.op == "get_attr" for source in node.all_input_nodes)
    return not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace in ("aten", "prims")


def is_elementwise(node: fx.Node) -> bool:
    """Return whether each element of an operator's result depends on one element of each of its inputs."""
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


_MOVING_OPS = frozenset({
    "as_strided_scatter", "cat", "clone", "constant_pad_nd", "copy", "diagonal_scatter", "embedding", "flip", "gather",
    "index", "index_select", "masked_scatter", "masked_select", "repeat", "roll", "select_scatter", "slice_scatter",
    "stack",
})  # fmt: skip


def only_moves(node: fx.Node) -> bool:
    """Return whether each element of an operator's result is an unchanged element of an input, without rounding."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is torch.ops.aten.index_put:
        return not (node.args[3:] or node.kwargs.get("accumulate", False))
    return packet is not None and str(packet).removeprefix("aten.") in _MOVING_OPS


def is_effect_token(node: fx.Node) -> bool:
    """Return whether a node is a token that only orders ops with effects, such as the checks of ``linalg``.

    AOTAutograd traces it as a tensor of size 0 and runs the graph with None in its place.
    """
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return node.args[0].target is with_effects and node.args[1:] == (0,)
    return any(user.target is with_effects and user.args[0] is node for user in node.users)


def is_kept_by_caller(node: fx.Node) -> bool:
    """Return whether an input of a piece is an input of the call or a gradient of its results, by its name.

    Inductor's memory planning uses these names too (``is_nonfreeable_buffers`` in torch 2.13).
    """
    return node.name.startswith(("primals", "arg", "tangents"))


_KEPT = "regional_explorer_kept"


def record_kept(forward: fx.GraphModule, returned: int) -> None:
    """Record the results of a forward that only its backward gets: those after the first ``returned``."""
    results: Any = forward.graph.output_node().args[0]
    for node in {*results[returned:]} - {*results[:returned]}:
        if isinstance(node, fx.Node):
            node.meta[_KEPT] = True


def is_only_kept(node: fx.Node) -> bool:
    """Return whether ``record_kept`` has recorded a node, in its graph or in the piece that was copied from there."""
    return _KEPT in node.meta


def is_of_module(node: fx.Node) -> bool:
    """Return whether Dynamo took an input of its graph from a module: a parameter or a buffer."""
    return "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})


def is_carved(node: fx.Node) -> bool:
    """Return whether a node was carved out: Inductor calls its eager kernel."""
    return FALLBACK in (node.meta.get("custom") or {})


def as_subclass_of(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return ``values`` as a tensor of ``tensor``'s subclass, if it has one: AOTAutograd wants such gradients."""
    return torch.zeros_like(tensor) + values if is_traceable_wrapper_subclass(tensor) else values


def dispatch_mode() -> str | None:
    """Return the class name of the innermost ``TorchDispatchMode`` of the caller, under which Dynamo traces nothing."""
    mode = _get_current_dispatch_mode()
    return None if mode is None else type(mode).__name__


class WatchingMode(TorchDispatchMode):
    """A dispatch mode that only watches: code runs under it as outside of it, compiled functions included."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: functions that the user compiled, and ops such as flex_attention, run their compiled code."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]


_AOT_AUTOGRAD = (aot_autograd.__file__, str(Path(aot_autograd.__file__).with_name("_aot_autograd")))


def runs_graphs(file: str) -> bool:
    """Return whether a file has AOTAutograd's code, which runs graphs."""
    return file.startswith(_AOT_AUTOGRAD)


def is_in_backward() -> bool:
    """Return whether autograd runs a backward on this thread."""
    return torch._C._current_graph_task_id() != -1


def rename(node: fx.Node, name: str) -> None:
    """Rename a node; ``Graph.node_copy`` keeps the old name, and there is no public way to change it."""
    node._rename(name)


def propose_partitions(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """Return how upstream's partitioner groups ``nodes``, each group in the order of the graph."""
    chosen = set(nodes)
    support = create_op_support(lambda _submodules, node: node in chosen)
    partitioner = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True)
    position = {node: index for index, node in enumerate(gm.graph.nodes)}
    return [sorted(partition.nodes, key=position.__getitem__) for partition in partitioner.propose_partitions()]


AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps")
"""The types of device that have an autocast state."""


def outside_autocast() -> AbstractContextManager[Any]:
    """Return a context manager that disables autocast, as AOTAutograd runs its graphs, which contain their casts."""
    block: AbstractContextManager[Any] = torch._C._DisableAutocast()
    return block


def fake_mode_with_symbols() -> FakeTensorMode:
    """Return a fresh fake mode with a ShapeEnv of its own.

    The mode of the trace cannot be used: its ShapeEnv is frozen, and guards that a later compile adds to it are never
    checked; and two compiles must not share one.
    """
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=False)


def new_size(mode: FakeTensorMode, hint: int, name: str, *, is_number: bool = False) -> torch.SymInt | int:
    """Return a new dynamic size with value ``hint`` in the ShapeEnv of ``mode``; torch treats 0 and 1 as static.

    Nothing is assumed about a number that is no size: it may be 0, 1 or negative.
    """
    env = mode.shape_env
    assert env is not None  # noqa: S101 - made by fake_mode_with_symbols
    source = ConstantSource(name)
    create = env.create_unspecified_symbol if is_number else env.create_symbol
    symbol = create(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
    return env.create_symintnode(symbol, hint=hint, source=source)


def substitute(
    size: torch.SymInt, sizes: Mapping[Any, torch.SymInt | int], mode: FakeTensorMode
) -> torch.SymInt | int | None:
    """Return ``size`` rewritten in the symbols of ``sizes`` (old sympy symbol to new size); None if a symbol lacks."""
    expr = size.node.expr
    if not expr.free_symbols <= set(sizes):
        return None
    env = mode.shape_env
    assert env is not None  # noqa: S101 - made by fake_mode_with_symbols
    hint = int(expr.xreplace({old: size_hint(new) for old, new in sizes.items()}))
    exprs = {old: new if isinstance(new, int) else new.node.expr for old, new in sizes.items()}
    return env.create_symintnode(expr.xreplace(exprs), hint=hint)


def symbols_of(size: Any) -> Any | None:
    """Return the sympy expression behind a symbolic size, or None for a plain int."""
    return size.node.expr if isinstance(size, torch.SymInt) and not size.node.expr.is_number else None


def size_hint(size: int | torch.SymInt) -> int:
    """Return the size seen while tracing.

    Raises:
        ValueError: it is known only at run time, or it stands for the lengths of the rows of a jagged tensor.
    """
    if not isinstance(size, torch.SymInt):
        return size
    if not size.node.has_hint():
        raise ValueError(f"{size} is unbacked: it has no value until the graph runs")
    if size.node.is_nested_int():
        raise ValueError(f"{size} is not one size: the rows of a jagged tensor have several")
    return int(size.node.hint)


def guard_check(mode: FakeTensorMode, sizes: Sequence[torch.SymInt | int]) -> Guard | None:
    """Return a test of the guards that a compile left in the ShapeEnv of ``mode``; None without guards.

    The test takes the current values of ``sizes``, which ``new_size`` made; static sizes have to be unchanged.
    Dynamo does not know these guards (2.13), so the caller of the artifact has to check them.
    """
    env = mode.shape_env
    if env is None or not sizes:
        return None
    # ``node.expr`` is a number if the compile specialized the size: the guard is then ``Eq(s40, 6)``.
    exprs = [
        sympy.Symbol(f"static_{index}") if isinstance(size, int) else size.node._expr
        for index, size in enumerate(sizes)
    ]
    conditions = [guard.expr for guard in env.guards]
    conditions += [sympy.Eq(expr, size) for expr, size in zip(exprs, sizes, strict=True) if isinstance(size, int)]
    for expr in exprs:
        bounds = env.var_to_range.get(expr)
        if bounds is not None:
            if bounds.lower > -(2**62):
                conditions.append(sympy.Ge(expr, bounds.lower))
            if bounds.upper.is_number and bounds.upper < 2**62:
                conditions.append(sympy.Le(expr, bounds.upper))
    conditions = [condition for condition in conditions if condition is not sympy.true]
    return Guard(tuple(exprs), tuple(conditions)) if conditions else None


class Guard:
    """A conjunction of sympy conditions on the symbols ``names``, evaluated once per distinct tuple of sizes."""

    def __init__(self, names: tuple[Any, ...], conditions: tuple[Any, ...]) -> None:
        self.names = names
        self.conditions = conditions
        self._known: dict[tuple[int, ...], bool] = {}

    def __call__(self, values: Sequence[int]) -> bool:
        """Return whether all conditions hold for these values of ``names``."""
        key = tuple(values)
        if key not in self._known:
            sizes = dict(zip(self.names, key, strict=True))
            self._known[key] = all(bool(condition.xreplace(sizes)) for condition in self.conditions)
        return self._known[key]


Sizes = Mapping[str, tuple[int, ...]]
"""The sizes of the tensors that a graph takes, by the name of the input."""


@dataclass(frozen=True)
class SizeGuards:
    """The sizes that a trace was made for, and the conditions on them.

    ``seen`` are the sizes of the traced call, ``sizes`` the same sizes as expressions of symbols, ``guards`` the
    conditions on the symbols, ``ranges`` the range of each symbol. ``code`` identifies the traced function.
    """

    seen: Sizes
    sizes: Mapping[str, tuple[sympy.Expr, ...]]
    code: tuple[str, int, str] | None = None
    guards: tuple[sympy.Basic, ...] = ()
    ranges: Mapping[sympy.Symbol, tuple[Any, Any]] | None = None

    @classmethod
    def of(cls, gm: fx.GraphModule, code: CodeType | None) -> SizeGuards:
        """Return the size guards of Dynamo's graph ``gm`` of the function ``code``."""
        traced = (code.co_filename, code.co_firstlineno, code.co_name) if code is not None else None
        # The inputs that a backend is given may be the real ones.
        values = {node.name: node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")}
        # One size of a jagged tensor is no number.
        tensors = {name: v for name, v in values.items() if isinstance(v, torch.Tensor) and not v.is_nested}
        seen = {name: tuple(map(size_hint, tensor.shape)) for name, tensor in tensors.items()}
        sizes = {name: tuple(map(_expression, tensor.shape)) for name, tensor in tensors.items()}
        modes = (getattr(tensor, "fake_mode", None) for tensor in tensors.values())
        env = next((mode.shape_env for mode in modes if mode is not None and mode.shape_env is not None), None)
        if env is None:
            return cls(seen, sizes, traced)
        ranges = {symbol: (bounds.lower, bounds.upper) for symbol, bounds in env.var_to_range.items()}
        return cls(seen, sizes, traced, tuple(guard.expr for guard in env.guards), ranges)

    @property
    def are_dynamic(self) -> bool:
        """Whether the graph serves other sizes than those it was traced for."""
        return any(size.free_symbols for dims in self.sizes.values() for size in dims)

    def are_of_the_same_call(self, other: SizeGuards) -> bool:
        """Return whether two traces are of one function, with inputs of the same names."""
        return self.code == other.code and self.sizes.keys() == other.sizes.keys()

    def hold_for(self, sizes: Sizes) -> bool:
        """Return whether the graph serves a call with inputs of these sizes."""
        values: dict[sympy.Basic, int] = {}
        pairs = [
            pair for name in self.sizes if name in sizes for pair in zip(self.sizes[name], sizes[name], strict=True)
        ]
        for size, number in pairs:
            if isinstance(size, sympy.Symbol) and values.setdefault(size, number) != number:
                return False
        for symbol, (low, high) in (self.ranges or {}).items():
            if symbol in values and not low <= values[symbol] <= high:
                return False
        conditions = [sympy.Eq(size, number) for size, number in pairs] + list(self.guards)
        return all(condition.xreplace(values) != sympy.false for condition in conditions)


def _expression(size: Any) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def can_share_dynamic_trace(first: Sizes, later: Sizes) -> bool:
    """Return whether a trace of the first call with symbolic sizes also serves the later call.

    With ``dynamic=True`` sizes that are equal in the first call get one symbol, so they must be equal in the later call
    too; sizes 0 and 1 stay fixed.
    """
    later_sizes: dict[int, int] = {}
    pairs = [pair for name in first if name in later for pair in zip(first[name], later[name], strict=True)]
    return all(
        later_sizes.setdefault(before, after) == after and (before == after or min(before, after) > 1)
        for before, after in pairs
    )
