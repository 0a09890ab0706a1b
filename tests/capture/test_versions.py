"""A backward that the user has pending still runs: version counters are as before, however often a call writes."""

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.capture.call import Call
from tests.shared.checks import version_of

N = torch.rand(4)


def two_views(h):
    h[0] = N
    h[1] = N


def a_view_of_a_view(h):
    rows = h[1:]
    rows[0].mul_(2)
    rows[1:][0].add_(N)
    rows.zero_()


def parts_of_unbind(h):
    first, second, *_ = h.unbind(0)
    first.copy_(N)
    second.copy_(N)


def narrow_in_a_loop(h):
    for row in range(3):
        h.narrow(0, row, 1).add_(row)


def the_base_after_a_view(h):
    h[0] = N
    h.mul_(2)
    h[1] = N


def an_alias_after_a_view(h):
    h[0] = N
    h.detach().mul_(2)
    h[1] = N


def data_by_rows(h):
    h.data[0] = N
    h.data[1] = N


def two_views_without_grad(h):
    with torch.no_grad():
        h[0].mul_(2)
        h[1].mul_(2)


WRITES = (
    *(two_views, a_view_of_a_view, parts_of_unbind, narrow_in_a_loop, the_base_after_a_view),
    *(an_alias_after_a_view, data_by_rows),
)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_pending_backward_runs_after_several_writes(write):
    def call(h):
        write(h)
        return h.mean(0)

    h, w = torch.rand(4, 4), torch.ones(4, requires_grad=True)
    loss, content = (h * w).sum(), h.clone()
    ex = rx.explore(call, (h,))
    with ex.live.call.restoring():
        for _ in range(2):
            ex.live.call.forward(ex.live.capture.run)
            ex.live.call.restore()
    loss.backward()
    assert (version_of(h), h.tolist()) == (0, content.tolist())


@pytest.mark.parametrize("write", [two_views_without_grad, data_by_rows], ids=lambda write: write.__name__)
def test_a_pending_backward_of_a_written_parameter_runs(write):
    linear = nn.Linear(4, 4)

    def call(x):
        write(linear.weight)
        return linear(x)

    loss, version = linear(torch.rand(2, 4, requires_grad=True)).sum(), version_of(linear.weight)
    Call(call, (torch.rand(2, 4),))
    loss.backward()
    assert version_of(linear.weight) == version


def test_a_pending_backward_runs_after_writes_to_a_buffer_by_slice_and_as_a_whole():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.rand(4, 4))

        def forward(self, x):
            self.rows[:2] = x
            self.rows += 1
            self.rows[2:].zero_()
            return self.rows.sum(0)

    cache, w = Cache(), torch.ones(4, requires_grad=True)
    loss = (cache.rows * w).sum()
    rx.explore(cache, (torch.rand(2, 4),))
    loss.backward()
    assert version_of(cache.rows) == 0
