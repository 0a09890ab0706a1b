"""``rx.explore`` with the arguments of the call in the wrong places: the error spells the call in the user's words."""

import subprocess
import sys
from typing import Any

import pytest
import torch

import regional_explorer
from tests.shared.processes import ROOT

rx: Any = regional_explorer  # whose arguments are misplaced here on purpose

ids, mask, labels = torch.ones(2, 3), torch.ones(2, 3), torch.ones(2)
batch = {"x": ids, "mask": mask}
pair = (ids, mask)


def model(x, mask=None, labels=None):
    return x.sum()


def sum_of_list(xs):
    return sum(xs)


class Net(torch.nn.Module):
    def forward(self, xs):
        return sum(xs)


SPELLED = [
    (lambda: rx.explore(model, ids), "rx.explore(model, (ids,))"),
    (lambda: rx.explore(model, ids, labels=ids), 'rx.explore(model, (ids,), {"labels": ids})'),
    (lambda: rx.explore(model, (ids,), labels=labels), 'rx.explore(model, (ids,), {"labels": labels})'),
    (lambda: rx.explore(model, pair, labels=labels), 'rx.explore(model, (*pair,), {"labels": labels})'),
    (lambda: rx.explore(model, [ids, mask], labels=labels), 'rx.explore(model, (ids, mask), {"labels": labels})'),
    (lambda: rx.explore(model, ids, mask), "rx.explore(model, (ids, mask))"),
    (lambda: rx.explore(model, (ids,), mask), "rx.explore(model, (ids, mask))"),
    (lambda: rx.explore(model, ids, mask, labels), "rx.explore(model, (ids, mask, labels))"),
    (lambda: rx.explore(model, ids, {"mask": mask}), "rx.explore(model, (ids,), {'mask': mask})"),
    (
        lambda: rx.explore(model, ids, {"mask": mask}, labels=ids),
        "rx.explore(model, (ids,), {**{'mask': mask}, \"labels\": ids})",
    ),
    (lambda: rx.explore(model, ids, labels=ids, grad=False), 'rx.explore(model, (ids,), {"labels": ids}, grad=False)'),
    (lambda: rx.explore(model, x=ids), 'rx.explore(model, (), {"x": ids})'),
    (lambda: rx.explore(model, batch), "rx.explore(model, (), batch) for model(**batch), rx.explore(model, (batch,))"),
    (
        lambda: rx.explore(torch.nn.Linear(3, 3), torch.randn(2, 3)),
        "rx.explore(torch.nn.Linear(3, 3), (torch.randn(2, 3),))",
    ),
    (
        lambda: rx.explore(model, torch.cat([ids, mask, ids, mask, ids, mask, ids, mask])),
        "rx.explore(model, (…,))",
    ),
    (lambda: rx.explore(model, args=ids), "rx.explore(fn, (x, y))"),
    (lambda: rx.explore(*[model, ids], labels=ids), "rx.explore(fn, (x, y), {'labels': …})"),
]  # fmt: skip


@pytest.mark.parametrize(("misplaced", "spelled"), SPELLED)
def test_the_error_spells_the_call_in_the_users_words(misplaced, spelled):
    with pytest.raises(rx.InvalidArgumentError) as raised:
        misplaced()
    assert spelled in str(raised.value)


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (lambda: rx.explore(model, (ids,), dynamics=True), "dynamic"),
        (lambda: rx.explore(model, (ids,), gradd=False), "grad"),
        (lambda: rx.explore(model, (ids,), partitoner="min_cut"), "partitioner"),
    ],
)
def test_the_error_names_the_option_near_a_misspelled_keyword(call, option):
    with pytest.raises(rx.InvalidArgumentError, match=rf"has no option '\w+'\. Did you mean '{option}'\?"):
        call()


@pytest.mark.parametrize("call", [lambda: rx.explore(sum_of_list, [ids, mask]), lambda: rx.explore(Net(), (ids, mask))])
def test_the_error_shows_how_to_pass_a_list(call):
    with pytest.raises(rx.CaptureError, match=r"these 2 values as one argument, write rx\.explore\(fn, \(args,\)\)"):
        call()


def test_an_unrelated_type_error_has_no_remedy_about_arguments():
    with pytest.raises(rx.CaptureError) as raised:
        rx.explore(model, (ids, mask, labels, ids))
    assert "one argument" not in str(raised.value)


def test_without_source_the_error_shows_the_general_form():
    program = "import torch, regional_explorer as rx; rx.explore(torch.sin, torch.ones(2), out=None)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "rx.explore(fn, (x, y), {'out': …})" in ran.stderr
