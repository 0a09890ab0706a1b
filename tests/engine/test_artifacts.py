"""Artifacts on disk: another process starts from them without compiling, and what does not fit is told."""

import copy
import functools
import json
import os
import pickle
import shutil
import signal
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import fx, nn

import regional_explorer as rx
from regional_explorer.backend.planned_backend import BackendOptions, regional_explorer
from regional_explorer.compiler.artifact import ArtifactStore, Wanted
from regional_explorer.compiler.artifact_folder import (
    ArtifactFolder,
    Entry,
    Label,
    Machine,
    folder_at,
    manifest_content,
    read_archive,
    read_manifest,
    sha256_of,
)
from regional_explorer.compiler.fingerprint import Layout
from regional_explorer.errors import ArtifactError, InvalidArgumentError, PlanError
from regional_explorer.measure.__main__ import torch_threads
from regional_explorer.torch_api.shipping import Packed
from tests.shared import programs
from tests.shared.checks import facts, trained
from tests.shared.mutations import mutated
from tests.shared.processes import python

pytestmark = [pytest.mark.compiles, pytest.mark.usefixtures("own_recompile_limit")]

PLAN = programs.plan_of(act="act", norm="norm").configured("act", {"max_fusion_size": 8})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

    def forward(self, x):
        return (x + self.down(self.act(self.up(self.norm(x))))).square().mean()


def inputs():
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def x():
    return inputs()


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """Return a directory with the artifacts that one compile saved."""
    folder, net = tmp_path_factory.mktemp("shipped") / "artifacts", Net()
    trained(rx.compile(net, PLAN, artifacts=folder), net, inputs())
    return folder


@pytest.fixture
def folder(tmp_path):
    """Return a directory that does not exist yet."""
    return tmp_path / "artifacts"


@pytest.fixture
def filled(shipped, folder):
    """Return a directory of artifacts that the test may change."""
    return shutil.copytree(shipped, folder)


def caches(compiled):
    return {artifact.compile.cache for artifact in rx.status(compiled).artifacts.values()}


def silence():
    """A block in which a warning is an error."""
    return warnings.catch_warnings(action="error", category=UserWarning)


def assert_loads(net, x, plan=PLAN, **options):
    """Nothing is compiled, and nothing said."""
    compiled = rx.compile(net, plan, **options)
    with silence():
        torch.testing.assert_close(trained(compiled, net, x), trained(net, net, x))
    assert caches(compiled) == {"shipped"}
    assert told(compiled) == []
    return compiled


def assert_compiles(net, x, plan=PLAN, match=None, **options):
    """All is compiled here, which is said if ``match`` is given, and only then."""
    compiled = rx.compile(net, plan, **options)
    with silence() if match is None else pytest.warns(UserWarning, match=match):
        torch.testing.assert_close(trained(compiled, net, x), trained(net, net, x))
    found = rx.status(compiled)
    assert [str(part.state) for part in found.partitions] == ["compiled"] * 4, "two regions, forward and backward"
    assert {found.artifacts[part.artifact].compile.cache for part in found.partitions} <= {"cold", "warm"}
    return compiled


def told(compiled):
    return [(str(found.code), found.region) for found in rx.status(compiled).diagnostics]


def test_what_one_compile_saved_the_next_one_loads(net, x, folder):
    first = assert_compiles(net, x, artifacts=folder)
    assert len(list(folder.glob("*.artifact"))) == 4, "two regions, forward and backward"
    again = assert_loads(net, x, artifacts=str(folder))
    for _ in range(2):
        torch.testing.assert_close(trained(again, net, x), trained(first, net, x), rtol=0, atol=0)
    assert facts(rx.status(again)) == facts(rx.status(first))


def test_an_exploration_saves_what_rx_compile_loads(net, x, folder, tmp_path):
    ex = rx.explore(net, (x,), plan=PLAN)
    assert ex.save_artifacts(folder) == folder
    compiled = assert_loads(net, x, ex.save_plan(tmp_path / "plan.json"), artifacts=folder)
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


