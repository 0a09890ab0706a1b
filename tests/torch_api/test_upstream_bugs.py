"""The programs of docs/upstream.md fail as it says; once one does not, its workaround can go.

They show what torch does, so they are run with another torch (``make test-torch``) and by ``make test-all``.
"""

import re
import signal
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from regional_explorer.torch_api.dynamo import ISOLATES
from tests.shared.checks import BEFORE_2_13, BEFORE_2_15
from tests.shared.processes import ROOT, python

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "upstream.md"
compiles = pytest.mark.compiles
in_2_13 = pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="not tried with this torch")
in_2_13_alone = pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="2.15 does not do this")
not_before_2_13 = pytest.mark.skipif(BEFORE_2_13, reason="2.11 does not do this")
not_before_2_15 = pytest.mark.skipif(BEFORE_2_15, reason="2.13 does not do this")
before_2_15 = pytest.mark.skipif(not BEFORE_2_15, reason="2.15 does not do this")
isolates = pytest.mark.skipif(not ISOLATES, reason="this torch isolates no compile")
ends_with_threads = pytest.mark.skipif(
    not BEFORE_2_13 or not torch.version.cuda or torch.cuda.is_available(), reason="no such build of torch"
)


@pytest.fixture
def program(request, tmp_path):
    """Write the program of the section that begins with the title to a file, and return its path."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {request.param}", 1)[1].split("\n## ", 1)[0]
    path = tmp_path / "program.py"
    path.write_text(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], encoding="utf-8")
    return path


RAISES: list[Any] = [
    ("A piece with an effect token", AttributeError, "_dynamo_propagated_dynamic_indices", compiles, not_before_2_13),
    ("The backward of a regional compile", AssertionError, "'forward': True, 'backward': False"),
    ("Uncut AOT fails at a view", RuntimeError, "view size is not compatible"),
    ("Uncut AOT fails at group norm", RuntimeError, "is_contiguous", in_2_13_alone),
    ("Closures of one code share the body", AssertionError, "not close", not_before_2_13),
    ("`annotate` in two threads", AssertionError, "'mark': 1"),
    ("Dynamo keeps a traceback of every compile", AssertionError, ""),
    ("A piece cannot be compiled while", Exception, "FunctionalTensor on its own"),
    ("Inductor's caches take a carved piece", AssertionError, "", compiles),
    ("`cpp.force_inline_kernel` does not build", Exception, "always_inline", compiles),
    ("A trace with dynamic sizes leaves marks", Exception, "dynamic sizes"),
    ("`emulate_precision_casts` rounds constants", AssertionError, "are not equal", compiles, not_before_2_15),
    ("`as_strided` reads other elements", AssertionError, "not close", compiles),
    ("The default partitioner repeats a random op", AssertionError, "drew random numbers"),
    ("The default partitioner fails at an unused dropout", Exception, "native_dropout to be a tensor"),
    ("`index_add` of a tensor to itself", AssertionError, "not close", compiles, before_2_15),
    ("Inductor's cache takes the code of other frozen", AssertionError, "not close", compiles, in_2_13),
    ("A view fails behind `cat`", Exception, "Cannot view a tensor", compiles),
    ("A second write to an argument is lost", AssertionError, "not close", compiles, in_2_13),
    ("A memory budget has the backward draw another mask", AssertionError, "not close", compiles, in_2_13),
    ("An isolated compile runs what was compiled before", AssertionError, "nothing was compiled", compiles, isolates),
]
ENDS: list[Any] = [
    ("Group norm in channels-last order", lambda done: done.status == -signal.SIGSEGV, in_2_13_alone),
    (
        "A trace of a parameter with a gradient",
        lambda done: done.status == 1 and "assert not any" in done.err,
        in_2_13_alone,
    ),
    ("Forgetting a function that another thread compiles", lambda done: done.status != 0),
    ("Two threads that use one parameter deadlock", lambda done: done.err.startswith("Timeout ("), not_before_2_13),
    ("Fake tensors crash once the thread", lambda done: done.status < 0, ends_with_threads),
]


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [pytest.param(*row[:3], marks=row[3:], id=row[0]) for row in RAISES],
    indirect=["program"],
)
def test_the_program_of_an_upstream_bug_raises(program, error, message):
    """The program is run as a file, because Dynamo reads its lines."""
    counters.clear()
    with pytest.raises(error, match=message):
        exec(compile(program.read_text(encoding="utf-8"), str(program), "exec"), {})  # noqa: S102 - our own page


@pytest.mark.parametrize(
    ("program", "ends"), [pytest.param(*row[:2], marks=row[2:], id=row[0]) for row in ENDS], indirect=["program"]
)
def test_the_program_of_an_upstream_bug_ends_its_process(program, ends):
    done = python(program, status=None)
    assert ends(done), f"{done.status}: {done.err[-2000:]}"
