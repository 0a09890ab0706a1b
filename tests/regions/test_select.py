"""Choosing nodes: marks in the source, modules, lines, ops and names."""

import collections
import functools
import re

import pytest
import torch
from torch import nn
from torch.fx.traceback import annotate

import regional_explorer as rx
from regional_explorer.capture.reachable import module_names, reach
from regional_explorer.errors import PlanError, SelectorError, UnknownRegionError
from regional_explorer.record.graph import equal_layers
from regional_explorer.regions.select import module_glob
from tests.shared import programs
from tests.shared.work import calls


def member_names(ex, region, graph="0/forward"):
    return list(ex.session.members.get(region, {}).get(graph, ()))


def named_sequence(**modules):
    """Return a module that calls the given modules one after the other."""
    return nn.Sequential(collections.OrderedDict(modules))


def test_a_plan_may_have_no_region(ex):
    assert ex.regions.empty
    assert ex.partitions.empty
    assert "ex.mark" in repr(ex)


LOSS = programs.Stack.forward.__code__.co_firstlineno + 3
GELUS = ["gelu", "gelu_1", "gelu_2"]
PICKED = [
    ({"modules": "layers.*.up"}, ["t", "addmm", "t_2", "addmm_2", "t_4", "addmm_4"], 3),
    ({"modules": "**.up"}, ["t", "addmm", "t_2", "addmm_2", "t_4", "addmm_4"], 3),
    ({"nodes": ["primals_1", "gelu"]}, ["gelu"], 1),  # nodes that no region can have are ignored
    *(({"ops": pattern}, GELUS, 3) for pattern in ("gelu", "aten.gelu", "aten.gelu*", "gelu.default", "gel*")),
    *(({"lines": lines}, ["pow_1", "mean"], 1) for lines in ("Stack.forward:4", f"programs.py:{LOSS}", f"{LOSS}")),
    *(({"lines": lines, "innermost": True}, ["pow_1", "mean"], 1) for lines in ("forward:4", f"{LOSS - 1}-{LOSS}")),
]


@pytest.mark.parametrize(("selectors", "nodes", "partitions"), PICKED)
def test_selectors_match_nodes(ex, selectors, nodes, partitions):
    ex.mark("r", **selectors)
    assert member_names(ex, "r") == nodes
    assert ex.partitions.query("graph == '0/forward'").shape[0] == partitions


def test_each_makes_one_region_per_module(ex):
    ex.mark("layer", modules="layers.*", each=True).configure("layer[layers.0]", {"max_fusion_size": 4})
    assert [region.name for region in ex.plan.regions] == [f"layer[layers.{index}]" for index in range(3)]
    plan = ex.plan
    assert ex.mark("layer", modules="layers.0", each=True).plan == plan
    ex.plan = rx.Plan()
    ex.mark("layer", modules="layers.*", only=["0/forward:gelu", "0/forward:gelu_2"], each=True)
    assert {region.name: member_names(ex, region.name) for region in ex.plan.regions} == {
        "layer[layers.0]": ["gelu"],
        "layer[layers.2]": ["gelu_2"],
    }


def test_marking_again_adds_and_the_later_mark_wins(ex):
    ex.mark("act", ops="aten.gelu*").mark("act", ops="aten.pow*").mark("one", nodes="0/forward:gelu_1")
    assert (member_names(ex, "one"), member_names(ex, "act")) == (["gelu_1"], ["gelu", "gelu_2", "pow_1"])


@pytest.mark.parametrize(
    ("glob", "matched"),
    [
        ("layers.[0-1].up", {"layers.0.up", "layers.1.up"}),
        ("layers.[!0].up", {"layers.1.up", "layers.2.up"}),
        ("layers?0.up", set()),
        ("layers[!x]0.up", set()),
        ("layers.[2-0].up", set()),
        ("layers.[0", {"layers.[0"}),
    ],
)
def test_globs_stay_within_a_level(glob, matched):
    paths = {"layers.0.up", "layers.1.up", "layers.2.up", "layers.[0"}
    assert {path for path in paths if module_glob(glob).fullmatch(path)} == matched


