"""Where the time goes: the table beside the graph, its marks, and the overlay."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.page.graph import SHARE
from regional_explorer.record.profile import ProfileKind
from regional_explorer.record.time_shares import TimeShares
from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel import Panel
from tests.shared.fakes import plant_op_times
from tests.shared.panel import elements, make, text
from tests.ui_graph.reading import read


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        parts = (OrderedDict(up=nn.Linear(32, 32), act=nn.SiLU()) for _ in range(20))
        self.layers = nn.ModuleList(map(nn.Sequential, parts))
        self.head = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        y: torch.Tensor = self.head(x)
        return y.square().mean()


@pytest.fixture(scope="module")
def exploration() -> Iterator[Exploration]:
    ex = explore(Net(), (torch.randn(8, 32),))
    with pytest.MonkeyPatch.context() as patch:
        plant_op_times(patch, lambda _name: 1e-4)  # or what takes longest would be another op each time
        ex.profile(0.3)
    yield ex
    ex.close()


@pytest.fixture
def profiled(exploration: Exploration) -> Iterator[Panel]:
    panel = Panel(control_of(exploration))
    panel.press("pane", "time")
    yield panel
    panel.close()


def test_every_share_is_that_of_the_frame(profiled: Panel, exploration: Exploration) -> None:
    shares = TimeShares.of(exploration.session)
    assert shares is not None
    frame = exploration.op_times.query("by == 'module'").set_index("name")["share"]
    rows = {share.row.name: share for share in shares.by(ProfileKind.MODULE)}
    assert rows["layers.*"].times == 20
    assert rows["layers.*"].row.share == pytest.approx(frame[[f"layers.{n}" for n in range(20)]].sum())
    assert rows["head"].row.share == pytest.approx(frame["head"])
    graph = exploration.session.graph("0/forward")
    for path in ("head", "layers.3", "layers.3.up"):
        mine = [node.name for node in graph.ops if any(call.path == path for call in node.modules)]
        seconds = sum(shares.seconds(f"0/forward:{name}") for name in mine)
        assert seconds / shares.profile.whole_s == pytest.approx(frame[path])


def test_the_graph_has_one_figure_per_module(profiled: Panel, exploration: Exploration) -> None:
    assert profiled.overlays[-1]["title"] == SHARE
    found = read(exploration.session, "0/forward")
    told = dict(zip(found.titles, (time and time[1] for time in found.times), strict=True))
    assert told["layers.0–19 × 20"] in text(profiled, "time")
    assert told["head"] in text(profiled, "time")


def test_a_row_is_marked_and_shown(profiled: Panel, exploration: Exploration) -> None:
    profiled.press("mark time", "module 0")
    assert str(exploration.plan.regions[-1].selectors[0]) == "modules:layers.*"
    assert profiled.control.state.picked == ("layers",)
    (again,) = elements(profiled.part("time"), data_do="mark time", data_of="module 0")
    assert (again[2], again[1]["disabled"]) == ("Marked", True)
    for kind, picks in (("op 0", "ops:aten."), ("line 0", "lines:test_time_tab.py:")):
        profiled.press("mark time", kind)
        assert profiled.control.state.problem is None
        assert str(exploration.plan.regions[-1].selectors[0]).startswith(picks)
    profiled.press("show time", "module 0")
    assert len(profiled.selection) > 40
    profiled.press("mark time", "module 999")
    profiled.press("show time", "op 999")


def test_the_button_profiles_and_shows_what_it_found() -> None:
    panel = Panel(control_of(make()))
    panel.press("pane", "time")
    assert "Where does the time go?" in text(panel, "time")
    assert not any(one["title"] == SHARE for one in panel.overlays)
    panel.press("pane", "source")
    panel.press("budget", value="0.2")
    panel.press("profile")
    assert panel.control.jobs.wait(60)
    assert panel.control.state.pane == "time"
    assert "aot_eager took" in text(panel, "time")
    assert panel.shown["overlay"] == SHARE == panel.overlays[-1]["title"]
    number = [tab["id"] for tab in panel.tabs].index(panel.first)
    assert getattr(panel, f"folds{number}")["times"]["nodes"]
    panel.close()


def test_only_what_differs_between_equal_modules_is_a_star() -> None:
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.SiLU()) for _ in range(3)))
    with explore(blocks, (torch.randn(4, 8),), grad=False) as ex:
        ex.profile(0.1)
        shares = TimeShares.of(ex.session)
        assert shares is not None
        rows = {share.row.name: share for share in shares.by(ProfileKind.MODULE)}
        assert {"*.0", "*.1"} <= set(rows), "the linears and the activations have a row each"
        assert str(rows["*.1"].selector) == "modules:*.1"
        activations = [node.name for node in ex.session.graph("0/inference").ops if "silu" in node.target]
        lit = [name.partition(":")[2] for name in shares.nodes_of(rows["*.1"]) if name.startswith("0/inference:")]
        assert lit == activations != []
