"""Choosing nodes: marks in the source, modules, lines, ops and names."""

import collections
import functools
import importlib

import pytest
import torch
from torch import nn
from torch.fx.traceback import annotate

import regional_explorer as rx
from regional_explorer.errors import PlanError, SelectorError, UnknownRegionError
from regional_explorer.regions.select import module_glob
from tests.shared import programs
from tests.shared.work import calls


@pytest.fixture(scope="module")
def stack():
    return rx.explore(programs.Stack(), (torch.randn(4, 16),))


@pytest.fixture
def ex(stack):
    stack.plan = rx.Plan()
    return stack


def names(ex, region, graph="0/forward"):
    return list(ex.session.members.get(region, {}).get(graph, ()))


def test_no_region_is_a_state(ex):
    assert ex.regions.empty
    assert ex.partitions.empty
    assert "ex.mark" in repr(ex)


def test_modules_match_every_instance(ex):
    ex.mark("mlp", modules="layers.*.up")
    ops = [ex.session.graph("0/forward").by_name()[name].op for name in names(ex, "mlp")]
    assert ops == ["t", "addmm"] * 3
    assert ex.partitions.query("graph == '0/forward'").shape[0] == 3
    assert ex.session.members["mlp"]["0/backward"]


def test_two_stars_go_through_all_levels(ex):
    ex.mark("x", modules="**.up")
    assert ex.partitions.query("graph == '0/forward'").shape[0] == 3


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


def test_each_makes_one_region_per_module(ex):
    ex.mark("layer", modules="layers.*", each=True)
    assert [region.name for region in ex.plan.regions] == [f"layer[layers.{index}]" for index in range(3)]


def test_each_keeps_what_is_set_when_marked_again(ex):
    ex.mark("layer", modules="layers.*", each=True).configure("layer[layers.0]", {"max_fusion_size": 4})
    plan = ex.plan
    assert ex.mark("layer", modules="layers.0", each=True).plan == plan


def test_each_takes_only_the_nodes_it_is_given(ex):
    ex.mark("layer", modules="layers.*", only=["0/forward:gelu", "0/forward:gelu_2"], each=True)
    assert {region.name: names(ex, region.name) for region in ex.plan.regions} == {
        "layer[layers.0]": ["gelu"],
        "layer[layers.2]": ["gelu_2"],
    }


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
    assert names(ex, "children", "0/inference") == ["relu", "tanh"]
    assert len(ex.partitions) == 2


def test_instances_of_neighbouring_modules_stay_apart(ex):
    ex.mark("layers", modules="layers.*")
    forward = ex.partitions.query("graph == '0/forward'")
    assert forward.shape[0] == 3
    assert forward.ops.nunique() == 1


def test_nodes_that_no_region_can_have_may_be_among_others(ex):
    ex.mark("x", nodes=["primals_1", "gelu"])
    assert names(ex, "x") == ["gelu"]


REFUSED = [
    ({}, "Say which ops: give modules="),
    ({"modules": "*.up"}, r"modules:\*.up matches no operation"),
    ({"modules": "*up"}, r"'\*' stays within one level of the path, '\*\*' does not: '\*\*up' matches "),
    ({"modules": "layers.0.ups"}, r"layers.0.up"),
    ({"modules": ["layers.0", "layers.7"]}, r"modules:layers.7 matches no operation"),
    ({"modules": "model.decoder.up"}, r"Examples of modules: layers.0.up, layers.1.up"),
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


@pytest.mark.parametrize(("selectors", "says"), REFUSED)
def test_what_picks_nothing_is_refused_with_names_that_are_near(ex, selectors, says):
    with pytest.raises(SelectorError, match=says):
        ex.mark("x", **selectors)
    assert not ex.plan.regions


def test_a_path_with_characters_of_globs_means_that_module():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.acts = nn.ModuleDict({"a[0]": nn.ReLU(), "a0": nn.Tanh(), "x*": nn.Sigmoid(), "xy": nn.GELU()})

        def forward(self, x):
            for act in self.acts.values():
                x = act(x)
            return x

    ex = rx.explore(Named(), (torch.ones(3),))
    found = {"acts.a[0]": "relu", "acts.a0": "tanh", "acts.x*": "sigmoid", "acts.xy": "gelu"}
    for path, op in found.items():
        assert names(ex.mark("r", modules=path), "r", "0/inference") == [op]
        ex.unmark("r")
    ex.mark("r", modules="acts.*", each=True)
    members = {name: graphs["0/inference"] for name, graphs in ex.session.members.items()}
    assert members == {f"r[{path}]": (op,) for path, op in found.items()}
    ex.plan = rx.Plan()
    assert names(ex.mark("r", modules="acts.a*"), "r", "0/inference") == ["relu", "tanh"]


class Averaging(nn.Module):
    """Batch norms that read a counter's value, which breaks the graph."""

    def __init__(self):
        super().__init__()
        self.up, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)
        self.down = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))

    def forward(self, x):
        x = self.up(x)
        x = self.norm(x)
        return self.down(x).sin()