@pytest.mark.parametrize("pattern", ["*", "**", "?*"])
def test_a_star_means_the_modules_below_the_root(pattern):
    class Model(nn.Sequential):
        def forward(self, x):
            return super().forward(x) + 1

    model = Model(nn.ReLU(), nn.Tanh())
    ex = rx.explore(lambda x: model(x) * 1, (torch.ones(3),))
    ex.mark("child", modules=pattern, each=True)
    assert {name: graphs["0/inference"] for name, graphs in ex.session.members.items()} == {
        "child[0]": ("relu",),
        "child[1]": ("tanh",),
    }
    ex.mark("children", modules=pattern)
    assert member_names(ex, "children", "0/inference") == ["relu", "tanh"]
    assert len(ex.partitions) == 2


REFUSED = [
    ({}, "Say which ops: give modules="),
    ({"modules": "*.up"}, r"modules:\*.up matches no operation"),
    (
        {"modules": "*up"},
        r"'\*' stays within one level of the path, '\*\*' does not: '\*\*up' matches layers\.\*\.up\.",
    ),
    ({"modules": "layers.0.ups"}, r"layers.0.up"),
    ({"modules": ["layers.0", "layers.7"]}, r"modules:layers.7 matches no operation"),
    ({"modules": "model.decoder.up"}, r"Examples of modules: layers\.\*\.up\."),
    ({"modules": "layers.*.ups"}, r"Did you mean 'layers\.\*\.up'"),
    ({"modules": "model.layers.*.up"}, r"Did you mean 'layers\.\*\.up'"),
    ({"modules": "layers.1.ups"}, r"Did you mean 'layers\.1\.up' or 'layers\.\*\.up'"),
    ({"modules": "**.ups"}, r"Examples of modules: .*layers\.\*\.up"),
    ({"modules": "up"}, r"Did you mean .*'layers\.\*\.up'|Examples of modules: layers\.\*\.up\."),
    ({"ops": "aten.gelo.default"}, r"aten.gelu"),
    ({"ops": "torch.gelu"}, r"Did you mean 'torch._C._nn.gelu'"),
    ({"nodes": ["gelu", "0/forward:gelu_7"]}, r"nodes:0/forward:gelu_7 .* Did you mean '0/forward:gelu"),
    ({"nodes": "primals_1"}, "It is an input"),
    (
        {"modules": "layers.*", "only": ["gelu", "gelu_7"]},
        r"only: no operation of this call is called 'gelu_7'\. Did you mean 'gelu",
    ),
    ({"lines": "forward"}, "not a line range"),
    ({"lines": "9-3"}, "Did you mean 3-9"),
    ({"lines": "9000-9001"}, r"matches no operation of this call. Examples of lines: .*\b\d+\b"),
    ({"lines": "Stack.forward:40"}, r"lines:Stack.forward:40 .* Did you mean 'Stack.forward:4'"),
    *(({"ops": bad}, "give a pattern, or a list of patterns") for bad in (3, [], "", ["a", 3])),
    *(
        ({"ops": "aten.gelu*", "each": True, **other}, "each=True makes one region per module: give modules= and no")
        for other in ({}, {"modules": "layers.*"})
    ),
]


@pytest.mark.parametrize(("selectors", "message"), REFUSED)
def test_empty_selector_is_refused_with_suggestions(ex, selectors, message):
    with pytest.raises(SelectorError, match=message):
        ex.mark("x", **selectors)
    assert not ex.plan.regions


@pytest.mark.parametrize("pattern", ["layers.*.ups", "*up", "decoder.layers.*.up", "up", "layers.*.*.up", "layer.*.up"])
def test_equal_layers_are_suggested_by_one_glob(ex, pattern):
    with pytest.raises(SelectorError) as refused:
        ex.mark("x", modules=pattern)
    assert "layers.*.up" in str(refused.value)
    assert not re.search(r"layers\.\d", str(refused.value))


