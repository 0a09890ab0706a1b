"""Artifacts on disk: another process starts from them without compiling, and reports those that do not fit."""

import functools
import json
import os
import pickle
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
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
from regional_explorer.compiler.artifact import ArtifactStore
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
from regional_explorer.compiler.workpiece import WantedArtifact, Workpiece
from regional_explorer.errors import ArtifactError, PlanError
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.torch_api.shipping import PackedCode
from tests.shared import programs
from tests.shared.checks import partitions_and_configs, train_step
from tests.shared.mutations import mutations
from tests.shared.processes import python
from tests.shared.work import torch_threads

pytestmark = [pytest.mark.compiles, pytest.mark.usefixtures("own_recompile_limit")]

PLAN = programs.plan_of(act="act", norm="norm").configured("act", {"max_fusion_size": 8})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

    def forward(self, x):
        return (x + self.down(self.act(self.up(self.norm(x))))).square().mean()


def inputs():
    return torch.randn(4, 8)


@pytest.fixture
def net():
    return Net()


@pytest.fixture
def x():
    return inputs()


@pytest.fixture(scope="module")
def static_artifacts(tmp_path_factory):
    """Return an exploration with static sizes, and a directory with its artifacts."""
    ex = rx.explore(Net(), (inputs(),), plan=PLAN)
    yield ex, ex.save_artifacts(tmp_path_factory.mktemp("explored") / "artifacts")
    ex.close()


@pytest.fixture(scope="module")
def dynamic_artifacts(tmp_path_factory):
    """Return an exploration with dynamic sizes, and a directory with its artifacts."""
    ex = rx.explore(Net(), (inputs(),), plan=PLAN, dynamic=True)
    yield ex, ex.save_artifacts(tmp_path_factory.mktemp("saved") / "artifacts")
    ex.close()


@pytest.fixture
def folder(tmp_path):
    """Return a directory that does not exist yet."""
    return tmp_path / "artifacts"


@pytest.fixture
def copied_folder(static_artifacts, folder):
    """Return a copy of the static artifacts that the test may change."""
    return shutil.copytree(static_artifacts[1], folder)


def caches(compiled):
    return {artifact.compile.cache for artifact in rx.status(compiled).artifacts.values()}


def warnings_as_errors():
    """Context manager: turn warnings into errors."""
    return warnings.catch_warnings(action="error", category=UserWarning)


def assert_loads(net, x, plan=PLAN, **options):
    """Assert that all code is loaded, nothing compiled, and nothing reported."""
    compiled = rx.compile(net, plan, **options)
    with warnings_as_errors():
        torch.testing.assert_close(train_step(compiled, net, x), train_step(net, net, x))
    assert caches(compiled) == {"shipped"}
    assert codes_and_regions(compiled) == []
    return compiled


def assert_compiles(net, x, plan=PLAN, *, match, **options):
    """Assert that all code is compiled, with a warning."""
    compiled = rx.compile(net, plan, **options)
    with pytest.warns(UserWarning, match=match):
        torch.testing.assert_close(train_step(compiled, net, x), train_step(net, net, x))
    found = rx.status(compiled)
    assert [str(part.state) for part in found.partitions] == ["compiled"] * 4, "two regions, forward and backward"
    assert {found.artifacts[part.artifact].compile.cache for part in found.partitions} <= {"cold", "warm"}
    return compiled


def codes_and_regions(compiled):
    return [(str(found.code), found.region) for found in rx.status(compiled).diagnostics]


def test_artifacts_are_loaded_by_later_processes(net, x, folder):
    """A graph that the first process has not run yet, such as the backward, is no difference."""
    torch.testing.assert_close(rx.compile(net, PLAN, artifacts=folder)(x), net(x))
    assert {entry.label.graph for entry in entries_of(folder)} == {"0/forward"}
    second = rx.compile(net, PLAN, artifacts=folder)
    with warnings_as_errors():
        results = train_step(second, net, x)
    assert codes_and_regions(second) == []
    assert "shipped" in caches(second), "the forward was loaded"
    assert caches(second) - {"shipped"}, "the backward was compiled"
    assert len(list(folder.glob("*.artifact"))) == 4, "two regions, forward and backward"
    third = assert_loads(net, x, artifacts=str(folder))
    torch.testing.assert_close(train_step(third, net, x), results, rtol=0, atol=0)
    assert partitions_and_configs(rx.status(third)) == partitions_and_configs(rx.status(second))


