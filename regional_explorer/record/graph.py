"""Captured graphs: nodes with their metadata, source lines, marked blocks; graph breaks, and what forwards keep."""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypeVar

from regional_explorer.errors import listing
from regional_explorer.record import Count, Integer, Record
from regional_explorer.record.grouping import Kept, grouped

_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/", "/lib/python3")


@functools.lru_cache(maxsize=1024)
def is_library(file: str) -> bool:
    """Return whether a source file belongs to an installed library, rather than to the user."""
    return any(folder in file for folder in _LIBRARY_FOLDERS)


@functools.lru_cache(maxsize=1024)
def is_cell(file: str) -> bool:
    """Return whether a source file is a notebook's cell: it is temporary and has no name that users know."""
    return "ipykernel_" in file or "/ipython-input-" in file or file.startswith("<")  # the second form in Colab


class GraphKind(StrEnum):
    """The kind of a graph of a Dynamo frame."""

    DYNAMO = "dynamo"
    FORWARD = "forward"
    BACKWARD = "backward"
    INFERENCE = "inference"


class Role(StrEnum):
    """The role of a node. Only ``OP`` nodes compute; the others are drawn as badges."""

    OP = "op"
    INPUT = "input"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    SAVED = "saved"
    TANGENT = "tangent"
    CONSTANT = "constant"
    SUBGRAPH = "subgraph"
    OUTPUT = "output"


class SourceLine(Record, frozen=True):
    """One line of the user's program, as the trace saw it."""

    file: str
    line: Integer
    function: str
    text: str = ""
    def_line: int = 0
    """The line of the function's ``def``; 0 if unknown."""
    scope: str = ""
    """The function's name, with the names of the classes and functions around it: ``Block.forward``."""

    @property
    def in_function(self) -> str:
        """The line counted from the function's ``def``, as line selectors take it: ``Block.forward:3``."""
        return f"{self.scope or self.function}:{self.line - self.def_line + 1}"

    @property
    def in_library(self) -> bool:
        """Whether it is in an installed library."""
        return is_library(self.file)

    @property
    def in_cell(self) -> bool:
        """Whether it is in a notebook's cell, whose file is temporary and has no name that users know."""
        return is_cell(self.file)

    @property
    def numbered(self) -> str:
        """The line with its number in the file: ``file.py:12 in forward``, in a cell ``12 in forward``."""
        where = str(self.line) if self.in_cell else f"{self.file.rsplit('/', 1)[-1]}:{self.line}"
        return f"{where} in {self.scope if self.in_cell and self.scope else self.function}"

    def __str__(self) -> str:
        """Return ``file.py:12 in forward``, or ``Block.forward:3`` for a notebook's cell, whose file is temporary."""
        return self.in_function if self.def_line and self.in_cell else self.numbered


class FunctionSpan(NamedTuple):
    """The lines of a function or lambda."""

    first: int
    """Its first line, decorators included."""
    def_line: int
    last: int
    """Its last line."""
    name: str
    """Its full name."""


@functools.lru_cache(maxsize=256)
def function_spans(text: str) -> tuple[FunctionSpan, ...]:
    """Return all functions in the text of a module or a notebook's cell, whose magics are left out."""
    # A line of Python may begin like a magic, with an operator.
    for source in (text, _without_magics(text)):
        try:
            return tuple(_spans_below(ast.parse(source), ""))
        except (SyntaxError, ValueError, RecursionError):
            continue
    return ()


def _without_magics(text: str) -> str:
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n"))


def _spans_below(tree: ast.AST, scope: str) -> Iterator[FunctionSpan]:
    for node in ast.iter_child_nodes(tree):
        name = scope
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            name = f"{scope}.{getattr(node, 'name', '<lambda>')}".lstrip(".")
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
            yield FunctionSpan(first, node.lineno, node.end_lineno or node.lineno, name)
        yield from _spans_below(node, name)