def test_layers_of_different_classes_are_suggested_by_path():
    ex = rx.explore(nn.Sequential(nn.ReLU(), nn.Tanh(), nn.ReLU()), (torch.ones(3),))
    with pytest.raises(SelectorError, match=r"Examples of modules: 0, 1, 2\."):
        ex.mark("x", modules="layers.*")


def test_a_glob_keeps_the_index_that_separates_classes():
    assert equal_layers({"a.0.mlp.0": "L", "a.0.mlp.1": "G", "a.1.mlp.0": "L", "a.1.mlp.1": "G", "a.0": "B"}) == {
        "a.*.mlp.0": ["a.0.mlp.0", "a.1.mlp.0"],
        "a.*.mlp.1": ["a.0.mlp.1", "a.1.mlp.1"],
        "a.0": ["a.0"],
    }
    assert equal_layers({"0": "A", "1": "B", "2": "A"}) == {"0": ["0"], "1": ["1"], "2": ["2"]}


def test_a_path_with_glob_characters_selects_that_module():
    acts = {"a[0]": nn.ReLU(), "a0": nn.Tanh(), "x*": nn.Sigmoid(), "xy": nn.GELU()}
    ex = rx.explore(named_sequence(acts=named_sequence(**acts)), (torch.ones(3),))
    found = {"acts.a[0]": "relu", "acts.a0": "tanh", "acts.x*": "sigmoid", "acts.xy": "gelu"}
    for path, op in found.items():
        assert member_names(ex.mark("r", modules=path), "r", "0/inference") == [op]
        ex.unmark("r")
    ex.mark("r", modules="acts.*", each=True)
    members = {name: graphs["0/inference"] for name, graphs in ex.session.members.items()}
    assert members == {f"r[{path}]": (op,) for path, op in found.items()}
    ex.plan = rx.Plan()
    assert member_names(ex.mark("r", modules="acts.a*"), "r", "0/inference") == ["relu", "tanh"]


class BreakingNorms(nn.Module):
    """Batch norms that read a counter's value, which breaks the graph."""

    def __init__(self):
        super().__init__()
        self.up, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)
        self.down = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))

    def forward(self, x):
        x = self.up(x)
        x = self.norm(x)
        return self.down(x).sin()


def test_the_error_of_marking_an_eager_module_names_the_break(tmp_path):
    ex = rx.explore(BreakingNorms(), (torch.randn(8, 4),))
    first = next(item.stack[-1] for item in ex.session.breaks)
    for pattern, (line, module, broken) in {
        "norm": (3, "norm", "norm"),
        "n*m": (3, "norm", "norm"),
        "down": (4, "down.0", "down.1"),
        "down.1": (4, "down.1", "down.1"),
    }.items():
        with pytest.raises(
            SelectorError, match=rf"Ops of module '{module}' \(\w+\) run eagerly, in no graph"
        ) as raised:
            ex.mark("r", modules=pattern)
        called = rf"called at \S+:{first.def_line + line - 1} in forward"
        where = rf"module '{broken}' \(BatchNorm1d\), at batchnorm.py:\d+ in forward, {called}"
        assert re.search(f"the graph broke in {where}: Unsupported Tensor.item", str(raised.value))
    with pytest.raises(SelectorError, match=rf"the graph broke .*called at \S+:{first.line} in forward"):
        ex.mark("r", lines="BreakingNorms.forward:3")
    with pytest.raises(SelectorError, match=r"matches no operation of this call. Examples of modules: up"):
        ex.mark("r", modules="uq")
    ex.plan = programs.plan_of(r="norm")
    (empty,) = [found for found in ex.diagnostics if found.code == "region-empty"]
    assert "match nothing in this call. Ops of module 'norm' (BatchNorm1d) run eagerly" in empty.message
    assert rx.load(ex.save(tmp_path / "session.json")).session.breaks == ex.session.breaks


def test_a_break_without_user_lines_is_located_in_torchs_code():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))
    with pytest.raises(rx.CaptureError, match=r"at batchnorm.py:\d+ in forward: Unsupported Tensor.item"):
        rx.explore(model, (torch.randn(8, 4),))