def test_copies_and_pickles_load_from_the_same_directory(net, filled, x):
    compiled = rx.compile(net, PLAN, artifacts=filled)
    for again in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):  # noqa: S301 - our own bytes
        again(x).backward()
        assert caches(again) == {"shipped"}


def test_as_an_option_of_the_backend(net, x, filled):
    torch._dynamo.register_backend(regional_explorer, name="regional_explorer_artifacts")
    options = {"plan": PLAN, "artifacts": str(filled)}
    compiled = torch.compile(net, backend="regional_explorer_artifacts", options=options)
    trained(compiled, net, x)
    assert caches(compiled) == {"shipped"}
    with pytest.raises(InvalidArgumentError, match="no option 'artifact'"):
        BackendOptions.of({"artifact": "x"})


FRESH = """
import os, sys, warnings
warnings.simplefilter("error", UserWarning)  # torch's own imports warn of what is deprecated
import torch
import regional_explorer as rx
from tests.engine.test_artifacts import PLAN, Net, inputs
from tests.shared.checks import trained
torch.set_num_threads({threads})
net, x = Net(), inputs()
compiled = rx.compile(net, PLAN, artifacts={folder!r})
for _ in range(3):
    torch.testing.assert_close(trained(compiled, net, x), trained(net, net, x))
print(sorted({{str(part.state) for part in rx.status(compiled).partitions}}))
caches = [artifact.compile.cache for artifact in rx.status(compiled).artifacts.values()]
print(sorted(set(caches)))
print(sum(cache in ("cold", "warm") for cache in caches))
"""


def fresh(folder, cache=None, before="", status=0, **environment):
    """Run a process that trains with the artifacts in ``folder``; the source ``before`` runs first."""
    program = before + FRESH.format(folder=str(folder), threads=torch.get_num_threads())
    return python(program, cache=cache, status=status, env={"CXX": None, "CC": None, **environment})


def test_a_fresh_process_without_a_compiler_runs_compiled_code(filled, tmp_path):
    (tmp_path / "nothing").mkdir()
    done = fresh(filled, tmp_path / "cache", PATH=str(tmp_path / "nothing"))
    assert done.out.splitlines()[:2] == ["['compiled']", "['shipped']"]


@pytest.mark.slow
def test_processes_that_start_together_all_compile_and_leave_what_another_loads(folder, tmp_path):
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda index: fresh(folder, tmp_path / f"cache{index}"), range(3)))
    assert {run.out.splitlines()[0] for run in runs} == {"['compiled']"}
    assert_readable(folder)
    assert fresh(folder, tmp_path / "cache3").out.splitlines() == ["['compiled']", "['shipped']", "0"]


def test_writers_at_once_leave_what_can_be_read(folder):
    """Each writes all artifacts, its own content of each; what the others have written by then is not written again."""
    labels = [replace(LABEL, key=f"key{index}") for index in range(8)]
    start = threading.Barrier(4)

    def write(own: int) -> None:
        start.wait()
        artifacts = ArtifactFolder(folder)
        for label in labels:
            artifacts.save(label, lambda: Packed(b"code of %d" % own, {"x": b"library"}))
            assert artifacts.load(label, lambda packed: packed) is None or artifacts.findings == []
        artifacts.finish()
        assert artifacts.findings == []

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert_readable(folder)
    artifacts = ArtifactFolder(folder)
    assert all(artifacts.load(label, lambda packed: packed.libraries) == {"x": b"library"} for label in labels)
    assert artifacts.findings == []


KILLED = """
import os, signal
from regional_explorer.compiler.artifact_folder import ArtifactFolder
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
{place} = killed
"""


@pytest.mark.parametrize(("place", "left"), [("os.fsync", ".tmp"), ("ArtifactFolder.finish", ".artifact")])
def test_a_killed_writer_leaves_nothing_that_is_loaded(net, x, folder, place, left):
    """In the middle of a file, or when the files are there but not the manifest."""
    fresh(folder, before=KILLED.format(place=place), status=-signal.SIGKILL)
    assert {path.suffix for path in folder.iterdir()} == {left}
    assert_compiles(net, x, artifacts=folder)
    assert_loads(net, x, artifacts=folder)


