"""``ex.to_source``: exploring the changed source gives the same partitions and configs."""

import functools
import gc
import importlib.util
import itertools
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent, indent
from types import FunctionType, SimpleNamespace

import pytest
import torch

import regional_explorer as rx
from regional_explorer.capture.swapped_functions import run_under_changed_source

FEW = {"max_fusion_size": 8}
NUMBERS = itertools.count()


def git(folder, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    command = ["git", "-C", str(folder), *who, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def load(path):
    spec = importlib.util.spec_from_file_location(f"patched_{next(NUMBERS)}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def partitions(ex):
    """Return the partitions by content."""
    return {(part.region, part.graph, part.nodes, repr(part.config_requested)) for part in ex.session.partitions}


def as_bytes(text):
    """Return the file of a text, which imports torch if it begins with a definition on a line of its own."""
    if isinstance(text, bytes):
        return text
    imports = "import torch\n" if re.match(r"\n *(def|class|async) ", text) else ""
    return (imports + dedent(text)).encode()


class Program:
    """A file under git with a ``call`` in it, explored and marked."""

    def __init__(self, folder, text, mark):
        self.path = folder / "program.py"
        self.path.write_bytes(as_bytes(text))
        git(folder, "init", "-q")
        git(folder, "add", "program.py")
        git(folder, "commit", "-qm", "first")
        self.before = self.path.read_bytes()
        self.mark = mark
        self.ex = self.explore()
        mark(self.ex)

    def explore(self):
        torch.manual_seed(0)
        return rx.explore(load(self.path).call, (torch.ones(2, 4, requires_grad=True),))

    def patched(self):
        """Write the plan into the file, explore that, and return its text: the partitions must be the same."""
        output = self.ex.to_source(apply=True)
        assert "# Region" not in output, output
        text = self.path.read_bytes().decode("utf-8-sig")
        again = self.explore()
        assert partitions(again) == partitions(self.ex), output
        assert {name: dict(again.plan[name].config) for name in (r.name for r in again.plan.regions)} == {
            region.name: dict(region.config) for region in self.ex.plan.regions
        }
        return text


@pytest.fixture
def program(tmp_path):
    return lambda *args, **kwargs: Program(tmp_path, *args, **kwargs)


@pytest.fixture(scope="module")
def cached_program(tmp_path_factory):
    """Return a function that makes the program of a text once, for tests that do not change its file."""
    return functools.cache(lambda text: Program(tmp_path_factory.mktemp("program"), text, lambda _: None))


@pytest.fixture
def shared_program(cached_program):
    one = cached_program(SHARED)
    one.ex.plan = rx.Plan()
    one.ex.mark("r", lines="gate:2")
    yield one
    one.path.write_bytes(one.before)
    git(one.path.parent, "add", "program.py")


def mark_lines(where):
    return lambda ex: ex.mark("r", lines=where).configure("r", FEW)


FUNCTIONS = '''
    import functools
    import torch

    def comments(x):
        # first

        y = x.sin()  # one
        # between

        y = (  # open
            y
            + 1  # inside
        )
            # odd indentation
        # after
        return y * 2

    def gate(x):
        "Doc."
        return x.sin() * 2

    def one_line(x): return x.sin() * 2

    def nested(x):
        def inner(y):
            y = y.exp()
            return y.sin() * y.cos()

        x = x * 2
        return inner(x) + x

    def plain(fn):
        @functools.wraps(fn)
        def wrapper(*args):
            return fn(*args) + 1
        return wrapper

    class Gate(torch.nn.Module):
        @plain
        # why
        def forward(self, x):
            return x.sin() * 2

    def suites(x):
        if x.shape[0] > 1: x = x.sin() * 2
        for step in range(2):
            if step:
                x = x.sin()
                x = x * 2
            else:
                x = x.cos() + 1
        return x

    def texts(x):
        twice = lambda y: y.sin() * 2
        name = f"""{x.shape[0]}
    not indented"""
        x = twice(x); z = x.exp()
        text = f"{name!r:>{10}}"
        y = z.sin()
        name = """first
      second"""
        y = y * len(name)
        return y + len(text)

    def inside(x):
        y = x.sin()
        y = y * 2
        y = y.cos()
        return y + 1

    def carved(x):
        y = x.sin()
        y = y.exp()
        y = y.cos()
        return y + 1

    async def fetch(path):
        async with path as file:
            return [line async for line in file]

    def match(x):
        match x.dim():
            case 2:
                try:
                    x = x.sin() * 2
                finally:
                    pass
            case _:
                x = x.cos()
        while x.dim() < 3:
            x = x.unsqueeze(0).exp()
        return x

    def beside(x):
        y = x.sin(); y = y * 2
        if y.dim() == 2: y = y.exp(); y = y + 1
        return y * 3

    def tabs(x):
    \tif True:
    \t\ty = x.sin()
    \t\ty = y * 2
    \treturn y + 1

    def two_spaces(x):
      y = x.sin()
      y = y * 2
      return y + 1

    def tuples(x):
        for a, b in (2, 3), (4, 5):
            x = x * a
            if a == 9:
                pass
            elif b:
                x = x.sin()
            else:
                x = x.cos()
        for i, (a, b) in enumerate([(1, 2), (3, 4)]):
            x = x * b
        return x

    gate_module = Gate()

    def call(x):
        x = comments(x) + gate(x) + gate(x + 1) + one_line(x) + one_line(x + 1) + nested(x)
        x = gate_module(x) + suites(x) + texts(x) + inside(x) + carved(x)
        x = match(x)[0] + beside(x) + tabs(x) + two_spaces(x)
        return tuples(x)
    '''

FUNCTION_LINES = (
    *("comments:4-11", "gate:3", "one_line:1", "nested.inner:3", "Gate.forward:2", "suites:2", "suites:5-6", "texts:5"),
    *("texts:7-10", "inside:2-4", "inside:3", "carved:2-4", "match:5", "match:11", "beside:2", "beside:3", "tabs:3-4"),
    *("two_spaces:2-3", "tuples:3", "tuples:7", "tuples:11"),
)


def mark_functions(ex):
    for number, where in enumerate(FUNCTION_LINES):
        ex.mark(f"r{number}", lines=where)
        if number % 2:
            ex.configure(f"r{number}", FEW)
    ex.carve(f"r{FUNCTION_LINES.index('carved:2-4')}", lines="carved:3")


STACK = """
    class Stack(nn.ModuleList):
        def forward(self, x):
            for layer in self:
                x = layer(x)
            return x

    def stacks():
        return nn.ModuleList(Stack(nn.Linear(4, 4) for _ in range(2)) for _ in range(2))
    """


def net(init, forward, above=STACK, decorator=""):
    """Return a program whose call is a module with these lines."""
    body = f"class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n\n"
    method = f"{decorator}    def forward(self, x):\n{indent(dedent(forward), ' ' * 8)}"
    return f"import functools\nimport torch\nfrom torch import nn\n{dedent(above)}\n{body}{method}\n\ncall = Net()\n"


LOOPS = net(
    "self.stacks, self.up, self.one, self.two = stacks(), linear(), linear(), linear()\n"
    "        self.a, self.b, self.layers = linear(), linear(), nn.ModuleList(linear() for _ in range(3))",
    """
    for stack in self.stacks:
        for layer in stack:
            x = layer(x)
    for turn in range(3):
        x = self.up(x)
    for layer, turns in (self.one, 2), (self.two, 3):
        x = layer(x)
    x = self.a(x)
    x = self.b(x)
    for layer in self.layers:
        x = layer(x)
    return x.sin()
    """,
    f"""{STACK}
    def linear():
        return nn.Linear(4, 4)

    def passed_on(forward):
        @functools.wraps(forward)
        def wrapper(*args):
            return forward(*args)
        return wrapper
    """,
    "    @passed_on\n",
)


def mark_loops(ex):
    ex.mark("stacks", modules="stacks.*.*").mark("up", modules="up").mark("pair", modules=["one", "two"])
    ex.mark("own", modules=["a", "b"]).mark("layers", modules="layers.*").configure("layers", FEW)


PAUSED = """
    def steps(x):
        y = x.sin()
        yield y * 2
        z = y.cos()
        yield
        yield z.exp()

    def call(x):
        one, _, two = steps(x)
        return one + two
    """
TEXT = '''
    def call(x):
        y = x.sin()
        name = """first
      second"""
        y = y * len(name)
        return y + 1
    '''
NO_IMPORT = """
    '''Doc.'''
    from __future__ import annotations

    import math

    def call(x):
        y = x.sin() * math.pi
        return y + 1
    """
MARKED = """
    import torch
    import regional_explorer as rx
    from torch.fx.traceback import annotate, annotate_fn

    def edited(x):
        with annotate({  # open
            "compile_with_inductor": {"inductor_region": "edited", "inductor_configs": {"max_fusion_size": 2}},
        }):  # keep
            y = x.sin() * 2
        with torch.no_grad(), rx.region("old", max_fusion_size=2, **{"cpp.simdlen": 256}):
            z = x.sin() * 2
        return y + z

    def gone(x):
        # above
        with annotate({"compile_with_inductor": {"inductor_region": "gone"}}):  # beside
            # inside
            y = x.sin() * 2
            # below
        with annotate({"compile_with_inductor": {"inductor_region": "stays"}}):
            y = y.exp() + 1
        return y + 1

    @annotate_fn({"compile_with_inductor": {"inductor_region": "unmarked"}})
    def unmarked(y):
        return y.exp() * 2

    def around(x):
        with annotate({"compile_with_inductor": {"inductor_region": "part"}}):
            y = x.sin() * 2
        y = y.cos()
        return unmarked(y + 1)

    def several(x):
        with annotate({"compile_with_inductor": {"inductor_region": "a"}}): x = x.sin()
        with (
            annotate(
                {"compile_with_inductor": {"inductor_region": "b"}}  # here: b
            )
        ):

            # inside
            x = x.cos()
            text = '''a
    b'''
            if text:
                x = x * 2
        return x.exp()

    @annotate_fn({"compile_with_inductor": {"inductor_region": "g"}})
    def decorated(y):
        return y.exp() * 2

    @rx.region("h", max_fusion_size=2)
    def other(y):
        return y.exp() * 2

    @annotate_fn({"compile_with_inductor": {"inductor_region": "taken"}})
    def taken(y):
        return y.exp() * 2

    def whole(x):
        x = x.sin()
        x = taken(x)
        return x + 1

    def call(x):
        x = edited(x) + gone(x) + around(x)
        x = several(x) + decorated(other(x) + 1)
        return whole(x)
    """


def change_marks(ex):
    ex.configure("edited", FEW).rename("old", "new").configure("new", FEW).configure("g", FEW).configure("h", FEW)
    for name in ("gone", "part", "unmarked", "a", "b", "taken"):
        ex.unmark(name)
    ex.mark("part", lines="around:2-4").mark("several", lines="several:2-14").mark("last", lines="several:15")
    ex.mark("whole", lines="whole:2-3")


CASES = {
    "functions": (FUNCTIONS, mark_functions),
    "loops over modules": (
        LOOPS,
        mark_loops,
        *('"inductor_region": ("stacks", index, index_2)', '"inductor_region": ("up", turn)'),
        "in enumerate(((self.one, 2), (self.two, 3))):",
        *('"inductor_region": ("own", 0)', '"inductor_region": ("own", 1)', '"inductor_region": ("layers", index'),
    ),
    "between the yields of a generator": (PAUSED, lambda ex: ex.mark("r", lines="steps:4")),
    "all of a generator": (PAUSED, lambda ex: ex.mark("r", lines="steps:2-6")),
    "no import of torch": (NO_IMPORT, mark_lines("call:2"), "import math\nimport torch\n"),
    "marks in the source": (MARKED, change_marks, 'rx.region("new", max_fusion_size=8, **{"cpp.simdlen": 256})'),
}


@pytest.mark.parametrize("case", CASES)
def test_the_patched_source_gives_the_same_partitions(program, case):
    text, mark, *written = CASES[case]
    patched = program(text, mark).patched()
    assert [line for line in written if line not in patched] == []
    assert "torch.fx.traceback" in patched


@pytest.mark.parametrize("start", [b"# -*- coding: latin-1 -*-\r\n", b"\xef\xbb\xbf\r\n"])
def test_bytes_that_no_mark_touches_stay(program, start):
    line = b"    y = x.sin()  # caf" + (b"\xe9" if b"latin" in start else "é".encode()) + b"\r\n"
    text = start + b"import torch\r\n\x0c\r\ndef call(x):\r\n" + line + b"    return y + 1"
    one = program(text, lambda ex: ex.mark("r", lines="call:2"))
    one.ex.to_source(apply=True)
    mark = b'    with torch.fx.traceback.annotate({"compile_with_inductor": {"inductor_region": "r"}}):\r\n    '
    assert one.path.read_bytes() == text.replace(line, mark + line)
    assert partitions(one.explore()) == partitions(one.ex)


def test_git_applies_the_diff(program, tmp_path):
    one = program(TEXT, mark_lines("call:2-5"))
    diff = one.ex.to_source()
    assert one.path.read_bytes() == one.before
    (tmp_path / "diff.patch").write_text(diff)
    git(tmp_path, "apply", "diff.patch")
    patched = one.path.read_text()
    git(tmp_path, "checkout", "program.py")
    assert patched == one.patched()
    assert (
        """\
    with torch.fx.traceback.annotate(
        {"compile_with_inductor": {"inductor_region": "r", "inductor_configs": {"max_fusion_size": 8}}}
    ):
        y = x.sin()
"""
        in patched
    )


def write_package(folder, mark="call:2"):
    """Write a package with the program into a folder; return its file and an exploration of its call."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "program.py"
    path.write_bytes(as_bytes(TEXT))
    (folder / "__init__.py").touch()
    ex = rx.explore(load(path).call, (torch.ones(2, 4),)).mark("r", lines=mark)
    return path, ex


def assert_applies(diff, path, *folders):
    """Assert that git applies the diff of a plan to the file, from each of the folders."""
    before = path.read_text()
    for folder in folders:
        (folder / "plan.patch").write_text(diff)
        git(folder, "apply", "plan.patch")
        assert "torch.fx.traceback.annotate" in path.read_text()
        path.write_text(before)


def test_git_applies_the_diff_in_any_folder_above_the_file(tmp_path, monkeypatch):
    repository = tmp_path / "a repository"
    repository.mkdir()
    git(repository, "init", "-q")
    path, ex = write_package(repository / "src" / "package" / "module")
    (tmp_path / "elsewhere").mkdir()
    for current in (".", "elsewhere"):
        monkeypatch.chdir(tmp_path / current)
        diff = ex.to_source()
        assert "--- a/src/package/module/program.py\n" in diff
        assert "# The paths" not in diff
    assert_applies(diff, path, repository, repository / "src", repository / "src" / "package")


def test_outside_of_a_repository_the_paths_begin_at_the_package(tmp_path, monkeypatch):
    path, ex = write_package(tmp_path / "place" / "package" / "module")
    (path.parent.parent / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    diff = ex.to_source()
    assert f"# The paths begin at {tmp_path / 'place'}: run `git apply` there." in diff
    assert "--- a/package/module/program.py\n" in diff
    assert_applies(diff, path, tmp_path / "place")


def test_the_paths_of_a_library_begin_at_its_package(tmp_path):
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    path, ex = write_package(packages / "library")
    for _in_a_repository_too in range(2):
        diff = ex.to_source()
        assert "--- a/library/program.py\n" in diff
        assert_applies(diff, path, packages)
        git(tmp_path, "init", "-q")


def test_a_file_with_letters_beyond_ascii_is_applied(tmp_path):
    git(tmp_path, "init", "-q")
    path, ex = write_package(tmp_path / "größe mit leerzeichen")
    assert_applies(ex.to_source(), path, path.parent)


def test_a_region_in_the_source_may_contain_one_outside_it(program):
    """The text has the calls that mark the inner region again in the changed source."""
    text = """
        def call(x):
            y = x.sin()
            y = y.exp() + 1
            y = y.cos()
            return y * 2
        """
    one = program(text, lambda ex: ex.mark("outer", lines="call:2-4").mark("inner", ops="exp"))
    output = one.ex.to_source(apply=True)
    assert output.startswith("# Region 'inner' is not in the source below: it shares a statement or a line")
    again = one.explore()
    assert partitions(again) != partitions(one.ex)
    assert partitions(again.mark("inner", ops="exp")) == partitions(one.ex)


def test_swapped_source_is_invisible_to_other_threads(shared_program):
    call, x = shared_program.ex.live.call.fn, torch.ones(2, 4)
    gate = call.__globals__["gate"]
    expected, code = call(x), gate.__code__
    seen, outputs, ended = set(), [], threading.Event()

    def compute():
        while not ended.is_set():
            seen.add(gate.__code__)
            outputs.append(call(x))

    with ThreadPoolExecutor(1) as pool:
        computing = pool.submit(compute)
        output = shared_program.ex.to_source()
        ended.set()
        computing.result()
    assert "+    with torch.fx.traceback.annotate(" in output
    assert len(seen) > 1  # it ran the changed code, too
    assert all(torch.equal(output, expected) for output in outputs)
    assert gate.__code__ is code


def test_functions_hidden_by_gc_freeze_are_changed_too(shared_program):
    gc.freeze()
    try:
        assert "+    with torch.fx.traceback.annotate(" in shared_program.ex.to_source()
    finally:
        gc.unfreeze()


def test_an_interrupt_leaves_no_function_changed(program):
    """Interrupts come at many moments, also while the code of thousands of functions is restored."""
    one = program(NO_IMPORT, mark_lines("call:2"))
    call, before = one.ex.live.call.fn, one.before.decode()
    code, after = call.__code__, before.replace("y = x.sin()", "with torch.no_grad():\n        y = x.sin()")
    moments = (30e-6 * number for number in itertools.count(1))
    functions = [call, *(FunctionType(code, call.__globals__) for _ in range(2_000))]

    def work():
        assert not any(function.__code__ is code for function in functions)
        assert "torch" in call.__globals__
        signal.setitimer(signal.ITIMER_REAL, next(moments))

    def interrupt(*_):
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(8):
            with pytest.raises(KeyboardInterrupt):
                run_under_changed_source({str(one.path): (before, after)}, work) or time.sleep(1)
            assert all(function.__code__ is code for function in functions)
            assert "torch" not in call.__globals__
    finally:
        signal.signal(signal.SIGALRM, handler)


def test_to_source_reports_progress_and_cancels(shared_program):
    output = shared_program.ex.to_source(apply=True, run=rx.Run(cancelled=lambda: True))
    assert output.startswith("# Region 'r' is not in the source below: cancelled before it was traced.")
    assert shared_program.path.read_bytes() == shared_program.before
    done = []
    shared_program.ex.to_source(run=rx.Run(progress=lambda doing, _: done.append(doing)))
    assert done == ["tracing the changed source"]


COMPUTED = """
    import torch
    from torch.fx.traceback import annotate

    MARK = {"compile_with_inductor": {"inductor_region": "r"}}

    def call(x):
        y = x.cos()
        with annotate(MARK):
            y = y.sin() * 2
        return y + 1
    """


def test_a_computed_mark_stays_and_is_reported(program):
    one = program(COMPUTED, lambda ex: None)
    assert one.ex.to_source(apply=True) == "# In the source already: 'r'.\n"
    assert one.path.read_bytes() == one.before
    one.ex.configure("r", {"max_fusion_size": 2})
    assert "its mark in the source is computed, not written out: change it there" in one.ex.to_source()
    one.ex.unmark("r")
    stays = (
        "# The mark at program.py:9 belongs to no region of the plan, but it stays: it is computed, not written out. "
        "Remove it there.\n"
    )
    assert one.ex.to_source() == stays
    one.ex.mark("all", lines="call:2-4")
    output = one.ex.to_source(apply=True)
    assert output.startswith("# Region 'all' is not in the source below: ")
    assert stays in output
    assert one.path.read_bytes() == one.before
    one.ex.unmark("all").mark("first", lines="call:2")
    output = one.ex.to_source(apply=True)
    assert stays in output
    assert '+    with torch.fx.traceback.annotate({"compile_with_inductor": {"inductor_region": "first"}}):' in output


OTHER_ANNOTATIONS = """
    from torch.fx.traceback import annotate

    def call(x):
        with annotate({"compile_with_inductor": {"inductor_region": "r"}, "pp_stage": 1}):
            y = x.sin() * 2
        return y + 1
    """


def test_a_mark_with_other_annotations_stays_and_is_reported(program):
    one = program(OTHER_ANNOTATIONS, lambda ex: ex.configure("r", FEW))
    assert "its mark in the source has other annotations, too: change it there" in one.ex.to_source(apply=True)
    one.ex.unmark("r")
    assert one.ex.to_source(apply=True) == (
        "# The mark at program.py:5 belongs to no region of the plan, but it stays: it has other annotations, too. "
        "Remove it there.\n"
    )
    assert one.path.read_bytes() == one.before


OTHER_SPELLINGS = """
    from regional_explorer import region as mark
    from torch.fx.traceback import annotate

    def call(x):
        with mark("r"):
            y = x.sin()
            y = y * 2
        manager = annotate({"compile_with_inductor": {"inductor_region": "s"}})
        with manager:
            y = y.exp()
        return y + 1
    """


def test_a_mark_in_an_unknown_spelling_stays_and_is_reported(program):
    one = program(OTHER_SPELLINGS, lambda ex: None)
    assert one.ex.to_source() == "# In the source already: 'r', 's'.\n"
    one.ex.unmark("r").unmark("s")
    stays = "belongs to no region of the plan, but it stays: its text does not look like a mark. Remove it there.\n"
    assert one.ex.to_source() == f"# The mark at program.py:6 {stays}\n# The mark at program.py:10 {stays}"


SHARED = """
    def gate(x):
        y = x.sin()
        return y * 2

    def call(x):
        y = gate(x) + gate(x + 1)
        z = (lambda v: v.exp() + 1)(y)
        return gate(z)
    """


OTHER_TORCH = """
    def variable(x):
        torch = x.sin()
        y = torch * 2
        return y + 1

    def argument(x, torch=2):
        y = x.sin()
        y = y * torch
        return y + 1

    def call(torch):
        def inner(v):
            w = v.sin()
            return w * 2
        return inner(variable(torch) + argument(torch)) + 1
    """
REPEATED = net(
    "self.stacks, self.up = stacks(), nn.Linear(4, 4)",
    "for stack in self.stacks:\n    x = stack(x).sin()\nreturn x + self.up(x.sin())",
)
REFUSED = {
    "an operator of an expression": (SHARED, lambda ex: ex.mark("r", ops="*add*"), "it shares a statement or a line"),
    "a call in an expression": (
        REPEATED,
        lambda ex: ex.mark("r", modules="up"),
        "it shares a statement or a line with other code: give it lines of its own",
    ),
    "nodes": (
        SHARED,
        lambda ex: ex.mark("r", nodes=["y"]),
        "its nodes were selected one by one, and no statement computes only these",
    ),
    "a config for the backward": (
        SHARED,
        lambda ex: ex.mark("r", lines="gate:2-3").configure("r", FEW, direction="backward"),
        "its backward has a config of its own, and an annotation holds for both directions",
    ),
    "disabled": (SHARED, lambda ex: ex.mark("r", lines="gate:2-3").disable("r"), "it is disabled"),
    "a yield": (PAUSED, lambda ex: ex.mark("r", lines="steps:3"), "its lines have a yield"),
    "yields between": (PAUSED, lambda ex: ex.mark("r", lines="steps:4-6"), "its lines have a yield"),
    "turns of a loop in a function that runs twice": (
        REPEATED,
        lambda ex: ex.mark("r", modules="stacks.*.*"),
        "marks in the source would give other partitions",
    ),
    "turns of a loop that torch runs": (
        """
        class Block(torch.nn.Module):
            def forward(self, x):
                return x.sin() * 2

        call = torch.nn.Sequential(Block(), Block())
        """,
        lambda ex: ex.mark("r", modules="?"),
        "marks in the source would give other partitions",
    ),
    "lines of another region": (
        REPEATED,
        lambda ex: ex.mark("r", modules="stacks.0.*").mark("other", modules="stacks.1.*"),
        "the same lines run for region 'other' too",
    ),
    "lines outside any region": (
        REPEATED,
        lambda ex: ex.mark("r", modules="stacks.0.*"),
        "the same lines also compute ops of no region",
    ),
    "an op without a line": (
        "import torch\n\ncall = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())\n",
        lambda ex: ex.mark("r", modules="0"),
        "torch records no source line for input_1",
    ),
    **{
        f"torch means something else in {place}": (
            OTHER_TORCH,
            mark_lines(at),
            f"the name torch means something else in {place}",
        )
        for place, at in (("variable", "variable:3"), ("argument", "argument:3"), ("call.inner", "inner:2"))
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_region_that_no_mark_can_express_is_reported(cached_program, case):
    text, mark, reason = REFUSED[case]
    one = cached_program(text)
    one.ex.plan = rx.Plan()
    mark(one.ex)
    output = one.ex.to_source(apply=True)
    assert output.startswith(f"# Region 'r' is not in the source below: {reason}")
    assert "ex.mark('r'" in output
    assert one.path.read_bytes() == one.before


def test_a_cut_that_marks_cannot_express_is_reported(shared_program):
    shared_program.ex.plan = rx.Plan(shared_program.ex.plan.regions, cut="marked")
    assert (
        "# The plan's cut, 'marked', is not in the source: marks are cut as 'instances'.\n"
        in shared_program.ex.to_source()
    )


def test_line_numbers_are_labelled_as_old(shared_program):
    shared_program.ex.mark("off", lines="gate:3-3").disable("off")
    output = str(shared_program.ex.to_source())
    assert "Its line numbers are from before this change.\n" in output
    assert output.index("ex.mark('off', lines='gate:3-3')") < output.index("+++ ")


def test_a_file_that_changed_since_the_trace_is_not_patched(shared_program):
    shared_program.path.write_text(shared_program.path.read_text().replace("x.sin()", "x.cos()"))
    assert "program.py has changed since the call was traced: explore again" in shared_program.ex.to_source()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda one: one.path.write_text(one.path.read_text() + "# more\n"), "not committed"),
        (lambda one: git(one.path.parent, "rm", "-q", "--cached", "program.py"), "not under version control"),
    ],
)
def test_only_clean_files_are_written(shared_program, spoil, message):
    spoil(shared_program)
    before = shared_program.path.read_bytes()
    with pytest.raises(rx.SourcePatchError, match=message):
        shared_program.ex.to_source(apply=True)
    assert shared_program.path.read_bytes() == before
    assert "+++ b/program.py" in shared_program.ex.to_source()


def test_an_installed_library_is_shown_and_never_written(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    one = Program(folder, SHARED, mark_lines("gate:2"))
    with pytest.raises(rx.SourcePatchError, match="belongs to an installed library"):
        one.ex.to_source(apply=True)
    assert one.path.read_bytes() == one.before
    assert one.ex.to_source().startswith("# This changes an installed library")


def test_one_unwritable_file_leaves_all_files_unchanged(program, tmp_path, monkeypatch):
    (tmp_path / "gates.py").write_text("def gate(x):\n    return x.sin() * 2\n")
    text = "import torch\nfrom gates import gate\n\ndef call(x):\n    y = x.cos()\n    return gate(y) + gate(y + 1)\n"
    monkeypatch.syspath_prepend(tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "gates.py")
    one = program(text, lambda ex: ex.mark("a", lines="call:2").mark("g", lines="gate:2"))
    git(tmp_path, "commit", "-qm", "second", "--allow-empty")
    from regional_explorer.export import to_source

    write = to_source.write_bytes

    def fail_or_write(path, content, error):
        if path.name == "program.py" and b"annotate" in content:
            raise rx.SourcePatchError("no room")
        write(path, content, error)

    before = {path: path.read_bytes() for path in tmp_path.glob("*.py")}
    monkeypatch.setattr(to_source, "write_bytes", fail_or_write)
    with pytest.raises(rx.SourcePatchError, match="no room"):
        one.ex.to_source(apply=True)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.py")} == before


@pytest.mark.parametrize("name", ["/tmp/ipykernel_1/2.py", "/tmp/ipython-input-1-2.py"])  # noqa: S108 - they exist nowhere
def test_a_notebook_cell_is_returned_as_new_text(name):
    import linecache

    text = "get_ipython().run_line_magic('time', '')\ndef call(x):\n    y = torch.sin(x)\n    return y + 1\n"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    shell = SimpleNamespace(run_line_magic=lambda *_: None)
    space = {"torch": torch, "get_ipython": lambda: shell}
    exec(compile(text, name, "exec"), space)  # noqa: S102 - as a notebook does
    ex = rx.explore(space["call"], (torch.ones(3),)).mark("r", lines="call:2")
    assert ex.session.graphs[0].ops[0].stack[-1].in_cell
    assert ex.to_source() == (
        "# The cell that defines call, with its regions:\n\n%time\ndef call(x):\n"
        '    with torch.fx.traceback.annotate({"compile_with_inductor": {"inductor_region": "r"}}):\n'
        "        y = torch.sin(x)\n    return y + 1\n"
    )
    with pytest.raises(rx.SourcePatchError, match="defined in a notebook"):
        ex.to_source(apply=True)


def test_a_line_shared_by_several_modules_is_reported():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.act = torch.nn.Linear(4, 4), torch.nn.GELU()

        def forward(self, x):
            return self.act(self.linear(x))

    ex = rx.explore(Block(), (torch.randn(2, 4),)).mark("act", modules="act")
    assert "the same lines also compute ops of no region" in ex.to_source()