@pytest.mark.parametrize(
    "bad", [3, "", " ", "a\nb", "a\r", "tab\t", "\x1b[31mred", "line\u2028separator", "left\u202eright"]
)
def test_invalid_name_is_refused(ex, bad):
    refused = pytest.raises(PlanError, match="name must be a non-blank string")
    with refused:
        ex.mark(bad, ops="aten.gelu*")
    with refused:
        ex.mark("x", ops="aten.gelu*").rename("x", bad)
    with refused:
        ex.mark("y", ops="aten.gelu*").merge("x", "y", name=bad)
    with refused:
        rx.region(bad)
    with refused:
        rx.Region(bad, ex.plan["x"].selectors)


def test_line_numbers_that_two_files_have_are_refused(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / f"{name}_file.py").write_text(f"import torch\n\ndef {name}(x):\n    return torch.relu(x) + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    one, two = (__import__(f"{name}_file") for name in ("one", "two"))
    ex = rx.explore(lambda x: two.two(one.one(x)), (torch.ones(3),))
    with pytest.raises(SelectorError, match=r"in 2 files. Name one of them: one_file.py:4 or two_file.py:4"):
        ex.mark("x", lines="4")
    ex.mark("x", lines="two_file.py:4")


def test_a_pattern_of_backward_ops_selects_their_forward_ops():
    def members_of(ex, *patterns):
        found = ex.mark("r", ops=patterns).session.members["r"]["0/dynamo"]
        ex.unmark("r")
        return found

    x = torch.ones(3, requires_grad=True)
    # The backward of the sine is a cosine; the backward of the cosine has a sine, as the forward has.
    both = rx.explore(lambda x: x.sin().exp().cos().tanh(), (x,))
    assert members_of(both, "aten.cos*") == ("cos",)
    assert members_of(both, "aten.sin*", "aten.exp") == ("sin", "exp")
    both.mark("r", ops="aten.sin")
    with pytest.raises(SelectorError, match=r"matches no operation of the region. Did you mean 'aten.sin.default'"):
        both.carve("r", ops="aten.cos.default")
    ex = rx.explore(lambda x: x.exp().relu().sin().tanh(), (x,))
    assert members_of(ex, "aten.threshold_backward") == ("relu",)
    assert members_of(ex, "threshold_backward", "tanh") == ("relu", "tanh")
    assert members_of(ex, "aten.cos.default") == ("sin",)


def ops_named_like_others(x):
    sin = x * 2
    return sin.cos().sin()


def test_a_short_name_of_several_ops_is_refused():
    ex = rx.explore(ops_named_like_others, (torch.ones(3),))
    message = "Several nodes are called 'sin'. Say which: 0/dynamo:sin, 0/inference:sin"
    for selector in ({"nodes": "sin"}, {"nodes": ["cos", "sin"]}, {"ops": "*", "only": "sin"}):
        with pytest.raises(SelectorError, match=message):
            ex.mark("r", **selector)
    ex.mark("r", nodes="0/inference:sin")
    assert member_names(ex, "r", "0/inference") == ["sin"]
    ex.mark("all", ops="*")
    with pytest.raises(SelectorError, match=message):
        ex.carve("all", nodes="sin")
    ex.carve("all", nodes=["0/dynamo:sin", "cos"])
    assert member_names(ex, "all", "0/inference") == ["sin"]
    # The short name of one op of the region is enough.
    ex.plan = rx.Plan()
    ex.mark("r", nodes=["0/inference:sin", "0/inference:cos"]).carve("r", nodes="sin")
    assert member_names(ex, "r", "0/inference") == ["cos"]
    ex.uncarve("r", nodes="sin")
    assert member_names(ex, "r", "0/inference") == ["cos", "sin"]


def test_regions_are_edited_by_name(ex):
    ex.mark("x", ops="aten.gelu*")
    ex.rename("x", "y").disable("y")
    assert ex.regions[["region", "enabled", "state"]].to_numpy().tolist() == [["y", False, "eager"]]
    ex.enable("y")
    assert ex.regions.state.tolist() == ["stale"]
    with pytest.raises(UnknownRegionError, match=r"Did you mean 'y'|Regions: y"):
        ex.unmark("z")
    ex.mark("z", ops="aten.pow*")
    with pytest.raises(PlanError, match="exists already"):
        ex.rename("z", "y")


def test_marking_never_traces_again(ex, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("traced again"))
    frames = len(ex.live.capture.frames)
    ex.mark("x", modules="layers.1")
    ex.configure("x", {"max_fusion_size": 4})
    assert len(ex.live.capture.frames) == frames


class HeldInSlot:
    __slots__ = ("__model",)

    def __init__(self, model):
        self.__model = model

    def run(self, x):
        return self.__model(x)


class HeldByClass:
    model = programs.Layer()

    @classmethod
    def run(cls, x):
        return cls.model(x)


def test_modules_are_found_wherever_they_are():
    model, holder = HeldByClass.model, nn.Module()
    holder.unregistered = [model]
    container = {"deep": collections.deque([{"c": [model]}])}
    ways = [
        *((lambda model: model, (model,)), (model.forward, ()), (functools.partial(lambda m, x: m(x), model), ())),
        *((lambda x: model(x) + 0, ()), (HeldInSlot(model).run, ()), (HeldByClass.run, ()), (holder, ())),
        (lambda held, x: held["deep"][0]["c"][0](x), (container, torch.randn(4, 16))),
    ]
    for fn, args in ways:
        assert "up" in module_names(reach(fn, args).roots)[id(model.up)], fn
    assert member_names(rx.explore(*ways[-1]).mark("up", modules="up"), "up")


def test_modules_of_several_models_with_equal_paths_stay_apart():
    student, teacher = programs.Stack(depth=2), programs.Stack(depth=2)
    ex = rx.explore(lambda x: student(x) - teacher(x), (torch.randn(4, 16),), grad=False)
    norm = ex.session.graphs[0].ops[0].modules[-1]
    assert (norm.path, norm.aliases) == ("student.layers.0.norm", ("layers.0.norm",))
    for path, count in (
        ("layers.0", 2),
        ("layers.*", 4),
        ("layers", 2),
        ("*", 2),
        ("student.layers.*", 2),
        ("teacher", 1),
    ):
        ex.plan = rx.Plan()
        ex.mark("r", modules=path)
        assert len(ex.partitions) == count, path
    ex.plan = rx.Plan()
    ex.mark("r", modules="layers", each=True)
    assert [region.name for region in ex.plan.regions] == ["r[student.layers]", "r[teacher.layers]"]
    ex.plan = rx.Plan()
    ex.mark("r", modules="layers.1").split("r")
    patterns = [region.selectors[0].patterns for region in ex.plan.regions]
    assert patterns == [("student.layers.1",), ("teacher.layers.1",)]


def test_all_names_of_shared_module_match():
    tied = nn.Linear(4, 4)
    found = rx.explore(named_sequence(first=tied, act=nn.ReLU(), second=tied), (torch.randn(2, 4),))
    for path in ("first", "second"):
        assert found.mark("x", modules=path).partitions.query("graph == '0/forward'").shape[0] == 2
        found.unmark("x")
    model = programs.Layer()
    model.owner = [nn.Sequential(model)]
    assert member_names(rx.explore(model, (torch.randn(4, 16),)).mark("up", modules="up"), "up")


class Shared(nn.Module):
    """Equal blocks whose forward is traced once for all."""

    def __init__(self):
        super().__init__()
        self.up, self.act = nn.Linear(8, 8), nn.GELU()

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return self.act(self.up(x)) + x


def test_mark_on_caller_of_shared_body_marks_that_call_only():
    two = nn.Sequential(Shared(), Shared()), nn.Sequential(Shared(), Shared())
    first, wrap = Shared(), nn.Sequential(Shared())  # calls of the same body from two depths
    models = (
        named_sequence(left=two[0], right=two[1]),
        named_sequence(first=first, wrap=wrap),
        named_sequence(wrap=wrap, first=first),
    )
    towers, *deep = (rx.explore(model, (torch.randn(4, 8),), grad=False) for model in models)

    def mark_path(ex, path):
        ex.plan = rx.Plan()
        members = ex.mark("r", modules=path).session.members["r"]
        return members, "region-merged" in [found.code for found in ex.diagnostics]

    inside = {"0/dynamo/subgraph_0": ("gelu",), "0/inference/repeated_subgraph0": ("gelu",)}
    for ex, *paths in ((towers, "left.0.act", "right.1.act", "right.*.act"), *((ex, "first.act") for ex in deep)):
        for path in paths:
            assert mark_path(ex, path)[0] == inside, path
    for ex in deep:
        assert list(mark_path(ex, "wrap.0.act")[0].values()) == [("gelu",)] * 2
    callers = {"left.0": 1, "right.1": 1, "left.*": 2, "right": 1}
    for ex, partitions in ((towers, callers), *((ex, {"first": 1, "wrap.0": 1, "wrap": 1}) for ex in deep)):
        for path, number in partitions.items():
            members, merged = mark_path(ex, path)
            assert not merged
            assert all("subgraph" not in graph for graph in members), path
            assert len(ex.partitions) == number
    assert mark_path(towers, "right.1.act")[1]
    towers.compile()
    x = torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(towers.compiled(x), towers.live.call.fn(x))


def test_marks_without_an_id_become_one_region_if_configs_agree():
    def blocks(x, one, two):
        with annotate({"compile_with_inductor": {"inductor_configs": one}}):
            x = x.sin() + 1
        x = x.exp()
        with annotate({"compile_with_inductor": {"inductor_configs": two}}):
            x = x.cos() + 2
        return x

    small, large = {"max_fusion_size": 1}, {"max_fusion_size": 2}
    agreed, apart = (rx.explore(blocks, (torch.randn(3), small, other)) for other in (dict(small), large))
    assert agreed.regions.region.tolist() == ["default"]
    assert not agreed.diagnostics
    assert {region.name: region.config for region in apart.plan.regions} == {"default": small, "default-2": large}


@pytest.mark.parametrize("kind", ["modules", "lines", "ops", "nodes", "subgraphs"])
def test_long_patterns_are_refused_quickly_with_a_short_error(ex, kind):
    for pattern in ("*a" * 500_000, "f:" + "1" * 1_000_000):

        def mark(pattern=pattern):
            with pytest.raises(SelectorError, match="characters; at most 1000") as caught:
                ex.mark("r", **{kind: pattern})
            assert len(str(caught.value)) < 300

        assert calls(mark) < 5000
    with pytest.raises(SelectorError) as caught:
        ex.mark("r", **{kind: ["f:1" + "1" * 900] * 1000})
    assert len(str(caught.value)) < 600


def test_names_of_marks_in_the_source_may_be_anything():
    def f(x):
        with annotate({"compile_with_inductor": {"inductor_region": "a\nb"}}), rx.region("größer als vorher"):
            x = x.sin()
        with annotate({"compile_with_inductor": {"inductor_region": "a\nb"}}):
            return x.cos()

    assert [region.name for region in rx.explore(f, (torch.ones(3),)).plan.regions] == ["größer als vorher", r"'a\nb'"]


def test_a_name_is_suggested_once():
    ex = rx.explore(lambda x: x.softmax(-1), (torch.randn(4, 8),), tracing=rx.Tracing(decompositions=True))
    with pytest.raises(SelectorError, match=r"Did you mean 'softmax'\?$"):
        ex.mark("r", ops="aten._softmax*")


def test_the_error_says_how_to_mark_the_ops_of_a_module_without_submodules():
    ex = rx.explore(torch.nn.GELU(), (torch.randn(3),))
    with pytest.raises(rx.SelectorError, match=r"The call runs no op inside a submodule: ops='\*' marks all ops"):
        ex.mark("r", modules="*")
    assert len(ex.mark("r", ops="*").partitions) == 1