def test_what_a_process_at_work_has_not_come_to_is_no_difference(net, x, folder):
    """It has compiled the forward, and has not come to the backward when this one begins."""
    torch.testing.assert_close(rx.compile(net, PLAN, artifacts=folder)(x), net(x))
    assert {entry.label.graph for entry in listed(folder)} == {"0/forward"}
    compiled = rx.compile(net, PLAN, artifacts=folder)
    with silence():
        trained(compiled, net, x)
    assert told(compiled) == []
    assert "shipped" in caches(compiled), "the forward was loaded"
    assert len(caches(compiled)) == 2, "the backward was compiled"


# --------------------------------------------------------------------------------------------- files and their contents


LABEL = Label("key", "region", "0/forward", "fingerprint", {}, {}, Machine.here())


def listed(folder: Path) -> list[Entry]:
    """Return what all manifests list."""
    return [entry for path in sorted(folder.glob("manifest-*.json")) for entry in read_manifest(path.read_bytes())]


def read(folder: Path, entry: Entry) -> Packed:
    return read_archive((folder / f"{entry.sha256}.artifact").read_bytes(), entry.label.key)


def assert_readable(folder: Path) -> None:
    """Every file is what its name says, is listed, and can be unpacked; nothing else is there."""
    assert {path.suffix for path in folder.iterdir()} == {".artifact", ".json"}
    for path in folder.glob("*.artifact"):
        assert path.stem == sha256_of(path.read_bytes())
    entries = listed(folder)
    assert {entry.sha256 for entry in entries} == {path.stem for path in folder.glob("*.artifact")}
    assert all(read(folder, entry) for entry in entries)


