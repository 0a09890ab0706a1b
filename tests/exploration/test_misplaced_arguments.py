"""``rx.explore`` with the arguments of the call in the wrong places."""

from typing import Any

import pytest
import torch

import regional_explorer

rx: Any = regional_explorer  # whose arguments are misplaced here on purpose

ids, mask, labels = torch.ones(2, 3), torch.ones(2, 3), torch.ones(2)
batch = {"x": ids, "mask": mask}


def model(x, mask=None, labels=None):
    return x.sum()


def sum_of_list(xs):
    return sum(xs)


class Net(torch.nn.Module):
    def forward(self, xs):
        return sum(xs)


@pytest.mark.parametrize(
    ("misplaced", "problem"),
    [
        (lambda: rx.explore(model, ids), "args=tensor"),
        (lambda: rx.explore(model, batch), "args={"),
        (lambda: rx.explore(model, args=ids), "args=tensor"),
        (lambda: rx.explore(model, (ids,), mask), "kwargs=tensor"),
        (lambda: rx.explore(model, (ids,), None, labels), "There are 3 arguments after the function"),
        (lambda: rx.explore(model, (ids,), labels=labels), "rx.explore has no option 'labels'"),
    ],
)
def test_the_error_names_the_misplaced_argument_and_the_right_form(misplaced, problem):
    with pytest.raises(rx.InvalidArgumentError) as raised:
        misplaced()
    assert problem in str(raised.value)
    assert "rx.explore(fn, (x, y)) for fn(x, y)" in str(raised.value)


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (lambda: rx.explore(model, (ids,), dynamics=True), "dynamic"),
        (lambda: rx.explore(model, (ids,), gradd=False), "grad"),
        (lambda: rx.explore(model, (ids,), tracin=rx.Tracing()), "tracing"),
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