def test_loaded_artifacts_keep_the_guards_of_dynamic_sizes(net, dynamic_artifacts):
    compiled = rx.compile(net, PLAN, artifacts=dynamic_artifacts[1], dynamic=True)
    for size in (4, 5, 9):
        x = torch.randn(size, 8)
        torch.testing.assert_close(train_step(compiled, net, x), train_step(net, net, x))
    assert caches(compiled) == {"shipped"}


FRESH = """
import warnings
warnings.simplefilter("error", UserWarning)  # torch's own imports warn of what is deprecated
import torch
import regional_explorer as rx
from tests.compiler.test_artifacts import PLAN, Net, inputs
from tests.shared.checks import train_step
torch.set_num_threads({threads})
net, x = Net(), inputs()
compiled = rx.compile(net, PLAN, artifacts={folder!r})
for _ in range(3):
    torch.testing.assert_close(train_step(compiled, net, x), train_step(net, net, x))
print(sorted({{str(part.state) for part in rx.status(compiled).partitions}}))
print(sorted({{artifact.compile.cache for artifact in rx.status(compiled).artifacts.values()}}))
"""


def train_elsewhere(folder, cache, **environment):
    """Train with the artifacts in ``folder`` in a new process; return the lines with its states and its caches."""
    program = FRESH.format(folder=str(folder), threads=torch.get_num_threads())
    return python(program, cache=cache, env={"CXX": None, "CC": None, **environment}).out.splitlines()


def test_a_fresh_process_without_a_compiler_runs_compiled_code(copied_folder, tmp_path):
    (tmp_path / "nothing").mkdir()
    printed = train_elsewhere(copied_folder, tmp_path / "cache", PATH=str(tmp_path / "nothing"))
    assert printed == ["['compiled']", "['shipped']"]


@pytest.mark.slow
def test_concurrent_processes_write_usable_artifacts(folder, tmp_path):
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda index: train_elsewhere(folder, tmp_path / f"cache{index}"), range(3)))
    assert {run[0] for run in runs} == {"['compiled']"}
    assert_readable(folder)
    assert train_elsewhere(folder, tmp_path / "cache3") == ["['compiled']", "['shipped']"]


# --------------------------------------------------------------------------------------------- files and their contents


MACHINE = replace(Machine.here(), cpu=("avx", "fma"))
LABEL = Label("key", "r", "0/forward", "fingerprint", {"max_fusion_size": "8"}, {"threads": "2"}, MACHINE)
OTHER = replace(LABEL, key="other")
PACKED = PackedCode(b"code", {"x": b"library"})


def entries_of(folder: Path) -> list[Entry]:
    """Return the entries of all manifests."""
    return [entry for path in sorted(folder.glob("manifest-*.json")) for entry in read_manifest(path.read_bytes())]


def read(folder: Path, entry: Entry) -> PackedCode:
    return read_archive((folder / f"{entry.sha256}.artifact").read_bytes(), entry.label.key)


def as_packed(packed: PackedCode) -> PackedCode:
    return packed


def write_missing(folder: Path, labels: Sequence[Label] = (LABEL, OTHER)) -> list[Diagnostic]:
    """Assert that these artifacts are missing, write them, and assert that they load; return the diagnostics."""
    artifacts = ArtifactFolder(folder)
    for label in labels:
        assert artifacts.load(label, as_packed) is None
        artifacts.add_missing_finding(label)
        artifacts.save(label, lambda: PACKED)
    artifacts.write_manifest()
    again = ArtifactFolder(folder)
    assert [again.load(label, as_packed) for label in labels] == [PACKED] * len(labels)
    assert again.findings == []
    return artifacts.findings