def rewrite(
    folder: Path,
    label: Callable[[Label], Label] = lambda label: label,
    packed: Callable[[Packed], Packed] = lambda packed: packed,
) -> None:
    """Write all artifacts anew with other labels or contents, as another machine or version would have written them."""
    contents = [(entry.label, read(folder, entry)) for entry in listed(folder)]
    shutil.rmtree(folder)
    artifacts = ArtifactFolder(folder)
    for old_label, content in contents:
        artifacts.save(label(old_label), functools.partial(packed, content))
    artifacts.finish()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return an exploration with dynamic sizes, and a directory with its artifacts."""
    ex = rx.explore(Net(), (inputs(),), plan=PLAN, dynamic=True)
    yield ex, ex.save_artifacts(tmp_path_factory.mktemp("saved") / "artifacts")
    ex.close()


def test_no_class_of_this_package_is_in_a_file(saved):
    """Its modules may move; that of torch and Python is on the label."""
    _, folder = saved
    packed = [read(folder, entry) for entry in listed(folder)]
    assert any(b"sympy" in artifact.sizes for artifact in packed), "there are guards"
    assert not any(b"regional_explorer." in artifact.code + artifact.sizes for artifact in packed)


# --------------------------------------------------------------------------------------------------- what does not fit


def remove(folder: Path) -> None:
    for path in folder.glob("*.artifact"):
        path.unlink()


def replace_manifests(folder: Path, content: bytes) -> None:
    """Let the folder have this manifest alone, named as it must be."""
    for path in folder.glob("manifest-*.json"):
        path.unlink()
    (folder / f"manifest-{sha256_of(content)[:16]}.json").write_bytes(content)


def newer(folder: Path) -> None:
    replace_manifests(folder, manifest_content(listed(folder)).replace(b'"format": 2', b'"format": 3'))


def exchanged(folder: Path) -> None:
    """Let each entry name the file of another one."""
    entries = listed(folder)
    others = [Entry(one.label, other.sha256) for one, other in zip(entries, entries[::-1], strict=True)]
    replace_manifests(folder, manifest_content(others))


def with_other(**parts: Any) -> Callable[[Path], None]:
    """Return a function that writes all artifacts with other parts, correctly named and listed."""
    return lambda folder: rewrite(folder, packed=lambda packed: replace(packed, **parts))


DAMAGES = {
    "removed": remove,
    "manifests of something else": lambda folder: replace_manifests(folder, b'{"something": "else"}'),
    "a newer format": newer,
    "entries exchanged": exchanged,
    "code that is none": with_other(code=b"nothing of the kind"),
    "code of another kind": with_other(code=pickle.dumps({"a": 1})),
    "no libraries": with_other(libraries={}),
    "libraries that are none": lambda folder: rewrite(
        folder, packed=lambda packed: replace(packed, libraries=dict.fromkeys(packed.libraries, b"no library"))
    ),
    "another layout of classes": with_other(sizes=pickle.dumps(7)),
    "a class that is gone": with_other(sizes=b"cregional_explorer.gone\nSizes\n."),
    "places that are not there": with_other(sizes=pickle.dumps((((99, 0),), None))),
    "a guard that is none": with_other(sizes=pickle.dumps((((0, 0),), (("s",), ("s > 1",))))),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_artifact_is_told_and_written_anew(saved, folder, damage):
    ex, whole = saved
    DAMAGES[damage](shutil.copytree(whole, folder))
    wanted = [(ex.live.program.wanted(s.artifact.key, s), s.artifact) for s in ex.live.program.switches if s.artifact]
    artifacts = folder_at(folder)
    for needed, artifact in wanted:
        assert ArtifactStore(folder=artifacts).load(needed) is None
        artifacts.note_missing(needed.label())
        artifacts.save(needed.label(), artifact.pack)
    artifacts.finish()
    assert {finding.code for finding in artifacts.findings} == {"artifact-damaged"}
    assert all("cannot be used" in finding.message for finding in artifacts.findings)
    assert all(ArtifactStore(folder=folder_at(folder)).load(needed) for needed, _ in wanted)


def test_a_damaged_artifact_is_told_by_the_call_that_compiles_it_anew(net, x, filled):
    DAMAGES["no libraries"](filled)
    compiled = assert_compiles(net, x, match=r"\[artifact-damaged\] .*cannot be used", artifacts=filled)
    assert {code for code, _ in told(compiled)} == {"artifact-damaged"}
    assert_loads(net, x, artifacts=filled)  # what was damaged is written anew


COUNTS = [1, pytest.param(20, marks=pytest.mark.slow)]


@st.composite
def changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Return other bytes: one bit flipped, cut short, lengthened, or a part replaced."""
    at = draw(st.integers(0, len(content) - 1))
    match draw(st.sampled_from(["flip", "cut", "more", "replace"])):
        case "flip":
            return content[:at] + bytes([content[at] ^ (1 << draw(st.integers(0, 7)))]) + content[at + 1 :]
        case "cut":
            return content[:at]
        case "more":
            return content + draw(st.binary(min_size=1, max_size=8))
        case _:
            return content[:at] + bytes(64) + content[at + 64 :] + b"\0"


@pytest.mark.parametrize("times", COUNTS)
def test_bytes_that_were_changed_are_noticed(saved, tmp_path, times):
    """Whichever file it is: what is loaded is what was written, and what is not loaded is said."""
    _, folder = saved
    entries, files = listed(folder), sorted(folder.iterdir())
    written = {entry.label.key: read(folder, entry) for entry in entries}

    @settings(max_examples=200 * times, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def each(data):
        copied = tmp_path / "copy"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(folder, copied)
        path = copied / data.draw(st.sampled_from(files)).name
        path.write_bytes(data.draw(changed_bytes(path.read_bytes())))
        artifacts = folder_at(copied)
        loaded = [artifacts.load(entry.label, lambda packed: packed) for entry in entries]
        assert all(packed in (None, written[entry.label.key]) for packed, entry in zip(loaded, entries, strict=True))
        assert None in loaded
        assert {finding.code for finding in artifacts.findings} == {"artifact-damaged"}

    each()


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just(torch.float32)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner), max_leaves=6)
PICKLES = VALUES.map(pickle.dumps) | st.sampled_from([b"", b"x", b"cregional_explorer.gone\nSizes\n.", b"cos\ngone\n."])


