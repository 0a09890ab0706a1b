"""Artifacts on disk: another process starts from them without compiling, and what does not fit is told."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.backend.backend_options import BackendOptions
from regional_explorer.backend.planned_backend import regional_explorer
from regional_explorer.compiler.artifacts.file_lock import locked
from regional_explorer.compiler.artifacts.folder import ArtifactFolder
from regional_explorer.errors import ArtifactError, InvalidArgumentError, PlanError
from regional_explorer.record.selector import SelectorKind
from regional_explorer.torch_api import Machine

pytestmark = [pytest.mark.compiles, pytest.mark.usefixtures("own_recompile_limit")]
ROOT = Path(__file__).parents[2]

PLAN = rx.Plan(
    (
        rx.Region("act", (rx.Selector(SelectorKind.MODULES, ("act",)),), {"max_fusion_size": 8}),
        rx.Region("norm", (rx.Selector(SelectorKind.MODULES, ("norm",)),)),
    )
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

    def forward(self, x):
        return (x + self.down(self.act(self.up(self.norm(x))))).square().mean()


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def x():
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "artifacts"


def trained(fn, net, x):
    net.zero_grad()
    loss = fn(x)
    loss.backward()
    return [loss.detach(), *(parameter.grad.clone() for parameter in net.parameters())]


def caches(compiled):
    return {part.cache for part in rx.status(compiled).partitions if part.cache is not None}


def told(compiled):
    return [(str(found.code), found.region) for found in rx.status(compiled).diagnostics]


def test_what_one_compile_saved_the_next_one_loads(net, x, folder):
    first = rx.compile(net, PLAN, artifacts=folder)
    expected = trained(first, net, x)
    assert caches(first) <= {"cold", "warm"}
    assert len(list(folder.glob("*.artifact"))) == 4, "two regions, forward and backward"
    again = rx.compile(net, PLAN, artifacts=str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            torch.testing.assert_close(trained(again, net, x), trained(net, net, x))
    torch.testing.assert_close(trained(again, net, x), trained(first, net, x), rtol=0, atol=0)
    assert caches(again) == {"shipped"}
    assert told(again) == []
    known = {part.id: (part.artifact, part.config_applied) for part in rx.status(first).partitions}
    assert {part.id: (part.artifact, part.config_applied) for part in rx.status(again).partitions} == known
    torch.testing.assert_close(expected, trained(net, net, x))


def test_an_exploration_saves_what_rx_compile_loads(net, x, folder, tmp_path):
    ex = rx.explore(net, (x,), plan=PLAN)
    assert ex.save_artifacts(folder) == folder
    compiled = rx.compile(net, ex.save_plan(tmp_path / "plan.json"), artifacts=folder)
    trained(compiled, net, x)
    assert caches(compiled) == {"shipped"}
    assert {part.artifact for part in rx.status(compiled).partitions} == set(ex.partitions["artifact"])


def test_dynamic_sizes_keep_their_guards(folder):
    torch.manual_seed(0)
    net = Net()

    def run(compiled):
        for size in (4, 5, 9):
            x = torch.randn(size, 8)
            torch.testing.assert_close(trained(compiled, net, x), trained(net, net, x))

    run(rx.compile(net, PLAN, artifacts=folder, dynamic=True))
    again = rx.compile(net, PLAN, artifacts=folder, dynamic=True)
    run(again)
    assert caches(again) == {"shipped"}


def test_copies_and_pickles_load_from_the_same_directory(net, x, folder):
    compiled = rx.compile(net, PLAN, artifacts=folder)
    trained(compiled, net, x)
    for again in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):  # noqa: S301 - our own bytes
        again(x).backward()
        assert caches(again) == {"shipped"}


def test_as_an_option_of_the_backend(net, x, folder):
    rx.explore(net, (x,), plan=PLAN).save_artifacts(folder)
    torch._dynamo.register_backend(regional_explorer, name="regional_explorer_artifacts")
    options = {"plan": PLAN, "artifacts": str(folder)}
    compiled = torch.compile(net, backend="regional_explorer_artifacts", options=options)
    trained(compiled, net, x)
    assert caches(compiled) == {"shipped"}


FRESH = """
import os, sys, warnings
warnings.simplefilter("error", UserWarning)  # torch's own imports warn of what is deprecated
import torch
import regional_explorer as rx
from tests.engine.test_artifacts import PLAN, Net, trained
torch.set_num_threads({threads})
torch.manual_seed(0)
net, x = Net(), torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
compiled = rx.compile(net, PLAN, artifacts={folder!r})
for _ in range(3):
    torch.testing.assert_close(trained(compiled, net, x), trained(net, net, x))
