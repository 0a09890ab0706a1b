"""The programs of docs/upstream.md: a workaround is looked at again once torch no longer needs it."""

import re
import signal

import pytest
import torch
from torch._dynamo.utils import counters

from regional_explorer.torch_api.dynamo import ISOLATES
from tests.shared.checks import BEFORE_2_13, BEFORE_2_15
from tests.shared.processes import ROOT, python

PAGE = ROOT / "docs" / "upstream.md"


def written(title, folder):
    """Write the program of the section that begins with ``title`` to a file, and return its path."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {title}", 1)[1].split("\n## ", 1)[0]
    path = folder / "program.py"
    path.write_text(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], encoding="utf-8")
    return path


def run(title, folder):
    """Run that program as a file of its own: Dynamo reads its lines."""
    path = written(title, folder)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {})  # noqa: S102 - our own page


def run_apart(title, folder, status=None):
    """Run it in a process of its own, which it ends."""
    return python(written(title, folder), status=status)


@pytest.mark.compiles
@pytest.mark.skipif(BEFORE_2_13, reason="the checks of linalg had no effect tokens yet")
def test_an_effect_token_beside_dynamic_sizes(tmp_path):
    with pytest.raises(AttributeError, match="_dynamo_propagated_dynamic_indices"):
        run("A piece with an effect token", tmp_path)


def test_the_backward_of_a_regional_compile_takes_no_lock(tmp_path):
    with pytest.raises(AssertionError, match="'forward': True, 'backward': False"):
        run("The backward of a regional compile", tmp_path)


def test_a_view_behind_the_backward_of_dropout(tmp_path):
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        run("Uncut AOT fails at a view", tmp_path)


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="2.15 runs it")
def test_group_norm_of_a_transposed_sequence(tmp_path):
    with pytest.raises(RuntimeError, match="is_contiguous"):
        run("Uncut AOT fails at group norm", tmp_path)


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="2.15 reads on without a crash")
def test_group_norm_in_channels_last_order(tmp_path):
    run_apart("Group norm in channels-last order", tmp_path, status=-signal.SIGSEGV)


@pytest.mark.skipif(BEFORE_2_13, reason="bodies were not found by their code yet")
def test_closures_share_a_nested_compile_region(tmp_path):
    with pytest.raises(AssertionError, match="not close"):
        run("Closures of one code share the body", tmp_path)


def test_annotate_in_two_threads_leaves_its_mark(tmp_path):
    with pytest.raises(AssertionError, match="'mark': 1"):
        run("`annotate` in two threads", tmp_path)


def test_dynamo_keeps_a_traceback_of_every_compile(tmp_path):
    with pytest.raises(AssertionError):
        run("Dynamo keeps a traceback of every compile", tmp_path)


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="2.15 frees it")
def test_a_trace_of_a_parameter_with_a_gradient_is_never_freed(tmp_path):
    assert "assert not any" in run_apart("A trace of a parameter with a gradient", tmp_path, status=1).err


def test_what_another_thread_compiles_must_not_be_forgotten(tmp_path):
    assert run_apart("Forgetting a function that another thread compiles", tmp_path).status != 0


def test_a_piece_cannot_be_compiled_while_a_compiled_graph_first_runs(tmp_path):
    with pytest.raises(Exception, match="FunctionalTensor on its own"):
        run("A piece cannot be compiled while", tmp_path)


@pytest.mark.compiles
def test_caches_take_a_carved_piece_for_the_same_piece_uncarved(tmp_path):
    counters.clear()
    with pytest.raises(AssertionError):
        run("Inductor's caches take a carved piece", tmp_path)


@pytest.mark.compiles
def test_kernels_that_are_forced_inline_do_not_build(tmp_path):
    with pytest.raises(Exception, match="always_inline"):
        run("`cpp.force_inline_kernel` does not build", tmp_path)


def test_a_trace_with_dynamic_sizes_marks_the_arguments(tmp_path):
    with pytest.raises(Exception, match="dynamic sizes"):
        run("A trace with dynamic sizes leaves marks", tmp_path)


@pytest.mark.compiles
@pytest.mark.skipif(BEFORE_2_15, reason="2.13 leaves constants as they are")
def test_emulated_casts_round_constants(tmp_path):
    with pytest.raises(AssertionError, match="Tensor-likes are not equal"):
        run("`emulate_precision_casts` rounds constants", tmp_path)


@pytest.mark.skipif(torch.__version__.startswith("2.11."), reason="2.11 does not hang")
def test_two_threads_that_use_one_parameter_deadlock(tmp_path):
    assert run_apart("Two threads that use one parameter deadlock", tmp_path).err.startswith("Timeout (")


@pytest.mark.skipif(
    not BEFORE_2_13 or not torch.version.cuda or torch.cuda.is_available(), reason="no such build of torch"
)
def test_fake_tensors_crash_after_the_thread_that_made_the_first(tmp_path):
    assert run_apart("Fake tensors crash once the thread", tmp_path).status < 0


@pytest.mark.compiles
@pytest.mark.skipif(not ISOLATES, reason="this torch isolates no compile")
def test_an_isolated_compile_runs_what_another_one_compiled(tmp_path):
    with pytest.raises(AssertionError, match="nothing was compiled under this config"):
        run("An isolated compile runs what was compiled before", tmp_path)