def assert_readable(folder: Path) -> None:
    """Assert that every file has the content of its name, is listed and can be unpacked, and that no other exists."""
    assert {path.suffix for path in folder.iterdir()} == {".artifact", ".json"}
    for path in folder.glob("*.artifact"):
        assert path.stem == sha256_of(path.read_bytes())
    entries = entries_of(folder)
    assert {entry.sha256 for entry in entries} == {path.stem for path in folder.glob("*.artifact")}
    assert all(read(folder, entry) for entry in entries)


def rewrite(folder: Path, change: Callable[[PackedCode], PackedCode]) -> None:
    """Write all artifacts again with other contents, as another version would."""
    contents = [(entry.label, read(folder, entry)) for entry in entries_of(folder)]
    shutil.rmtree(folder)
    artifacts = ArtifactFolder(folder)
    for label, content in contents:
        artifacts.save(label, functools.partial(change, content))
    artifacts.write_manifest()


def test_concurrent_writers_leave_readable_files(folder):
    """Each writes its own content of every artifact; an artifact that is there already is not written again."""
    labels = [replace(LABEL, key=f"key{index}") for index in range(8)]
    start = threading.Barrier(4)

    def write(own: int) -> None:
        start.wait()
        artifacts = ArtifactFolder(folder)
        for label in labels:
            artifacts.save(label, lambda: PackedCode(b"code of %d" % own, {"x": b"library"}))
            assert artifacts.load(label, as_packed) is None or artifacts.findings == []
        artifacts.write_manifest()
        assert artifacts.findings == []

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert_readable(folder)
    artifacts = ArtifactFolder(folder)
    assert all(artifacts.load(label, as_packed).libraries == {"x": b"library"} for label in labels)
    assert artifacts.findings == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as POSIX has them")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_killed_writer_leaves_no_loadable_file(folder):
    """The writer is killed in its second file; the first is complete, but there is no manifest."""
    if not (child := os.fork()):
        try:
            artifacts = ArtifactFolder(folder)
            artifacts.save(LABEL, lambda: PACKED)
            os.fsync = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            artifacts.save(OTHER, lambda: PACKED)
        finally:
            os.abort()
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert {path.suffix for path in folder.iterdir()} == {".artifact", ".tmp"}
    assert write_missing(folder) == []


def test_no_class_of_this_package_is_in_a_file(dynamic_artifacts):
    """Modules of this package may move. The versions of torch and Python are on the label."""
    _, folder = dynamic_artifacts
    packed = [read(folder, entry) for entry in entries_of(folder)]
    assert any(b"sympy" in artifact.sizes for artifact in packed), "there are guards"
    assert not any(b"regional_explorer." in artifact.code + artifact.sizes for artifact in packed)


# --------------------------------------------------------------------------------------------------- what does not fit