class TensorSpec(Record, frozen=True):
    """The traced properties of one tensor. Sizes and strides are ints, or text if symbolic."""

    dtype: str
    shape: tuple[Integer | str, ...]
    stride: tuple[Integer | str, ...]
    device: str

    @property
    def size_bytes(self) -> int | None:
        """The bytes of its elements; None if a size is symbolic."""
        sizes = [size for size in self.shape if isinstance(size, int)]
        bits = re.search(r"\d+", self.dtype)  # bool has none, and takes a byte
        return math.prod(sizes) * max(int(bits[0]) // 8 if bits else 1, 1) if len(sizes) == len(self.shape) else None

    def __str__(self) -> str:
        """Return for example ``float32[2, 128, 256]``."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class ModuleCall(Record, frozen=True):
    """One module call on the way to a node."""

    path: str
    """The path below the root module as ``named_modules()`` gives it, ``""`` for the root. If other roots have the path
    too, the root's name stands before it, and the path alone is an alias."""
    class_name: str
    call: Integer = 0
    """The number of this call of the module."""
    aliases: tuple[str, ...] = ()
    """The other names of a module that is shared."""


def layer_glob(path: str) -> str:
    """Return a module path as a glob over equal layers: ``layers.*.attn`` for ``layers.3.attn``."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def equal_layers(classes: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return module paths by the glob of equal layers if only modules of their class match it, else by their path.

    Where modules of several classes are numbered, as in ``layers.0.mlp.0`` and ``layers.0.mlp.1``, that number stays:
    ``layers.*.mlp.0``. ``classes`` has the class of each path.
    """
    by_form = grouped((layer_glob(path), path) for path in classes)
    forms = {
        path: form if len({classes[other] for other in paths}) == 1 else _with_last_number(form, path)
        for form, paths in by_form.items()
        for path in paths
    }
    by_glob = grouped((forms[path], path) for path in classes)
    alike = {glob: len({classes[path] for path in paths}) == 1 < len(paths) for glob, paths in by_glob.items()}
    return grouped((forms[path] if alike[forms[path]] else path, path) for path in classes)


def _with_last_number(form: str, path: str) -> str:
    before, star, after = form.rpartition("*")
    number = path.split(".")[before.count(".")] if star else ""
    return f"{before}{number}{after}"


Chain = tuple[ModuleCall, ...]
"""The module calls around an op, outermost first."""


def traced_from(chain: Chain, callers: Sequence[Chain]) -> Chain:
    """Return the caller of a body, among ``callers``, that an op was traced from, by its modules; () for none."""
    paths = [call.path for call in chain]
    leading = (caller for caller in callers if caller and [call.path for call in caller] == paths[: len(caller)])
    return max(leading, key=len, default=())


class Node(Record, frozen=True):
    """One node of one graph."""

    name: str
    """Its name in the graph."""
    role: Role
    """Its role: an op, an input, the output or a subgraph."""
    target: str
    """The target that it calls."""
    inputs: tuple[str, ...] = ()
    """The names of the nodes that it reads."""
    values: tuple[TensorSpec, ...] = ()
    """Its result tensors."""
    stack: tuple[SourceLine, ...] = ()
    """The user's lines that led to it, the innermost last."""
    modules: tuple[ModuleCall, ...] = ()
    """The module calls that led to it, the innermost last."""
    annotated: bool = False
    """Whether the user marked it with ``compile_with_inductor``."""
    annotation: Any = None
    """The value that the user gave to ``compile_with_inductor``, made JSON-safe."""
    annotations: Mapping[str, str] = {}
    """The values that the user gave to other keys of ``annotate``, as texts."""
    carved: bool = False
    """Whether ``fallback_to_eager`` takes it out of its region."""
    origin: Integer | None = None
    """The number of the Dynamo node that it descends from; None if AOTAutograd added it, such as a sum of gradients."""
    recompute: bool = False
    """Whether the backward repeats it."""
    random: bool = False
    """Whether it draws random numbers."""
    label: str = ""
    """The user's name of an input."""

    @property
    def source(self) -> SourceLine | None:
        """The innermost line of the user's program, or None."""
        return self.stack[-1] if self.stack else None

    @property
    def module_path(self) -> str | None:
        """The path of the innermost module this node belongs to, or None outside any module."""
        return self.modules[-1].path if self.modules else None

    @property
    def op(self) -> str:
        """The short name: ``mul`` for the operator ``aten.mul.Tensor``, ``gelu`` for ``torch._C._nn.gelu``."""
        return self.op_names[-1]

    @property
    def op_names(self) -> tuple[str, ...]:
        """The names of the operator: ``aten.mul.Tensor``, ``aten.mul``, ``mul.Tensor``, and the short name."""
        namespace, _, op_overload = self.target.partition(".")
        name, dot, _ = op_overload.partition(".")
        if dot and namespace != "torch":  # namespace.name.overload
            return self.target, f"{namespace}.{name}", op_overload, name
        return self.target, self.target.rpartition(".")[2]


class SubgraphOptions(Record, frozen=True):
    """The options that ``nested_compile_region(options=…)`` gives to the body it marks."""

    config: Mapping[str, Any] = {}
    """The config of the body; of its forward alone if there is a ``backward_config``."""
    backward_config: Mapping[str, Any] | None = None
    """The config of its backward; None if one config is for both directions."""
    followed: tuple[str, ...] = ()
    """Options that a plan cannot hold, but that shaped the graphs traced here."""
    ignored: tuple[str, ...] = ()
    """Options that have no effect here."""


class Graph(Record, frozen=True, dict=True):
    """One graph of one Dynamo frame."""

    id: str
    """Its id, such as ``0/forward``."""
    kind: GraphKind
    """Dynamo's graph, a forward, a backward, or an inference graph."""
    frame: Integer
    """The number of the Dynamo frame."""
    nodes: tuple[Node, ...]
    """Its nodes in order."""
    parent: tuple[str, str] | None = None
    """``(graph id, node name)`` of the higher-order op whose body it is."""
    name: str = ""
    """The function that ``nested_compile_region`` marks, such as ``Block.forward``, for its body in Dynamo's graph."""
    options: SubgraphOptions | None = None
    """The options of ``nested_compile_region``; None without options."""
    patterns: Mapping[str, Count] = {}
    """How often each pattern of the joint-graph passes matched, on a Dynamo graph if the trace runs these passes."""

    def __iter__(self) -> Iterator[Node]:
        """Iterate over the nodes, in the order they run."""
        return iter(self.nodes)

    @cached_property
    def ops(self) -> tuple[Node, ...]:
        """The nodes that compute something."""
        return tuple(node for node in self.nodes if node.role is Role.OP)

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """The nodes keyed by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def users(self) -> Mapping[str, Sequence[str]]:
        """The names of the nodes that read each node."""
        return grouped((name, node.name) for node in self.nodes for name in node.inputs)

    def holding(self, name: str) -> frozenset[str]:
        """Return the nodes that hold the same body of a higher-order op as the node called ``name``."""
        body = self.by_name[name].target
        return frozenset(node.name for node in self.nodes if node.role is Role.SUBGRAPH and node.target == body)


def marked_region(annotation: Any) -> tuple[Any, str] | None:
    """Return the id and instance in a mark's ``inductor_region``; None for a mark without an id.

    A list that begins with a text, such as ``["layers", 3]``, is an id for upstream. Here it means instance 3 of
    ``layers``, so that marks in a loop can give each iteration its own partition. Other ids do not determine the
    instance.
    """
    if not isinstance(annotation, Mapping) or "inductor_region" not in annotation:
        return None
    region_id = annotation["inductor_region"]
    if isinstance(region_id, (list, tuple)) and len(region_id) > 1 and isinstance(region_id[0], str):
        return region_id[0], ".".join(map(str, region_id[1:]))
    return region_id, ""


class MarkedBlock(Record, frozen=True):
    """One run through a marked block."""

    number: Integer
    """The number of the run."""
    annotation: Any = None
    """The value that the block gives to ``compile_with_inductor``."""
    source: SourceLine | None = None
    """The line of the block."""

    @property
    def region(self) -> str:
        """The id that the mark gives, or ``default``: upstream's single region for all marks without an id."""
        marked = marked_region(self.annotation)
        return str(marked[0]) if marked is not None else "default"


class FailedOp(Record, frozen=True):
    """An op of a captured graph that raised when the graph ran."""

    graph: str
    """The id of the graph."""
    node: str
    target: str
    error: str


def subgraphs(graphs: Sequence[Graph]) -> Iterator[Graph]:
    """Yield the bodies of ``nested_compile_region`` in Dynamo's graphs; other bodies have no name."""
    return (graph for graph in graphs if graph.kind is GraphKind.DYNAMO and graph.name)


def subgraph_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of a body: ``Block.forward``, ``Block``, ``forward`` and Dynamo's ``subgraph_0``."""
    last_part, dynamo_name = graph.name.rpartition(".")[2], graph.id.rpartition("/")[2]
    return tuple(dict.fromkeys((graph.name, short_name(graph.name), last_part, dynamo_name)))


def short_name(scope: str) -> str:
    """Return ``Block`` for ``Block.forward``, and ``mlp`` for ``step.mlp``."""
    outer, _, last = scope.rpartition(".")
    return outer.rpartition(".")[2] if last == "forward" and outer else last


# --------------------------------------------------------------------------------------------------------- graph breaks


MOST_MODULES = 8


def named_modules(calls: Sequence[ModuleCall]) -> str:
    """Return ``module '1' (ReLU)``, or ``modules '1' (ReLU), '2' (Linear)``; a module without a path has its class."""
    texts = dict.fromkeys(f"{call.path!r} ({call.class_name})" if call.path else call.class_name for call in calls)
    return f"module{'s' if len(texts) > 1 else ''} {listing(texts, MOST_MODULES)}" if texts else ""


class UntracedOps(Record, frozen=True):
    """Ops of one operator, module and line that run in no graph because of a graph break."""

    op: str
    count: Integer
    """How many there are."""
    module: ModuleCall | None = None
    """The innermost module call."""
    line: SourceLine | None = None
    """The innermost line of the user's program."""
    function: str = ""
    """The user's function that calls the ops; without it, the module itself calls them."""
    is_cause_known: bool = True
    """False if it is unknown which of the call's breaks is the cause."""

    @property
    def place(self) -> str:
        """The module or function whose ops these are: ``module '1' (ReLU)``, or ``function mix``."""
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
        """The place as text; if another line of the user's caused it, that line too."""
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
                self._known_remedy
                or f"You cannot move this line: use another {used} there, or other options of the {used}."
            )
        if "branch" in self.reason:
            return "Choose without a branch, as torch.where does, if a region should reach across it."
        return "Move this line out of the call if a region should reach across it."

    @property
    def torch_hint(self) -> str:
        """Torch's own hint as a sentence, unless it is known not to help."""
        return f"Torch's own hint: {self.hint}." if self.hint and not self._known_remedy else ""

    @property
    def advice_in_block(self) -> str:
        """The remedy if it happened in a marked block."""
        if self.is_elsewhere:
            return f"End the block before this call, and begin another after it. {self.advice}"
        return "Move this line out of the block, or end the block before it and begin another after it."

    @property
    def _known_remedy(self) -> str:
        file = self.innermost.file if self.innermost else ""
        return next(
            (text for (end, words), text in _KNOWN_REMEDIES.items() if file.endswith(end) and words in self.reason), ""
        )