print(sorted({{str(part.state) for part in rx.status(compiled).partitions}}))
print(sorted({{part.cache for part in rx.status(compiled).partitions if part.cache}}))
print(sum(part.cache in ("cold", "warm") for part in rx.status(compiled).partitions))
"""


def process(folder, cache, **environment):
    source = FRESH.format(folder=str(folder), threads=torch.get_num_threads())
    kept = {key: value for key, value in os.environ.items() if key not in ("CXX", "CC")}
    here = {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(cache), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", source], env={**kept, **here}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_fresh_process_without_a_compiler_runs_compiled_code(net, x, folder, tmp_path):
    rx.explore(net, (x,), plan=PLAN).save_artifacts(folder)
    (tmp_path / "nothing").mkdir()
    run = process(folder, tmp_path / "cache", PATH=str(tmp_path / "nothing"))
    printed, error = run.communicate()
    assert run.returncode == 0, error
    assert printed.splitlines()[:2] == ["['compiled']", "['shipped']"]


@pytest.mark.slow
def test_processes_that_start_together_share_the_directory_and_the_work(folder, tmp_path):
    runs = [process(folder, tmp_path / f"cache{index}") for index in range(3)]
    printed = [run.communicate() for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], printed
    assert {found.splitlines()[0] for found, _ in printed} == {"['compiled']"}
    compiles = [int(found.splitlines()[2]) for found, _ in printed]
    assert sum(compiles) == len(list(folder.glob("*.artifact"))) == 4, "each artifact was compiled by one of them"
    assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize("begins", ["before", "after"])
def test_what_a_process_at_work_has_not_come_to_is_no_difference(net, x, folder, begins):
    """It has compiled one region of two, and is seen at work when this one begins, or when it misses the other."""
    trained(rx.compile(net, rx.Plan((PLAN["act"],)), artifacts=folder), net, x)
    at_work = folder / "locks" / "of-another.lock"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if begins == "before":
            with locked(at_work, 1.0) as held:
                compiled = rx.compile(net, PLAN, artifacts=folder)
            trained(compiled, net, x)
        else:
            compiled = rx.compile(net, PLAN, artifacts=folder)
            with locked(at_work, 1.0) as held:
                trained(compiled, net, x)
    assert held
    assert told(compiled) == []
    assert len(caches(compiled)) == 2, "one region was loaded, one compiled"


# --------------------------------------------------------------------------------------------------- what does not fit


def changed(path, change):
    """Write an artifact anew with its label changed, as another machine or version would have written it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    label = json.loads(members["artifact.json"])
    change(label)
    members["artifact.json"] = json.dumps(label).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil(path):
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    path.write_bytes(bytes(content))


def empty_code(path):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content if name in ("artifact.json", "extra") else b"nothing of the kind")


def foreign(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("something.txt", "else")


@pytest.mark.parametrize("damage", [truncate, spoil, empty_code, foreign])
def test_a_damaged_artifact_is_told_and_compiled_anew(net, x, folder, damage):
    trained(rx.compile(net, PLAN, artifacts=folder), net, x)
    for path in folder.glob("*.artifact"):
        damage(path)
    compiled = rx.compile(net, PLAN, artifacts=folder)
    with pytest.warns(UserWarning, match=r"\[artifact-damaged\] .*cannot be used"):
        torch.testing.assert_close(trained(compiled, net, x), trained(net, net, x))
    assert {code for code, _ in told(compiled)} == {"artifact-damaged"}
    assert caches(compiled) <= {"cold", "warm"}
    again = rx.compile(net, PLAN, artifacts=folder)
    trained(again, net, x)
    assert caches(again) == {"shipped"}, "what was damaged is written anew"


def test_artifacts_of_another_torch_are_told_and_kept(net, x, folder):
    trained(rx.compile(net, PLAN, artifacts=folder), net, x)
    for path in folder.glob("*.artifact"):
        changed(path, lambda label: label["machine"].update(torch="1.0 (abc)"))
        path.rename(path.with_name(path.name.replace("-", "-other")))
    compiled = rx.compile(net, PLAN, artifacts=folder)
    why = r"they were made with torch 1\.0 \(abc\), here is"
    with pytest.warns(UserWarning, match=rf"\[artifact-differs\] Region 'norm' is compiled again.*{why}"):
        torch.testing.assert_close(trained(compiled, net, x), trained(net, net, x))
    assert caches(compiled) <= {"cold", "warm"}
    assert len(list(folder.glob("*.artifact"))) == 8, "each machine has its own"


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"python": "cpython-27"}, "made with Python cpython-27"),
        ({"gpu": "Another GPU"}, "made with GPU Another GPU, here is none"),
        ({"cpu": ("avx", "avx1024")}, "a processor with avx1024, which this one lacks"),
        ({"system": "Plan9 mips"}, "made with Plan9 mips, here is"),
        ({"cpu": ()}, ""),
    ],
)
def test_what_another_machine_made_fits_or_not(there, why):
    here = replace(Machine.here(), cpu=("avx", "fma"))
    found = replace(here, **there).mismatch(here)
    assert why in found
    assert bool(found) is bool(why)