def for_each_file(change: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Return a function that changes the file of each artifact."""

    def change_all(folder: Path) -> None:
        for path in folder.glob("*.artifact"):
            change(path)

    return change_all


def replace_manifests(folder: Path, content: bytes) -> None:
    """Replace the manifests of the folder by one with this content, correctly named."""
    for path in folder.glob("manifest-*.json"):
        path.unlink()
    (folder / f"manifest-{sha256_of(content)[:16]}.json").write_bytes(content)


def set_newer_format(folder: Path) -> None:
    replace_manifests(folder, manifest_content(entries_of(folder)).replace(b'"format": 2', b'"format": 3'))


def exchange_files(folder: Path) -> None:
    """Make each entry name the file of another entry."""
    entries = entries_of(folder)
    others = [Entry(one.label, other.sha256) for one, other in zip(entries, entries[::-1], strict=True)]
    replace_manifests(folder, manifest_content(others))


def rewriter(**parts: Any) -> Callable[[Path], None]:
    """Return a function that writes all artifacts with other parts, correctly named and listed."""
    return lambda folder: rewrite(folder, lambda packed: replace(packed, **parts))


DAMAGES = {
    "removed": for_each_file(Path.unlink),
    "manifests of something else": lambda folder: replace_manifests(folder, b'{"something": "else"}'),
    "a newer format": set_newer_format,
    "entries exchanged": exchange_files,
    "code that is none": rewriter(code=b"nothing of the kind"),
    "code of another kind": rewriter(code=pickle.dumps({"a": 1})),
    "no libraries": rewriter(libraries={}),
    "libraries that are none": lambda folder: rewrite(
        folder, lambda packed: replace(packed, libraries=dict.fromkeys(packed.libraries, b"no library"))
    ),
    "another layout of classes": rewriter(sizes=pickle.dumps(7)),
    "a class that is gone": rewriter(sizes=b"cregional_explorer.gone\nSizes\n."),
    "places that are not there": rewriter(sizes=pickle.dumps((((99, 0),), None))),
    "a guard that is none": rewriter(sizes=pickle.dumps((((0, 0),), (("s",), ("s > 1",))))),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_artifact_is_reported_and_rewritten(dynamic_artifacts, folder, damage):
    ex, whole = dynamic_artifacts
    packed = {entry.label.key: read(whole, entry) for entry in entries_of(whole)}
    DAMAGES[damage](shutil.copytree(whole, folder))
    wanted = {s.artifact.key: ex.live.program.wanted(s.artifact.key, s) for s in ex.live.program.switches if s.artifact}
    artifacts = folder_at(folder)
    for key, needed in wanted.items():
        assert ArtifactStore(folder=artifacts).load(needed) is None
        artifacts.add_missing_finding(needed.label())
        artifacts.save(needed.label(), functools.partial(packed.get, key))
    artifacts.write_manifest()
    assert {finding.code for finding in artifacts.findings} == {"artifact-damaged"}
    assert all("cannot be used" in finding.message for finding in artifacts.findings)
    assert all(ArtifactStore(folder=folder_at(folder)).load(needed) for needed in wanted.values())


@pytest.mark.parametrize("pattern", ["*.artifact", "manifest-*.json", "*"])
def test_files_written_under_a_group_umask_are_not_called_damaged(dynamic_artifacts, folder, pattern):
    _, whole = dynamic_artifacts
    shutil.copytree(whole, folder)
    for path in folder.glob(pattern):
        path.chmod(0o664)
    artifacts = folder_at(folder)
    labels = [entry.label for entry in entries_of(whole)]
    assert [artifacts.load(label, as_packed) for label in labels] == [None] * len(labels)
    (finding,) = artifacts.findings
    assert finding.code == "artifact-differs"
    assert f"chmod go-w {folder}/*" in finding.remedy
    for path in folder.glob("*"):
        path.chmod(0o644)
    assert all(folder_at(folder).load(label, as_packed) for label in labels)


def test_a_wrong_path_of_artifacts_is_reported_and_not_made(net, x, tmp_path, monkeypatch):
    ex = rx.explore(net, (x,), grad=False).mark("r", ops="*")
    ex.save_artifacts(tmp_path / "built")
    ex.save_plan(tmp_path / "plan.json")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for wrong, says in (
        (tmp_path / "wrong/path", "does not exist"),
        (tmp_path / "empty", "has none"),
        ("built", "not"),
    ):
        with torch.no_grad():
            with pytest.raises(rx.PlanError, match=says):
                rx.compile(net, tmp_path / "plan.json", artifacts=wrong, strict=True)(x)
            compiled = rx.compile(net, tmp_path / "plan.json", artifacts=wrong)
            with pytest.warns(match=rf"\[artifact-differs\] The directory of artifacts {says}|not exist"):
                compiled(x)
        (found,) = rx.status(compiled).diagnostics
        assert str(Path(wrong).absolute()) in found.message
    assert not (tmp_path / "wrong").exists()
    assert not (tmp_path / "empty/built").exists()


def test_a_directory_that_no_plan_lists_is_made(net, x, tmp_path):
    ex = rx.explore(net, (x,), grad=False).mark("r", ops="*")
    ex.save_plan(tmp_path / "plan.json")
    with torch.no_grad():
        compiled = rx.compile(net, tmp_path / "plan.json", artifacts=tmp_path / "new/folder", strict=True)
        compiled(x)
    assert rx.status(compiled).diagnostics == ()
    assert list((tmp_path / "new/folder").glob("*.artifact"))


def test_damaged_artifact_is_reported_by_the_call(net, x, copied_folder):
    DAMAGES["no libraries"](copied_folder)
    compiled = assert_compiles(net, x, match=r"\[artifact-damaged\] .*cannot be used", artifacts=copied_folder)
    assert {code for code, _ in codes_and_regions(compiled)} == {"artifact-damaged"}
    assert_loads(net, x, artifacts=copied_folder)  # damaged artifacts are written again


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
def test_changed_bytes_of_any_file_are_detected(dynamic_artifacts, tmp_path, times):
    """Each artifact loads as it was written, or the damage is reported."""
    _, folder = dynamic_artifacts
    entries, files = entries_of(folder), sorted(folder.iterdir())
    written = {entry.label.key: read(folder, entry) for entry in entries}
    copied = shutil.copytree(folder, tmp_path / "copy")

    @settings(max_examples=200 * times, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def each(data):
        file = data.draw(st.sampled_from(files))
        path = copied / file.name
        path.write_bytes(data.draw(changed_bytes(file.read_bytes())))
        artifacts = folder_at(copied)
        loaded = [artifacts.load(entry.label, as_packed) for entry in entries]
        shutil.copy(file, path)
        assert all(packed in (None, written[entry.label.key]) for packed, entry in zip(loaded, entries, strict=True))
        assert None in loaded
        assert {finding.code for finding in artifacts.findings} == {"artifact-damaged"}

    each()


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just(torch.float32)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner), max_leaves=6)
PICKLES = VALUES.map(pickle.dumps) | st.sampled_from([b"", b"x", b"cregional_explorer.gone\nSizes\n.", b"cos\ngone\n."])


@st.composite
def other_parts(draw: st.DrawFn, packed: PackedCode) -> PackedCode:
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
def test_loading_any_file_never_raises(dynamic_artifacts, tmp_path, times):
    """Files with the right names and other contents, as another version or a program may have written them."""
    ex, folder = dynamic_artifacts
    entries = entries_of(folder)
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
            rewrite(copied, lambda packed: data.draw(other_parts(packed)))
        else:
            replace_manifests(copied, data.draw(mutations(manifest)).encode())
        artifacts, switch = folder_at(copied), data.draw(st.sampled_from(switches))
        known = switch.artifact
        wanted = ex.live.program.wanted(known.key, switch)
        loaded = ArtifactStore(folder=artifacts).load(wanted)
        wrong.append(loaded is None)
        assert loaded is None or (loaded.key, loaded.config) == (known.key, known.config)
        artifacts.add_missing_finding(wanted.label())
        assert {finding.code for finding in artifacts.findings} <= {"artifact-damaged", "artifact-differs"}

    each()
    assert any(wrong)


def mismatch_message(folder: Path, *others: dict[str, Any]) -> str:
    """Return the message about a folder whose artifacts all have other labels; assert that they are kept."""
    artifacts = ArtifactFolder(folder)
    for number, other in enumerate(others):
        artifacts.save(replace(LABEL, key=f"other {number}", **other), lambda: PACKED)
    artifacts.write_manifest()
    (found,) = write_missing(folder, [LABEL])
    assert (str(found.code), found.region) == ("artifact-differs", "r")
    assert len(entries_of(folder)) == len(others) + 1
    return found.message


DIFFERENT = {
    "they were compiled under max_fusion_size=4, here 8": {"config": {"max_fusion_size": "4"}},
    "they were compiled under max_fusion_size=the default, here 8": {"config": {}},
    "they were compiled under threads=1, here 2": {"settings": {"threads": "1"}, "region": "another"},
    "they are for another graph, or for inputs of other sizes": {"fingerprint": "another"},
    "there is none for region 'r'": {"fingerprint": "another", "region": "another"},
    "they were made with torch 1.0 (abc), here is": {"machine": replace(MACHINE, torch="1.0 (abc)")},
    "they were made with Python cpython-27, here is": {"machine": replace(MACHINE, python="cpython-27")},
    "they were made with GPU Another, here is none": {"machine": replace(MACHINE, gpu="Another")},
    "a processor with avx1024, which this one lacks": {"machine": replace(MACHINE, cpu=("avx", "avx1024"))},
    "they were made with Plan9 mips, here is": {"machine": replace(MACHINE, system="Plan9 mips")},
}


@pytest.mark.parametrize("why", DIFFERENT)
def test_the_reason_why_an_artifact_does_not_fit_is_reported(why, folder):
    message = mismatch_message(folder, DIFFERENT[why])
    assert message.startswith(f"Region 'r' is compiled again: no artifact in {folder} fits, ")
    assert why in message


def test_the_message_compares_the_nearest_artifact_if_none_fits(folder):
    setting, config = {"settings": {"threads": "1"}}, {"config": {"max_fusion_size": "4"}}
    assert "fits, they were compiled under threads=1, here 2." in mismatch_message(
        folder, {**setting, **config}, setting
    )


def test_newer_processor_runs_older_artifacts():
    assert not replace(MACHINE, cpu=()).mismatch(MACHINE)


def test_changed_plan_graph_or_setting_is_recompiled(net, x, copied_folder):
    here = torch.get_num_threads()
    configured = PLAN.configured("act", {"max_fusion_size": 4})
    why = "'act'.*compiled under max_fusion_size=8, here 4.*what it compiles is saved for the next run"
    with pytest.raises(PlanError, match=f"artifact-differs.*{why}"):
        rx.compile(net, configured, artifacts=copied_folder, strict=True)(x)
    # The wider inputs last: from then on Dynamo takes the size for a dynamic one, until it is reset.
    for value, count, why in (
        (x, here + 1, f"'act'.*compiled under threads={here}, here {here + 1}"),
        (torch.randn(6, 8), here, "'norm'.*for another graph, or for inputs of other sizes"),
    ):
        compiled = rx.compile(net, PLAN, artifacts=copied_folder)
        with torch_threads(count), pytest.warns(UserWarning, match=rf"\[artifact-differs\] Region {why}"):
            torch.testing.assert_close(compiled(value), net(value))
    torch._dynamo.reset()


@pytest.mark.parametrize("code", ["artifact-differs", "artifact-damaged"])
def test_with_strict_a_missing_artifact_is_an_error_in_every_call(code, net, x, copied_folder):
    plan = PLAN.configured("act", {"max_fusion_size": 4}) if code == "artifact-differs" else PLAN
    if code == "artifact-damaged":
        DAMAGES["no libraries"](copied_folder)
    strict = rx.compile(net, plan, artifacts=copied_folder, strict=True)
    for _ in range(3):
        with pytest.raises(PlanError, match=code):
            strict(x)


def test_unwritable_directory_is_reported(net, x, static_artifacts, folder, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("regional_explorer.compiler.artifact_folder.replacing_file", full)
    compiled = rx.compile(net, PLAN, artifacts=folder)
    with torch.no_grad(), pytest.warns(UserWarning, match=r"\[artifact-unsaved\] .*No space left on device"):
        torch.testing.assert_close(compiled(x), net(x))
    assert {str(part.state) for part in rx.status(compiled).partitions} == {"compiled"}
    with pytest.raises(ArtifactError, match="No space left"):
        static_artifacts[0].save_artifacts(folder)


def assert_refused(match, net, ex, path):
    for use in (lambda: rx.compile(net, PLAN, artifacts=path), lambda: ex.save_artifacts(path)):
        with pytest.raises(ArtifactError, match=match):
            use()


def test_file_as_directory_is_refused(net, static_artifacts, tmp_path):
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", 3, ""):
        assert_refused("directory", net, static_artifacts[0], wrong)


def test_the_working_directory_is_not_searched_for_artifacts(net, x, copied_folder, monkeypatch):
    monkeypatch.chdir(copied_folder)
    compiled = rx.compile(net, PLAN)
    compiled(x)
    assert caches(compiled) <= {"cold", "warm"}


# ------------------------------------------------------------------------------------------------- whose code is loaded


def test_only_artifacts_that_the_plan_lists_are_loaded(net, x, static_artifacts, copied_folder, tmp_path):
    ex, folder = static_artifacts[0], copied_folder
    plan = ex.save_plan(tmp_path / "plan.json")
    assert json.loads(plan.read_text())["artifacts"] == sorted(entry.sha256 for entry in entries_of(folder))
    compiled = assert_loads(net, x, plan, artifacts=folder)
    assert {part.artifact for part in rx.status(compiled).partitions} == set(ex.partitions["artifact"])
    # Artifacts that fit as well, and differ only in their content.
    rewrite(folder, lambda packed: replace(packed, libraries={**packed.libraries, "more": b""}))
    files = sorted(folder.iterdir())
    match = r"\[artifact-differs\] Region 'norm' is compiled again: .* the plan does not list"
    compiled = assert_compiles(net, x, plan, match=match, artifacts=folder)
    assert set(codes_and_regions(compiled)) == {("artifact-differs", "act"), ("artifact-differs", "norm")}
    assert sorted(folder.iterdir()) == files, "they are intact and fit, so nothing is written beside them"
    with pytest.raises(PlanError, match=r"the plan does not list.*Save the plan after its artifacts.*trust_artifacts="):
        rx.compile(net, plan, artifacts=folder, strict=True)(x)
    assert_loads(net, x, plan, artifacts=folder, trust_artifacts=True)


def test_plan_lists_its_artifacts_and_second_save_writes_nothing(net, x, folder, tmp_path):
    def artifacts(path):
        return json.loads(path.read_text()).get("artifacts", [])

    ex = rx.explore(net, (x,), plan=PLAN)
    earlier = ex.save_plan(tmp_path / "earlier.json")
    assert artifacts(earlier) == []
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
    assert_loads(net, x, earlier, artifacts=folder)  # a plan that lists none loads all that fit


def test_a_directory_that_others_may_write_is_refused(net, x, static_artifacts, copied_folder):
    assert copied_folder.stat().st_mode & 0o022 == 0
    for mode in (0o777, 0o775, 0o1777):
        copied_folder.chmod(mode)
        match = r"may be written by others .*chmod go-w.*trust_artifacts=True"
        assert_refused(match, net, static_artifacts[0], copied_folder)
    assert_loads(net, x, artifacts=copied_folder, trust_artifacts=True)


def test_a_directory_of_another_user_is_refused(net, static_artifacts, folder, monkeypatch):
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, 65534, -1)
    else:
        other = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: other)
    assert_refused("belongs to another user", net, static_artifacts[0], folder)
    rx.compile(net, PLAN, artifacts=folder, trust_artifacts=True)


# ------------------------------------------------------------------------------------------------------------ whose GPU


def graph_with_ones_on(device: str) -> fx.GraphModule:
    """Return a graph that adds ones to its input; it creates them on ``device``."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    ones = graph.call_function(torch.ops.aten.ones.default, ([4],), {"device": torch.device(device)})
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (x, ones)),))
    return fx.GraphModule({}, graph)


