"""Graph breaks: where each is, in a hook or a library too, which ops run eagerly after it, and the remedy."""

import functools
import re
from collections import Counter

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.errors import SelectorError
from regional_explorer.record.graph import GraphBreak
from regional_explorer.tables.plan import breaks_table
from tests.shared.checks import codes, only

X = torch.randn(4, 8)


def averaging_net():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=None), nn.ReLU())


def print_hook(_module, _inputs, *_output):
    print("a graph break")


class Printer:
    """A hook as an object; its method is a hook too."""

    def __call__(self, module, inputs, output):
        print("a graph break")

    def method(self, module, inputs, output):
        print("a graph break")


def layers(*hooked, register="register_forward_hook", hook=print_hook):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.ReLU())
    for index in hooked:
        getattr(model[index], register)(hook)
    return model


def explore(model, *args):
    return rx.explore(lambda x: model(x).sin().sum(), args or (X,))


# ------------------------------------------------------------------------------------------------ where, and what helps


def test_the_message_names_module_and_line_of_a_break_in_torch():
    found = only(explore(averaging_net()), "graph-break")
    assert re.search(r"in module '1' \(BatchNorm1d\), at batchnorm\.py:\d+ in forward: Unsupp", found.message)
    assert [line.text for line in found.where] == ["return rx.explore(lambda x: model(x).sin().sum(), args or (X,))"]
    assert "momentum" in found.remedy
    assert "Move this line" not in found.remedy


def test_the_advice_about_a_momentum_helps_and_torchs_hint_does_not():
    assert "graph-break" not in codes(explore(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=0.1))))
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert "graph-break" in codes(explore(averaging_net()))


def test_the_remedy_repeats_torchs_hint_for_a_break_in_a_library():
    adaptive, target = nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 6]), torch.tensor([1, 2, 4, 8])
    found = only(rx.explore(lambda x, y: adaptive(x, y).loss * 2, (X, target)), "graph-break")
    assert re.search(r"in module AdaptiveLogSoftmaxWithLoss, at adaptive\.py:\d+ in forward", found.message)
    assert "outside of it, 5" in found.message, "its own ops are counted, not only the ops of its layers"
    assert "You cannot move this line" in found.remedy
    assert "Torch's own hint: Enable tracing of dynamic shape operators" in found.remedy


@pytest.mark.parametrize(
    ("register", "hook", "kind"),
    [
        ("register_forward_hook", print_hook, "forward hook"),
        ("register_forward_pre_hook", print_hook, "forward pre-hook"),
        ("register_forward_hook", functools.partial(print_hook), "forward hook"),
        ("register_forward_hook", Printer(), "forward hook"),
        ("register_forward_hook", Printer().method, "forward hook"),
    ],
)
def test_a_graph_break_in_hooks_is_reported_with_their_modules(register, hook, kind):
    found = only(explore(layers(0, 1, register=register, hook=hook)), "graph-break")
    assert f"in a {kind} of modules '0' (Linear), '1' (Linear): Failed" in found.message
    assert [line.text for line in found.where] == ['print("a graph break")']
    assert found.remedy.startswith("Remove the hook")
    assert "reorderable_logging_functions" in found.remedy


def test_the_message_names_a_hook_of_all_modules_as_global():
    handle = nn.modules.module.register_module_forward_hook(print_hook)
    try:
        found = only(explore(layers()), "graph-break")
    finally:
        handle.remove()
    assert "in a global forward hook: Failed" in found.message


def test_removing_the_hook_removes_the_break():
    model = layers()
    handle = model[0].register_forward_hook(print_hook)
    assert "graph-break" in codes(explore(model))
    handle.remove()
    assert "graph-break" not in codes(explore(model))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_a_break_in_a_backward_hook_has_no_harmful_hint():
    model = layers(1, register="register_full_backward_hook", hook=lambda *_: None)
    found = only(explore(model), "graph-break")
    assert "in a backward hook of module '1' (Linear), at module.py:" in found.message
    assert found.remedy == "Remove the hook while you explore: handle.remove(), on what registering it returned."


def test_the_message_names_the_users_own_module_of_a_break():
    class Branching(nn.Module):
        def forward(self, x):
            return x.sin() if x.abs().sum() > 0 else x

    found = only(explore(nn.Sequential(nn.Linear(8, 8), Branching())), "graph-break")
    assert "in module '1' (Branching): Data-dependent" in found.message
    assert "torch.where" in found.remedy
    assert "Move this line" not in found.remedy


