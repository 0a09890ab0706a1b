"""The keys of pieces: they differ if and only if something differs that affects the generated code."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import fx
from torch._higher_order_ops.cond import cond
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_functional
from torch._inductor import config as inductor_config
from torch.fx.experimental.proxy_tensor import make_fx

from regional_explorer.compiler.fingerprint import artifact_key, fingerprint, layouts_of
from regional_explorer.torch_api.torch_config import settings_text
from tests.shared.processes import python


def key(fn, args, config=None, *, tracing="real"):
    gm = make_fx(fn, tracing_mode=tracing)(*args)
    for node in gm.graph.find_nodes(op="placeholder"):
        node.meta.setdefault("val", args[0])
    return artifact_key(
        fingerprint(SimpleNamespace(gm=gm, prepared=None), layouts_of(args)), config or {}, settings_text()
    )


def x(*size, dtype=torch.float32):
    return torch.zeros(size or (4, 6), dtype=dtype)


def view_at(offset):
    return torch.zeros(100).as_strided((4, 6), (6, 1), offset)


def inputs_with_one_storage(offset):
    base = torch.zeros(200)
    return base[:24].view(4, 6), base[offset : offset + 24].view(4, 6)


def add(a, b):
    return a + b


def add_constant(value):
    held = torch.tensor(value)
    return lambda a: a + held


def branch_to(op):
    return lambda a: cond(a.sum() > 0, op, lambda b: b * 1, (a,))


def annotate_fallback(fn):
    def inside(a):
        with torch.fx.traceback.preserve_node_meta(), torch.fx.traceback.annotate({"fallback_to_eager": True}):
            return fn(a)

    return inside


DIFFERENT = {
    "operator": ((torch.sin, [x()]), (torch.cos, [x()])),
    "overload": ((lambda a: a.sum(), [x()]), (lambda a: a.sum(0), [x()])),
    "order of inputs": ((lambda a, b: a - b, [x(), x()]), (lambda a, b: b - a, [x(), x()])),
    "outputs": ((lambda a: (a.sin(), a), [x()]), (lambda a: (a, a.sin()), [x()])),
    "number": ((lambda a: a * 2.0, [x()]), (lambda a: a * 3.0, [x()])),
    "kind of number": ((lambda a: a * 2.0, [x()]), (lambda a: a * 2, [x()])),
    "keyword": (
        (lambda a: torch.div(a, 2, rounding_mode="floor"), [x()]),
        (lambda a: torch.div(a, 2, rounding_mode="trunc"), [x()]),
    ),
    "constant by content": ((add_constant([1.0] * 6), [x()]), (add_constant([2.0] * 6), [x()])),
    "dtype of a constant": ((add_constant([1.0] * 6), [x()]), (add_constant([1] * 6), [x()])),
    "body of a higher-order op": ((branch_to(torch.sin), [x()]), (branch_to(torch.cos), [x()])),
    "carved out": ((torch.sin, [x()]), (annotate_fallback(torch.sin), [x()])),
    "shape": ((torch.sin, [x(4, 6)]), (torch.sin, [x(6, 4)])),
    "stride": ((torch.sin, [x(4, 6)]), (torch.sin, [x(6, 4).t()])),
    "dtype": ((torch.sin, [x()]), (torch.sin, [x(dtype=torch.float64)])),
    "device": ((torch.sin, [x()]), (torch.sin, [x().to("meta")])),
    "storage offset": ((torch.sin, [view_at(0)]), (torch.sin, [view_at(8)])),
    "alignment": ((torch.sin, [view_at(0)]), (torch.sin, [view_at(1)])),
    "inputs that share memory": ((add, [x(), x()]), (add, [*inputs_with_one_storage(0)])),
    "how they share it": ((add, [*inputs_with_one_storage(0)]), (add, [*inputs_with_one_storage(12)])),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_pieces_that_differ_have_different_keys(one, other):
    assert key(*one) != key(*other)
    assert key(*one) == key(*one)


def test_names_and_identities_do_not_change_the_key():
    def renamed(value):
        something = value + torch.tensor([1.0] * 6)
        return something.sin()

    def plain(a):
        return (a + torch.tensor([1.0] * 6)).sin()

    assert key(plain, [x()]) == key(renamed, [x() + 1])


def doubles(source, target):
    target.store(source.load() * 2)


def triples(source, target):
    target.store(source.load() * 3)


def calls_helper(source, target):
    target.store(factor(source.load()))  # noqa: F821 - a kernel that a test defines


def key_of_call(kernel, **constants):
    """Return the fingerprint of a graph that calls a Triton kernel, which torch stores in tables of the process."""
    graph = fx.Graph()
    graph.placeholder("a").meta["val"] = x()
    (a,) = graph.nodes
    arguments = {
        "kernel_idx": kernel_side_table.add_kernel(kernel),
        "constant_args_idx": kernel_side_table.add_constant_args(constants),
        "grid": [(1, 1, 1)],
        "tma_descriptor_metadata": {},
        "kwargs": {"source": a, "target": a},
        "tensors_to_clone": ["target"],
    }
    graph.output(graph.call_function(triton_kernel_wrapper_functional, kwargs=arguments))
    return fingerprint(SimpleNamespace(gm=fx.GraphModule({}, graph), prepared=None), layouts_of([x()]))


@pytest.fixture
def empty_kernel_tables():
    """Empties torch's tables of kernels afterwards: it serializes them with every compiled artifact."""
    yield
    kernel_side_table.reset_table()