def test_an_artifacts_label_has_the_gpus_of_its_partition(monkeypatch):
    """A GPU counts even if no input is on it; the current GPU does not count."""
    current = 0

    def properties(device=None):
        index = torch.device(device).index if device is not None else None
        return SimpleNamespace(name=f"GPU {current if index is None else index}", major=9, minor=0)

    def gpu(piece_device: str, input_device: str) -> str:
        claim = SimpleNamespace(region="r")
        piece: Any = SimpleNamespace(gm=graph_with_ones_on(piece_device), claim=claim, graph_id="0/forward")
        layout = Layout("torch.float32", (4,), (1,), input_device)
        return (
            WantedArtifact("key", Workpiece(piece, (layout,), (), "fingerprint"), {})
            .label()
            .machine.gpu.partition(",")[0]
        )

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    assert gpu("cpu", "cpu") == ""
    assert gpu("cuda:1", "cpu") == "GPU 1 (9.0)", "a GPU that only ops of the partition use"
    assert gpu("cpu", "cuda:1") == "GPU 1 (9.0)", "not the current one"
    assert gpu("cuda:0", "cuda:1") == "GPU 0 (9.0) and GPU 1 (9.0)"
    assert gpu("cuda", "cpu") == "GPU 0 (9.0)", "without a number it is the current one"