def test_a_module_that_a_graph_break_made_run_eagerly_says_so_and_where(tmp_path):
    ex = rx.explore(Averaging(), (torch.randn(8, 4),))
    lines = {"norm": 3, "n*m": 3, "down": 4, "down.0": 4, "down.1": 4}
    first = next(item.stack[-1] for item in ex.session.breaks)
    for pattern, line in lines.items():
        number = first.def_line + line - 1
        module = {"n*m": "norm", "down.0": "down"}.get(pattern, pattern)
        with pytest.raises(
            SelectorError, match=rf"The graph broke in module '{module}' at \S+:{number} in forward"
        ) as told:
            ex.mark("r", modules=pattern)
        assert "where it runs eagerly: Unsupported Tensor.item() call" in str(told.value)
    with pytest.raises(SelectorError, match=rf"The graph broke at \S+:{first.line} in forward, where it runs eagerly"):
        ex.mark("r", lines="Averaging.forward:3")
    with pytest.raises(SelectorError, match=r"matches no operation of this call. Examples of modules: up"):
        ex.mark("r", modules="uq")
    ex.plan = rx.Plan((rx.Region("r", (rx.Selector("modules", ("norm",)),)),))
    (empty,) = [found for found in ex.diagnostics if found.code == "region-empty"]
    assert "match nothing in this call. The graph broke in module 'norm' at" in empty.message
    assert rx.load(ex.save(tmp_path / "session.json")).session.breaks == ex.session.breaks


def test_a_break_in_torchs_own_code_alone_has_its_line():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))
    with pytest.raises(rx.CaptureError, match=r"- batchnorm.py:\d+ in forward: Unsupported Tensor.item"):
        rx.explore(model, (torch.randn(8, 4),))


@pytest.mark.parametrize(
    "bad", [3, "", " ", "a\nb", "a\r", "tab\t", "\x1b[31mred", "line\u2028separator", "left\u202eright"]
)
def test_what_is_no_name_is_refused(ex, bad):
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


def test_an_id_that_is_no_name_becomes_one():
    def f(x):
        with annotate({"compile_with_inductor": {"inductor_region": "a\nb"}}):
            return x.sin()

    assert [region.name for region in rx.explore(f, (torch.ones(3),)).plan.regions] == [r"'a\nb'"]


def test_a_region_is_marked_inside_a_traced_function():
    def f(x):
        with rx.region("größer als vorher"):
            return x.sin()

    assert rx.explore(f, (torch.ones(3),)).plan.regions[0].name == "größer als vorher"


def test_lines_count_from_the_def(ex):
    ex.mark("body", lines="forward:2")
    assert len(names(ex, "body")) > 10


@pytest.mark.parametrize("lines", ["forward:4", "Stack.forward:4", "programs.py:{}", "{}"])
def test_lines_are_of_a_function_a_method_or_a_file(ex, lines):
    line = next(n.source.line for n in ex.session.graphs[0].ops if "square" in n.source.text)
    ex.mark("loss", lines=lines.format(line), innermost=lines == "forward:4")
    assert names(ex, "loss") == ["pow_1", "mean"]
    ex.mark("all", lines=f"1-{line}")