@pytest.mark.usefixtures("empty_kernel_tables")
def test_the_key_depends_on_a_kernels_source_configs_and_constants(monkeypatch):
    triton = pytest.importorskip("triton")

    def tuned(*warps):
        return triton.autotune([triton.Config({}, num_warps=number) for number in warps], key=[])(triton.jit(doubles))

    assert key_of_call(triton.jit(doubles)) == key_of_call(triton.jit(doubles)), "whatever their places in the tables"
    assert key_of_call(tuned(2, 4)) == key_of_call(tuned(4, 2))
    different = [triton.jit(doubles), triton.jit(triples), tuned(2, 4), tuned(2, 8)]
    assert len({key_of_call(kernel) for kernel in different}) == len(different)
    assert key_of_call(triton.jit(doubles), SIZE=8) == key_of_call(triton.jit(doubles), SIZE=8)
    assert key_of_call(triton.jit(doubles), SIZE=8) != key_of_call(triton.jit(doubles), SIZE=16)
    helpers = set()
    for helper in (doubles, triples):
        monkeypatch.setitem(globals(), "factor", triton.jit(helper))
        helpers.add(key_of_call(triton.jit(calls_helper)))
    assert len(helpers) == 2, "the helper counts too"


SYMBOLIC = {
    "relation of sizes": ((add, [x(4, 6), x(4, 6)]), (lambda a, b: a.sum() + b.sum(), [x(4, 6), x(5, 7)])),
    "size it is seen at": ((torch.sin, [x(4, 6)]), (torch.sin, [x(40, 6)])),
    "stride": DIFFERENT["stride"],
    "storage offset": DIFFERENT["storage offset"],
}


@pytest.mark.parametrize(("one", "other"), SYMBOLIC.values(), ids=SYMBOLIC)
def test_dynamic_pieces_that_differ_have_different_keys(one, other):
    assert key(*one, tracing="symbolic") != key(*other, tracing="symbolic")
    assert key(*one, tracing="symbolic") == key(*one, tracing="symbolic") != key(*one)


@contextmanager
def temporarily_set(read, write, value):
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


def matmul_flag(name):
    matmul = torch.backends.cuda.matmul
    return temporarily_set(
        lambda: getattr(matmul, name), lambda value: setattr(matmul, name, value), not getattr(matmul, name)
    )


AROUND = {
    "an Inductor config": lambda: inductor_config.patch(max_fusion_size=7),
    "a nested Inductor config": lambda: inductor_config.patch({"cpp.simdlen": 256}),
    "threads": lambda: temporarily_set(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1),
    "float32 precision": lambda: temporarily_set(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "float16 reductions": lambda: matmul_flag("allow_fp16_reduced_precision_reduction"),
    "bfloat16 reductions": lambda: matmul_flag("allow_bf16_reduced_precision_reduction"),
    "deterministic mode": lambda: temporarily_set(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, value=True
    ),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_settings_that_affect_the_code_change_the_key(around):
    before = key(torch.sin, [x()])
    with around():
        assert key(torch.sin, [x()]) != before
    assert key(torch.sin, [x()]) == before


def test_another_torch_and_the_regions_own_config_change_the_key(monkeypatch):
    before = key(torch.sin, [x()])
    configured = [key(torch.sin, [x()], {"max_fusion_size": size}) for size in (7, 8)]
    assert len({before, *configured}) == 3
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    assert key(torch.sin, [x()]) != before


IN_ITS_ENVIRONMENT = """
import dataclasses, json
import torch._inductor.config as inductor_config
from regional_explorer.torch_api.torch_config import settings_text
from regional_explorer.torch_api.torch_config import Settings
with dataclasses.replace(Settings.now(), inductor={}).in_force():
    plain = settings_text(), inductor_config.max_autotune
print(json.dumps([settings_text(), *plain]))
"""


def test_defaults_that_environment_variables_set_are_in_the_key():
    names = ("TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_FREEZING", "TORCHINDUCTOR_CPP_WRAPPER")
    without_effect = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "CXX": "/usr/bin/c++"}
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    environment = {**dict.fromkeys(names, "1"), **without_effect, **threads}
    there, plain_there, tuned = python(IN_ITS_ENVIRONMENT, env=environment).json
    assert plain_there == settings_text() != there
    assert not tuned
    with inductor_config.patch(max_autotune=True, freezing=True, cpp_wrapper=True):
        assert there == settings_text()


REOPENED = """
import json, sys
import regional_explorer as rx
from tests.shared import programs
ex = rx.explore(programs.textbook, programs.pair(grad=False))
ex.configure("middle", {"max_fusion_size": int(sys.argv[1])})
ex.compile()
print(json.dumps([ex.partitions.artifact.tolist(), ex.partitions.cache.tolist()]))
"""


@pytest.mark.compiles
def test_a_reopened_notebook_compiles_warm_and_to_the_same_keys():
    limit = 1000 + time.time_ns() % 1_000_000_000  # another in each run, so in no cache; it changes no code
    (keys, first), again = (python(REOPENED, str(limit)).json for _ in range(2))
    assert first == ["cold"]
    assert again == [keys, ["warm"]]