_KNOWN_REMEDIES = {
    ("/torch/nn/modules/batchnorm.py", "item()"): (
        "Give the batch norm a momentum: with momentum=None it reads num_batches_tracked as a number. "
        "torch._dynamo.config.capture_scalar_outputs does not help: it divides by that number."
    )
}
"""Remedies for lines of libraries where torch's hint does not help, by the end of the file and words of the reason."""


# ------------------------------------------------------------------------------------------------- what a forward keeps


class KeptTensor(NamedTuple):
    """A tensor that a forward keeps for its backward; views of one tensor count once."""

    graph: str
    """The id of the forward."""
    node: Node
    """The op of the forward that computes it."""
    size_bytes: int | None
    """Its size; None if it is dynamic."""


V = TypeVar("V")


def _kept(view: Callable[[Sequence[Graph]], V]) -> Callable[[Iterable[Graph]], V]:
    """Decorator: keep what ``view`` made of the last graphs, which an edit of the plan does not change."""
    last = Kept[V]()

    @wraps(view)
    def kept(graphs: Iterable[Graph]) -> V:
        given = tuple(graphs)
        return last.of(given, lambda: view(given))

    return kept


@_kept
def kept_for_backward(graphs: Iterable[Graph]) -> Sequence[KeptTensor]:
    """Return the tensors that forwards keep for their backward, largest first.

    Parameters, inputs and views of them are left out: they are in memory anyway.
    """
    by_id = {graph.id: graph for graph in graphs if graph.parent is None}
    kept = [
        KeptTensor(forward.id, node, _size_bytes(node))
        for graph in by_id.values()
        if graph.kind is GraphKind.BACKWARD and (forward := by_id.get(f"{graph.frame}/{GraphKind.FORWARD}")) is not None
        for node in _computed_for(graph, forward)
    ]
    return sorted(kept, key=lambda tensor: -(tensor.size_bytes or 0))