def test_disabled_function_repeats_torchs_advice():
    @torch.compiler.disable
    def plain(x):
        return x.cos()

    found = only(rx.explore(lambda x: plain(x.sin()).exp(), (X,)), "graph-break")
    assert "Torch's own hint: Remove the `torch.compiler.disable` call" in found.remedy


def test_several_breaks_in_a_line_are_reported_once_with_their_number():
    found = only(rx.explore(lambda x: x.sin().unique().sum() + x.nonzero().sum(), (X,)), "graph-break")
    assert "Dynamo stopped the graph 2 times in this line" in found.message
    assert "_unique2" in found.message
    assert "nonzero" in found.message
    assert "The call has 3 graphs; outside of them, 2 ops run eagerly because of this" in found.message


def test_the_message_of_a_lost_region_names_the_hook():
    model = nn.Identity()
    model.register_forward_hook(print_hook)

    def marked(x):
        with rx.region("r"):
            return model(x)

    advice = "End the block before this call, and begin another after it. Remove the hook"
    found = only(rx.explore(lambda x: marked(x.exp()).sin(), (X,)), "region-lost")
    assert "in a forward hook of module Identity" in found.message
    assert found.remedy.startswith(advice)
    with pytest.raises(rx.CaptureError, match=f"region 'r' .region-lost.(?s:.)*{advice}"):
        rx.explore(marked, (X,))


def test_the_error_names_a_hook_that_breaks_the_whole_call():
    model = nn.Identity()
    model.register_forward_hook(print_hook)
    with pytest.raises(rx.CaptureError, match=r"Remove the hook(?s:.)*in a forward hook of module Identity"):
        rx.explore(model, (X,))


# ------------------------------------------------------------------------------------------------ what runs in no graph


def test_eager_ops_of_a_break_are_counted():
    found = only(explore(averaging_net()), "graph-break")
    assert re.search(r"The call has 1 graph; outside of it, [6-8] ops run eagerly because of this: mod", found.message)
    assert "modules '0' (Linear), '1' (BatchNorm1d), '2' (ReLU)." in found.message


def test_traced_ops_after_a_break_are_not_counted():
    def call(x):
        x = x.sin()
        print("a graph break")
        return x.cos()

    ex = rx.explore(call, (X,))
    assert only(ex, "graph-break").message.endswith("The call has 2 graphs.")
    for size in (5, 6):
        ex.live.capture.run(torch.ones(size))
    assert only(ex, "graph-break").message.endswith("The call has 2 graphs."), "graphs of later calls do not count"


def test_the_message_names_a_function_left_to_plain_python():
    found = only(rx.explore(lambda x: loop(x.exp()).cos(), (X,)), "graph-break")
    assert re.search(r"outside of them, 3 ops run eagerly because of this: function loop\.", found.message)


def sparse_product(x):
    x = x.sin()
    x = torch.sparse.mm(x.to_sparse(), x)
    return x.relu()


def padded(x):
    x = torch.nested.nested_tensor([x[:3], x[3:]])
    x = (x * 2).to_padded_tensor(0.0)
    return x.cos()


def compiles_before_and_after(x):
    x = x.sin()
    print("a graph break")
    return x.t().cos(), x.view(-1)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (sparse_product, {"_to_sparse": 1, "zeros": 1, "_sparse_addmm": 1, "relu": 1}),
        (padded, {"_nested_tensor_from_tensor_list": 1, "mul": 1, "to_padded_tensor": 1, "cos": 1}),
        (lambda x: x.sin().unique().sum(), {"_unique2": 1}),
        (lambda x: x.sin() * x.sum().item(), {}),
        (compiles_before_and_after, {}),
    ],
)
def test_ops_between_the_graphs_of_a_traced_function_are_counted(call, expected):
    ex = rx.explore(call, (torch.rand(8, 8),))
    counts = Counter()
    for item in ex.session.breaks:
        for ops in item.untraced:
            counts[ops.op.split(".")[1]] += ops.count
            assert ops.line.function == ops.function == call.__name__
    assert counts == expected
    assert ("run eagerly because of" in str(ex.diagnostics)) is (sum(counts.values()) > 1)


def test_each_break_has_the_ops_nearest_to_it():
    model = nn.ModuleDict({"first": averaging_net(), "second": averaging_net()})

    def call(x):
        x = model["first"](x)
        return model["second"](x.sin()).cos()

    breaks = rx.explore(call, (X,)).session.breaks
    paths = [{ops.module.path for ops in item.untraced if ops.module} for item in breaks]
    assert paths == [{f"{name}.{index}" for index in range(3)} for name in ("first", "second")]