def test_lines_count_from_the_def_of_the_file_as_it_was_reloaded(tmp_path, monkeypatch):
    file = tmp_path / "reloaded_step.py"
    file.write_text("def step(x):\n    y = 1\n    return x.sin()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("reloaded_step")
    rx.explore(module.step, (torch.ones(3),)).mark("r", lines="step:3")
    # The line of the op stays what it was, its function begins one line further down.
    file.write_text("# one line more\ndef step(x):\n    return x.sin()\n")
    importlib.reload(module)
    ex = rx.explore(module.step, (torch.ones(3),)).mark("r", lines="step:2")
    assert names(ex, "r", "0/inference") == ["sin"]


def test_line_numbers_that_two_files_have_are_refused(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / f"{name}_file.py").write_text(f"import torch\n\ndef {name}(x):\n    return torch.relu(x) + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    one, two = (__import__(f"{name}_file") for name in ("one", "two"))
    ex = rx.explore(lambda x: two.two(one.one(x)), (torch.ones(3),))
    with pytest.raises(SelectorError, match=r"in 2 files. Say which one: one_file.py:4 or two_file.py:4"):
        ex.mark("x", lines="4")
    ex.mark("x", lines="two_file.py:4")


@pytest.mark.parametrize("pattern", ["gelu", "aten.gelu", "aten.gelu*", "gelu.default", "gel*"])
def test_ops_have_short_names(ex, pattern):
    ex.mark("act", ops=pattern)
    assert names(ex, "act") == ["gelu", "gelu_1", "gelu_2"]


def test_the_later_mark_wins(ex):
    ex.mark("act", ops="aten.gelu*").mark("one", nodes="0/forward:gelu_1")
    assert (names(ex, "one"), names(ex, "act")) == (["gelu_1"], ["gelu", "gelu_2"])


def backward_cosine(x):
    """The backward of the sine is a cosine; that of the cosine has a sine, which the forward has too."""
    return x.sin().exp().cos().tanh()


def test_a_pattern_that_ops_of_the_forward_match_means_the_forward():
    ex = rx.explore(backward_cosine, (torch.ones(3, requires_grad=True),))
    ex.mark("r", ops="aten.cos*")
    assert ex.session.members["r"]["0/dynamo"] == ("cos",)
    ex.unmark("r").mark("r", ops=["aten.sin*", "aten.exp"])
    assert ex.session.members["r"]["0/dynamo"] == ("sin", "exp")


def test_a_pattern_that_only_ops_of_the_backward_match_means_those():
    ex = rx.explore(lambda x: x.exp().relu().sin().tanh(), (torch.ones(3, requires_grad=True),))
    ex.mark("r", ops="aten.threshold_backward")
    assert ex.session.members["r"]["0/dynamo"] == ("relu",)
    ex.unmark("r").mark("r", ops=["threshold_backward", "tanh"])
    assert ex.session.members["r"]["0/dynamo"] == ("relu", "tanh")
    ex.unmark("r").mark("r", ops="aten.cos.default")
    assert ex.session.members["r"]["0/dynamo"] == ("sin",)


def test_an_op_of_the_backward_is_not_suggested_where_it_means_one_of_the_forward():
    ex = rx.explore(backward_cosine, (torch.ones(3, requires_grad=True),))
    ex.mark("r", ops="aten.sin")
    with pytest.raises(SelectorError, match=r"matches no operation of the region. Did you mean 'aten.sin.default'"):
        ex.carve("r", ops="aten.cos.default")


def renamed(x):
    sin = x * 2
    return sin.cos().sin()


def test_a_short_name_of_several_ops_is_refused():
    ex = rx.explore(renamed, (torch.ones(3),))
    message = "Several nodes are called 'sin'. Say which: 0/dynamo:sin, 0/inference:sin"
    for selector in ({"nodes": "sin"}, {"nodes": ["cos", "sin"]}, {"ops": "*", "only": "sin"}):
        with pytest.raises(SelectorError, match=message):
            ex.mark("r", **selector)
    ex.mark("r", nodes="0/inference:sin")
    assert names(ex, "r", "0/inference") == ["sin"]
    ex.mark("all", ops="*")
    with pytest.raises(SelectorError, match=message):
        ex.carve("all", nodes="sin")
    ex.carve("all", nodes=["0/dynamo:sin", "cos"])
    assert names(ex, "all", "0/inference") == ["sin"]


def test_a_short_name_of_one_op_of_the_region_is_enough_to_carve_it():
    ex = rx.explore(renamed, (torch.ones(3),)).mark("r", nodes=["0/inference:sin", "0/inference:cos"])
    ex.carve("r", nodes="sin")
    assert names(ex, "r", "0/inference") == ["cos"]
    ex.uncarve("r", nodes="sin")
    assert names(ex, "r", "0/inference") == ["cos", "sin"]


def test_marking_again_adds(ex):
    ex.mark("x", ops="aten.gelu*").mark("x", ops="aten.pow*")
    assert names(ex, "x") == ["gelu", "gelu_1", "gelu_2", "pow_1"]


def test_edits_by_name(ex):
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


class Slotted:
    __slots__ = ("model",)

    def __init__(self, model):
        self.model = model

    def run(self, x):
        return self.model(x)


class PrivatelySlotted:
    __slots__ = ("__model",)

    def __init__(self, model):
        self.__model = model

    def run(self, x):
        return self.__model(x)


class OfClass:
    model = programs.Layer()

    @classmethod
    def run(cls, x):
        return cls.model(x)


class Unregistered(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.bag = [model]

    def forward(self, x):
        return self.bag[0](x)


def test_modules_are_found_wherever_they_are():
    model = programs.Layer()
    x = torch.randn(4, 16)
    ways = {
        "passed": (lambda m, x: m(x), (model, x)),
        "bound": (model.forward, (x,)),
        "container": (lambda h, x: h["deep"][0](x), ({"deep": [model]}, x)),
        "partial": (functools.partial(lambda m, x: m(x), model), (x,)),
        "closed over": (lambda x: model(x) + 0, (x,)),
        "slots": (Slotted(model).run, (x,)),
        "private slots": (PrivatelySlotted(model).run, (x,)),
        "of a class": (OfClass.run, (x,)),
        "in a list of a module": (Unregistered(model), (x,)),
        "in a deque": (lambda h, x: h[0](x), (collections.deque([model]), x)),
        "far down": (lambda h, x: h["a"][0]["b"][0]["c"][0](x), ({"a": [{"b": [{"c": [model]}]}]}, x)),
    }
    for way, (fn, args) in ways.items():
        found = rx.explore(fn, args).mark("up", modules="up")
        assert names(found, "up"), way


def test_a_module_found_first_keeps_its_paths_beside_what_holds_it():
    model = programs.Layer()
    model.owner = [nn.Sequential(model)]
    found = rx.explore(model, (torch.randn(4, 16),)).mark("up", modules="up")
    assert names(found, "up")


def test_all_names_of_a_shared_module_match():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = self.first

        def forward(self, x):
            return self.second(self.first(x).relu())

    for path in ("first", "second"):
        found = rx.explore(Tied(), (torch.randn(2, 4),)).mark("x", modules=path)
        assert found.partitions.query("graph == '0/forward'").shape[0] == 2


class Shared(nn.Module):
    """Equal blocks whose forward is traced once for all."""

    def __init__(self):
        super().__init__()
        self.up, self.act = nn.Linear(8, 8), nn.GELU()

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return self.act(self.up(x)) + x


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.ModuleList(Shared() for _ in range(2))
        self.right = nn.ModuleList(Shared() for _ in range(2))

    def forward(self, x):
        for block in (*self.left, *self.right):
            x = block(x)
        return x


def test_every_caller_of_a_shared_body_leads_into_it():
    ex = rx.explore(Towers(), (torch.randn(4, 8),), grad=False)
    inside = {"0/dynamo/subgraph_0": ("gelu",), "0/inference/repeated_subgraph0": ("gelu",)}
    for path in ("left.0.act", "right.1.act", "right.*.act"):
        assert ex.mark("act", modules=path).session.members["act"] == inside, path
        ex.unmark("act")
    ex.mark("act", modules="right.1.act").compile()
    assert "region-merged" in [found.code for found in ex.diagnostics]
    x = torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(ex.compiled(x), ex.live.call.fn(x))


@pytest.mark.parametrize(("path", "partitions"), [("left.0", 1), ("right.1", 1), ("left.*", 2), ("right", 1)])
def test_a_mark_on_a_caller_of_a_shared_body_is_of_that_call_alone(path, partitions):
    ex = rx.explore(Towers(), (torch.randn(4, 8),), grad=False).mark("block", modules=path)
    assert all("subgraph" not in graph for graph in ex.session.members["block"])
    assert len(ex.partitions) == partitions
    assert "region-merged" not in [found.code for found in ex.diagnostics]


class Deep(nn.Module):
    """Calls the same body from two depths."""

    def __init__(self, turned):
        super().__init__()
        self.first = Shared()
        self.wrap = nn.Sequential(Shared())
        self.turned = turned

    def forward(self, x):
        for part in (self.wrap, self.first) if self.turned else (self.first, self.wrap):
            x = part(x)
        return x


@pytest.mark.parametrize("turned", [False, True])
def test_callers_at_different_depths_lead_into_a_shared_body(turned):
    ex = rx.explore(Deep(turned), (torch.randn(4, 8),), grad=False)
    for path in ("first.act", "wrap.0.act"):
        assert [names for graph, names in ex.mark("act", modules=path).session.members["act"].items()] == [
            ("gelu",)
        ] * 2
        ex.unmark("act")
    for path in ("first", "wrap.0", "wrap"):
        assert all("subgraph" not in graph for graph in ex.mark("one", modules=path).session.members["one"])
        assert len(ex.partitions) == 1
        ex.unmark("one")


def test_marks_without_an_id_are_one_region_while_their_configs_agree():
    def blocks(x, one, two):
        with annotate({"compile_with_inductor": one}):
            x = x.sin() + 1
        x = x.exp()
        with annotate({"compile_with_inductor": two}):
            x = x.cos() + 2
        return x

    x = torch.randn(3)
    same = {"inductor_configs": {"max_fusion_size": 1}}
    agreed = rx.explore(blocks, (x, same, dict(same)))
    assert agreed.regions.region.tolist() == ["default"]
    assert not agreed.diagnostics
    apart = rx.explore(blocks, (x, same, {"inductor_configs": {"max_fusion_size": 2}}))
    assert apart.regions[["region", "config"]].to_numpy().tolist() == [
        ["default", {"max_fusion_size": 1}],
        ["default-2", {"max_fusion_size": 2}],
    ]
    (found,) = apart.diagnostics
    assert found.code == "config-conflict"
    assert len(found.where) == 2


@pytest.mark.parametrize("kind", ["modules", "lines", "ops", "nodes"])
def test_a_pattern_of_a_megabyte_is_refused_unread(kind):
    ex = rx.explore(programs.textbook, programs.pair())
    for pattern in ("*a" * 500_000, "f:" + "1" * 1_000_000):

        def mark(pattern=pattern):
            with pytest.raises(SelectorError, match="characters; at most 1000") as caught:
                ex.mark("r", **{kind: pattern})
            assert len(str(caught.value)) < 300

        assert calls(mark) < 5000


@pytest.mark.parametrize("kind", ["modules", "lines", "ops", "nodes", "subgraphs"])
def test_what_matches_nothing_is_told_in_short(kind):
    ex = rx.explore(programs.textbook, programs.pair())
    with pytest.raises(SelectorError) as caught:
        ex.mark("r", **{kind: ["f:1" + "1" * 900] * 1000})
    assert len(str(caught.value)) < 600