@st.composite
def other_parts(draw: st.DrawFn, packed: Packed) -> Packed:
    """Return an artifact with other code, sizes or libraries."""
    places, guard = pickle.loads(packed.sizes)  # noqa: S301 - our own bytes
    numbers = st.integers(-3, 5)
    match draw(st.sampled_from(["code", "sizes", "places", "guard", "library", "libraries"])):
        case "code":
            shorter = st.integers(1, 99).map(lambda size: packed.code[:-size])
            return replace(packed, code=draw(PICKLES | shorter))
        case "sizes":
            return replace(packed, sizes=draw(PICKLES))
        case "places":
            places = tuple(draw(st.lists(st.tuples(numbers, numbers), max_size=3)))
        case "guard":
            guard = draw(VALUES)
        case "library":
            return replace(packed, libraries=dict.fromkeys(packed.libraries, draw(st.binary(max_size=99))))
        case _:
            return replace(packed, libraries={f"{name}x": content for name, content in packed.libraries.items()})
    return replace(packed, sizes=pickle.dumps((places, guard)))


@pytest.mark.parametrize("times", COUNTS)
def test_whatever_a_file_holds_loading_it_never_raises(saved, tmp_path, times):
    """Files with the right names and other contents, as another version or a program may have written them."""
    ex, folder = saved
    entries = listed(folder)
    switches = [switch for switch in ex.live.program.switches if switch.artifact is not None]
    manifest = {"kind": "regional-explorer artifacts", "format": 2, "artifacts": [asdict(entry) for entry in entries]}
    wrong = []

    @settings(max_examples=40 * times, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def each(data):
        copied = tmp_path / "copy"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(folder, copied)
        if data.draw(st.booleans()):
            rewrite(copied, packed=lambda packed: data.draw(other_parts(packed)))
        else:
            replace_manifests(copied, data.draw(mutated(manifest)).encode())
        artifacts, switch = folder_at(copied), data.draw(st.sampled_from(switches))
        known = switch.artifact
        wanted = ex.live.program.wanted(known.key, switch)
        loaded = ArtifactStore(folder=artifacts).load(wanted)
        wrong.append(loaded is None)
        assert loaded is None or (loaded.key, loaded.config) == (known.key, known.config)
        artifacts.note_missing(wanted.label())
        assert {finding.code for finding in artifacts.findings} <= {"artifact-damaged", "artifact-differs"}

    each()
    assert any(wrong)


def test_files_of_the_older_format_are_made_again_and_told_in_one_line(net, x, folder):
    folder.mkdir(0o755)
    for name in ("ee7910f2a8fbf7d1d5c2-0f3c9f55", "b3cf045d3e26a4b2f3a1-0f3c9f55"):
        (folder / f"{name}.artifact").write_bytes(b"PK")
    compiled = rx.compile(net, PLAN, artifacts=folder)
    with pytest.warns(UserWarning, match=r"\[artifact-differs\] 2 files in .* of format 1.*saved in format 2") as found:
        torch.testing.assert_close(trained(compiled, net, x), trained(net, net, x))
    assert len(found) == 1
    assert told(compiled) == [("artifact-differs", None)]
    assert_loads(net, x, artifacts=folder)


def test_artifacts_of_another_torch_are_told_and_kept(net, x, filled):
    rewrite(filled, lambda label: replace(label, machine=replace(label.machine, torch="1.0 (abc)")))
    why = r"they were made with torch 1\.0 \(abc\), here is"
    match = rf"\[artifact-differs\] Region 'norm' is compiled again.*{why}"
    assert_compiles(net, x, match=match, artifacts=filled)
    by_torch = [entry.label.machine.torch for entry in listed(filled)]
    assert by_torch.count("1.0 (abc)") == 4
    assert len(by_torch) == 8, "each machine has its own"


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


def test_another_plan_graph_or_setting_is_told_and_compiled_anew(net, x, filled):
    here = torch.get_num_threads()
    wider = torch.randn(6, 8)
    other = rx.Plan((rx.Region("other", PLAN["act"].selectors, {"max_fusion_size": 8, "epilogue_fusion": False}),))
    cases = [
        (PLAN.configured("act", {"max_fusion_size": 4}), x, here, r"'act'.*compiled under max_fusion_size=8, here 4"),
        (PLAN, x, here + 1, f"'act'.*compiled under threads={here}, here {here + 1}"),
        (other, x, here, "'other'.*compiled under epilogue_fusion=the default, here False"),
        # The last: from then on Dynamo takes the size for a dynamic one, until it is reset.
        (PLAN, wider, here, "'norm'.*for another graph, or for inputs of other sizes"),
    ]
    for plan, value, count, why in cases:
        compiled = rx.compile(net, plan, artifacts=filled)
        with torch_threads(count), pytest.warns(UserWarning, match=rf"\[artifact-differs\] Region {why}"):
            torch.testing.assert_close(trained(compiled, net, value), trained(net, net, value))
    torch._dynamo.reset()
    strict = rx.compile(net, PLAN.configured("norm", {"max_fusion_size": 3}), artifacts=filled, strict=True)
    with pytest.raises(PlanError, match=r"artifact-differs.*write them where the program runs, and the way it runs"):
        strict(x)


def test_of_several_artifacts_the_nearest_says_why(net, x, filled, tmp_path):
    other = shutil.copytree(filled, tmp_path / "other")
    rewrite(other, lambda label: replace(label, key=f"0{label.key}", config={**label.config, "max_fusion_size": "4"}))
    shutil.copytree(other, filled, dirs_exist_ok=True)
    here = torch.get_num_threads()
    why = f"'act'.*compiled under threads={here}, here {here + 1}"
    with torch_threads(here + 1), pytest.warns(UserWarning, match=why):
        trained(rx.compile(net, PLAN, artifacts=filled), net, x)


def test_a_directory_that_cannot_be_written_is_told(net, x, folder, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("regional_explorer.compiler.artifact_folder.replacing", full)
    match = r"\[artifact-unsaved\] .*No space left on device"
    compiled = assert_compiles(net, x, match=match, artifacts=folder)
    assert {str(part.state) for part in rx.status(compiled).partitions} == {"compiled"}
    with pytest.raises(ArtifactError, match="No space left"):
        rx.explore(net, (x,), plan=PLAN).save_artifacts(folder)


def test_what_is_no_directory_is_refused(net, x, tmp_path):
    (tmp_path / "file").write_text("")
    ex = rx.explore(net, (x,), plan=PLAN)
    for wrong in (tmp_path / "file", 3, ""):
        for use in (
            lambda wrong=wrong: rx.compile(net, PLAN, artifacts=wrong),
            lambda wrong=wrong: ex.save_artifacts(wrong),
        ):
            with pytest.raises(ArtifactError, match="directory"):
                use()


def test_nothing_is_loaded_from_a_directory_that_was_not_named(net, x, filled, monkeypatch):
    monkeypatch.chdir(filled)
    assert_compiles(net, x)


# ------------------------------------------------------------------------------------------------- whose code is loaded


def test_of_a_plan_that_lists_its_artifacts_only_those_are_loaded(net, x, folder, tmp_path):
    ex = rx.explore(net, (x,), plan=PLAN)
    ex.save_artifacts(folder)
    plan = ex.save_plan(tmp_path / "plan.json")
    assert json.loads(plan.read_text())["artifacts"] == sorted(entry.sha256 for entry in listed(folder))
    assert_loads(net, x, plan, artifacts=folder)
    # Others that fit as well, and that only differ in their content.
    rewrite(folder, packed=lambda packed: replace(packed, libraries={**packed.libraries, "more": b""}))
    files = sorted(folder.iterdir())
    match = r"\[artifact-differs\] Region 'norm' is compiled again: .* the plan does not list"
    compiled = assert_compiles(net, x, plan, match=match, artifacts=folder)
    assert set(told(compiled)) == {("artifact-differs", "act"), ("artifact-differs", "norm")}
    assert sorted(folder.iterdir()) == files, "they are intact and fit, so nothing is written beside them"
    with pytest.raises(PlanError, match=r"the plan does not list.*Save the plan after its artifacts.*trust_artifacts="):
        rx.compile(net, plan, artifacts=folder, strict=True)(x)
    assert_loads(net, x, plan, artifacts=folder, trust_artifacts=True)


def test_a_plan_lists_the_artifacts_that_were_saved_of_it_before_and_saving_again_writes_nothing(
    net, x, folder, tmp_path
):
    def artifacts(path):
        return json.loads(path.read_text()).get("artifacts", [])

    ex = rx.explore(net, (x,), plan=PLAN)
    earlier = ex.save_plan(tmp_path / "earlier.json")
    assert artifacts(earlier) == []
    assert json.loads(earlier.read_text())["format"] == 3
    files = sorted(ex.save_artifacts(folder).iterdir())
    ex.save_artifacts(folder)
    assert sorted(folder.iterdir()) == files, "nothing new is written"
    listed_first = artifacts(ex.save_plan(tmp_path / "plan.json"))
    assert len(listed_first) == 4
    ex.disable("act")
    assert len(artifacts(ex.save_plan(tmp_path / "plan.json"))) == 2
    ex.enable("act")
    ex.retrace()
    ex.compile()
    ex.close()
    assert artifacts(ex.save_plan(tmp_path / "plan.json")) == listed_first
    older = tmp_path / "older.json"
    older.write_text(json.dumps({**json.loads(earlier.read_text()), "format": 2}))
    assert_loads(net, x, older, artifacts=folder)  # a plan that lists none loads all that fit


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has no such permissions")
class TestPermissions:
    @pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
    def test_a_directory_that_others_may_write_is_refused(self, net, x, filled, mode):
        ex = rx.explore(net, (x,), plan=PLAN)
        assert filled.stat().st_mode & 0o022 == 0
        filled.chmod(mode)
        for use in (lambda: rx.compile(net, PLAN, artifacts=filled), lambda: ex.save_artifacts(filled)):
            with pytest.raises(ArtifactError, match=r"may be written by others .*chmod go-w.*trust_artifacts=True"):
                use()
        assert_loads(net, x, artifacts=filled, trust_artifacts=True)

    def test_a_directory_of_another_user_is_refused(self, net, folder, monkeypatch):
        folder.mkdir()
        if os.getuid() == 0:
            os.chown(folder, 65534, -1)
        else:
            other = os.getuid() + 1
            monkeypatch.setattr(os, "getuid", lambda: other)
        with pytest.raises(ArtifactError, match="belongs to another user"):
            rx.compile(net, PLAN, artifacts=folder)
        rx.compile(net, PLAN, artifacts=folder, trust_artifacts=True)

    def test_a_file_that_others_may_write_is_not_loaded(self, net, x, filled):
        for path in filled.glob("*.artifact"):
            path.chmod(0o666)
        match = r"\[artifact-damaged\] .*may be written by others"
        assert_compiles(net, x, match=match, artifacts=filled)
        assert_loads(net, x, artifacts=filled)  # they were written again


# ------------------------------------------------------------------------------------------------------------ whose GPU


def creating(device: str) -> fx.GraphModule:
    """Return a graph that takes a tensor and adds one of ones, which it makes on a device."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    ones = graph.call_function(torch.ops.aten.ones.default, ([4],), {"device": torch.device(device)})
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (x, ones)),))
    return fx.GraphModule({}, graph)


def test_an_artifact_is_labelled_with_the_gpu_that_its_partition_runs_on(monkeypatch):
    """Not only if an input is there, and not with whichever GPU is current."""
    current = 0

    def properties(device=None):
        index = torch.device(device).index if device is not None else None
        return SimpleNamespace(name=f"GPU {current if index is None else index}", major=9, minor=0)

    def gpu(piece_device: str, input_device: str) -> str:
        claim = SimpleNamespace(region="r")
        piece: Any = SimpleNamespace(gm=creating(piece_device), claim=claim, graph_id="0/forward")
        layout = Layout("torch.float32", (4,), (1,), input_device)
        return Wanted("key", piece, [layout], {}, "fingerprint").label().machine.gpu.partition(",")[0]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    assert gpu("cpu", "cpu") == ""
    assert gpu("cuda:1", "cpu") == "GPU 1 (9.0)", "a GPU that only ops of the partition use"
    assert gpu("cpu", "cuda:1") == "GPU 1 (9.0)", "not the current one"
    assert gpu("cuda:0", "cuda:1") == "GPU 0 (9.0) and GPU 1 (9.0)"
    assert gpu("cuda", "cpu") == "GPU 0 (9.0)", "without a number it is the current one"