def loop(x):
    for _ in range(3):
        x = x.sin()
        print("a graph break")
    return x


@torch.compiler.disable
def plain(x):
    return x.cos() * 2


def breaks_elsewhere(x):
    x = loop(x)
    print("a graph break of the call itself")
    return x.exp()


@pytest.mark.parametrize(
    ("call", "known", "unknown"),
    [
        (lambda x: breaks_elsewhere(x).sin(), {"loop": 3}, {}),
        (lambda x: loop(plain(x.exp())).sin(), {"loop": 3}, {"plain": 2}),
        (lambda x: breaks_elsewhere(plain(x)), {"loop": 3}, {"plain": 2}),
        (lambda x: plain(x.exp()).sin(), {"plain": 2}, {}),
    ],
)
def test_eager_ops_have_a_known_cause_only_after_one_break(call, known, unknown):
    ex = rx.explore(call, (X,))
    counts = Counter()
    for item in ex.session.breaks:
        for ops in item.untraced:
            counts[ops.function, ops.is_cause_known] += ops.count
    assert {name: number for (name, is_known), number in counts.items() if is_known} == known
    assert {name: number for (name, is_known), number in counts.items() if not is_known} == unknown
    assert ("because of one or several of the graph breaks" in str(ex.diagnostics)) is bool(unknown)
    for name in unknown:
        with pytest.raises(
            SelectorError, match=f"Ops of function {name} run eagerly, in no graph: the graph broke in several"
        ):
            ex.mark("r", lines=f"{name}:1-9")


def test_remedy_for_several_breaks_is_given_once():
    def call(x):
        return torch.distributions.Normal(x, x.exp(), validate_args=True).log_prob(x)

    found = only(rx.explore(call, (X,)), "graph-break")
    assert "2 times in this line" in found.message
    advice = "You cannot move this line: use another function there, or other options of the function."
    assert found.remedy.startswith(f"{advice} Torch's own hint: ")
    assert found.remedy.count(advice) == 1


def test_the_breaks_table_locates_a_break_in_a_library():
    table = breaks_table(explore(averaging_net()).session)
    (row,) = table.rows
    texts = {column.name: column.value(row) for column in table.columns}
    assert texts["reason"].startswith("in module '1' (BatchNorm1d), at batchnorm.py:")


# ----------------------------------------------------------------------------------------- marking what is in no graph


@pytest.mark.parametrize(
    ("model", "selector", "place"),
    [
        (averaging_net, {"modules": "2"}, "module '2' (ReLU)"),
        (averaging_net, {"modules": "[02]"}, "module '0' (Linear)"),
        (averaging_net, {"ops": "aten.relu*"}, "module '2' (ReLU)"),
        (lambda: layers(0, 1), {"modules": "2"}, "module '2' (ReLU)"),
    ],
)
def test_the_error_says_why_an_untraced_module_cannot_be_marked(model, selector, place):
    ex = explore(model())
    with pytest.raises(SelectorError) as raised:
        ex.mark("act", **selector)
    expected = f"matches no operation of this call. Ops of {place} run eagerly, in no graph: the graph broke in "
    assert expected in str(raised.value)
    ex.plan = rx.Plan((rx.Region("act", selectors_of(selector)),))
    assert f"Ops of {place} run eagerly, in no graph" in only(ex, "region-empty").message


def selectors_of(selector):
    ((kind, pattern),) = selector.items()
    return (rx.Selector(kind, (pattern,)),)


def test_the_error_says_why_an_untraced_line_cannot_be_marked():
    model = averaging_net()

    def call(x):
        x = model(x)
        return x.sin()

    expected = r"Ops of module '0' \(Linear\) run eagerly, in no graph: the graph broke in mod"
    with pytest.raises(SelectorError, match=expected):
        rx.explore(call, (X,)).mark("r", lines="call:2")


def test_the_error_about_an_unknown_module_mentions_no_graph_break():
    with pytest.raises(SelectorError) as raised:
        explore(averaging_net()).mark("act", modules="7")
    assert "broke" not in str(raised.value)


def test_a_graph_break_without_details_has_a_place_and_advice():
    found = GraphBreak("call to print")
    assert found.place == "in the call itself"
    assert found.advice == "Move this line out of the call if a region should reach across it."