def test_another_plan_graph_or_setting_is_told_and_compiled_anew(net, x, folder):
    trained(rx.compile(net, PLAN, artifacts=folder), net, x)
    before = torch.get_num_threads()
    wider = torch.randn(6, 8)
    other = rx.Plan((rx.Region("other", PLAN["act"].selectors, {"max_fusion_size": 8, "epilogue_fusion": False}),))
    cases = [
        (PLAN.configured("act", {"max_fusion_size": 4}), x, {}, r"'act'.*compiled under max_fusion_size=8, here 4"),
        (PLAN, x, {"threads": before + 1}, f"'act'.*compiled under threads={before}, here {before + 1}"),
        (other, x, {}, "'other'.*compiled under epilogue_fusion=the default, here False"),
        # The last: from then on Dynamo takes the size for a dynamic one.
        (PLAN, wider, {}, "'norm'.*for another graph, or for inputs of other sizes"),
    ]
    for plan, given, setting, why in cases:
        torch.set_num_threads(setting.get("threads", before))
        try:
            compiled = rx.compile(net, plan, artifacts=folder)
            with pytest.warns(UserWarning, match=rf"\[artifact-differs\] Region {why}"):
                torch.testing.assert_close(trained(compiled, net, given), trained(net, net, given))
        finally:
            torch.set_num_threads(before)
    strict = rx.compile(net, PLAN.configured("norm", {"max_fusion_size": 3}), artifacts=folder, strict=True)
    with pytest.raises(PlanError, match="artifact-differs"):
        strict(x)


def test_of_several_artifacts_the_nearest_says_why(net, x, folder):
    trained(rx.compile(net, PLAN, artifacts=folder), net, x)
    for path in list(folder.glob("*.artifact")):
        listed_first = shutil.copy(path, path.with_name(f"0{path.name}"))
        changed(Path(listed_first), lambda label: label["config"].update(max_fusion_size="4"))
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        compiled = rx.compile(net, PLAN, artifacts=folder)
        with pytest.warns(UserWarning, match=f"'act'.*compiled under threads={before}, here {before + 1}"):
            trained(compiled, net, x)
    finally:
        torch.set_num_threads(before)


def test_a_directory_that_cannot_be_written_is_told(net, x, folder, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ArtifactFolder, "write", full)
    compiled = rx.compile(net, PLAN, artifacts=folder)
    with pytest.warns(UserWarning, match=r"\[artifact-unsaved\] .*No space left on device"):
        torch.testing.assert_close(trained(compiled, net, x), trained(net, net, x))
    assert {str(part.state) for part in rx.status(compiled).partitions} == {"compiled"}
    with pytest.raises(ArtifactError, match="No space left"):
        rx.explore(net, (x,), plan=PLAN).save_artifacts(folder)


def test_what_is_no_directory_is_refused(net, x, tmp_path):
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", 3, ""):
        with pytest.raises(ArtifactError, match="directory"):
            rx.compile(net, PLAN, artifacts=wrong)
        with pytest.raises(ArtifactError, match="directory"):
            rx.explore(net, (x,), plan=PLAN).save_artifacts(wrong)
    with pytest.raises(InvalidArgumentError, match="no option 'artifact'"):
        BackendOptions.of({"artifact": "x"})


def test_nothing_is_loaded_from_a_directory_that_was_not_named(net, x, folder, monkeypatch):
    rx.explore(net, (x,), plan=PLAN).save_artifacts(folder)
    monkeypatch.chdir(folder)
    compiled = rx.compile(net, PLAN)
    trained(compiled, net, x)
    assert caches(compiled) <= {"cold", "warm"}


def test_a_lock_is_had_by_one_at_a_time_and_not_waited_for_for_ever(tmp_path):
    path = tmp_path / "locks" / "one.lock"
    order = []

    def second():
        with locked(path, 10.0) as held:
            order.append(("second", held))

    with locked(path, 1.0) as held:
        assert held
        other = threading.Thread(target=second)
        other.start()
        with locked(path, 0.3) as impatient:
            assert not impatient
        order.append(("first", held))
    other.join()
    assert order == [("first", True), ("second", True)]