def _size_bytes(node: Node) -> int | None:
    """Return the size of a node's result; None if it is dynamic."""
    sizes = [spec.size_bytes for spec in node.values]
    return None if None in sizes else sum(filter(None, sizes))


def _computed_for(backward: Graph, forward: Graph) -> Iterable[Node]:
    """Return the ops of ``forward`` whose results ``backward`` reads, or views of them."""
    saved = (forward.by_name.get(node.name) for node in backward.nodes if node.role is Role.SAVED)
    bases = (_view_base(node, forward) for node in saved if node)
    # A number has no values.
    return {base.name: base for base in bases if base.role is Role.OP and base.values}.values()


@_kept
def recomputed_ops(graphs: Iterable[Graph]) -> Mapping[str, Node]:
    """Return the ops of forwards that the backward repeats instead of keeping their results, by ``graph:name``."""
    ops = ((graph, node) for graph in graphs if graph.kind is GraphKind.BACKWARD for node in graph.ops)
    return {f"{graph.id}:{node.name}": node for graph, node in ops if node.recompute and not _is_view(node, graph)}


_SPLITS = frozenset(("split", "split_with_sizes", "unbind"))
_SHAPED = ("expand", "permute", "squeeze", "t", "transpose", "unsqueeze", "view", "_unsafe_view")
_PARTS = ("as_strided", "diagonal", "select", "slice", "unfold", "view_as_complex", "view_as_real")
_VIEWS = frozenset((*_SPLITS, *_SHAPED, *_PARTS, "alias", "detach"))
"""The ops whose result is a view of their first input; ``getitem`` is one for an op that splits."""


def _is_view(node: Node, graph: Graph) -> bool:
    return node.op in _VIEWS or (node.op == "getitem" and graph.by_name[node.inputs[0]].op in _SPLITS)


def _view_base(node: Node, graph: Graph) -> Node:
    """Return the op or input that a view is a view of."""
    while node.role is Role.OP and _is_view(node, graph):
        node = graph.by_name[node.inputs[0]]
    return node
