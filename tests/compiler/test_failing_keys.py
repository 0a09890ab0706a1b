"""A region that fails by some of its config keys names them, and an edit without them compiles it."""

import pytest
import torch

import regional_explorer as rx
from regional_explorer.errors import RegionCompileError
from tests.shared.checks import codes, only

SCALE, ZERO = torch.tensor(0.05), torch.tensor(3)


def quantized(x, w):
    return torch.relu(torch.quantize_per_tensor(x, SCALE, ZERO, torch.quint8).dequantize() @ w) + 1


def explored(config, function=lambda x, w: (x @ w).relu()):
    ex = rx.explore(function, (torch.randn(16, 32), torch.randn(32, 8)), grad=False).mark("q", ops="*")
    return ex.configure("q", config)


def fail_if(ex, fails):
    """Let the compile of a piece fail if ``fails`` returns True for its config."""
    store = ex.live.program.store
    start, tried = store.run_inductor, []

    def run_inductor(gm, fakes, mode, config, prepared):
        tried.append(dict(config))
        if fails(config):
            raise RegionCompileError("Inductor raised LoweringException: no")
        return start(gm, fakes, mode, config, prepared)

    store.run_inductor = run_inductor
    return tried


def assert_cured_without(ex, *keys):
    """Check that the diagnostic names the keys first, and that its action compiles the region."""
    found = only(ex, "region-failed")
    (action, *_) = found.actions
    assert action.unset == keys
    named, _, reason = found.message.partition(": ")
    assert all(f"{key}=" in named for key in keys)
    assert "Inductor raised" in reason
    ex.apply(found)
    assert ex.plan["q"].config == {key: value for key, value in ex.plan["q"].config.items() if key not in keys}
    ex.compile()
    assert ex.regions.state.tolist() == ["compiled"]
    assert "region-failed" not in codes(ex)


@pytest.mark.compiles
@pytest.mark.filterwarnings("ignore")
def test_a_key_that_breaks_the_build_is_named_before_the_compilers_command():
    ex = explored({"cpp_wrapper": True}, quantized)
    ex.compile()
    message = only(ex, "region-failed").message
    assert message.index("cpp_wrapper=True") < message.index("aoti_torch_dtype_quint8") < message.index("Command:")
    assert_cured_without(ex, "cpp_wrapper")


@pytest.mark.compiles
def test_a_key_that_breaks_lowering_is_found_among_others():
    config = {"max_fusion_size": 7, "epilogue_fusion": False, "size_asserts": False, "inplace_buffers": False}
    ex = explored(config)
    tried = fail_if(ex, lambda config: "size_asserts" in config)
    ex.compile()
    assert len(tried) == 5, "the config, none, two to halve it, and the config without the key"
    assert_cured_without(ex, "size_asserts")
    assert len(tried) == 5, "what was tried is kept"


@pytest.mark.compiles
def test_of_two_keys_that_fail_together_one_is_taken_back():
    ex = explored({"max_autotune": True, "max_autotune_gemm_backends": "TRITON"})  # there is no Triton for the CPU
    ex.compile()
    assert_cured_without(ex, "max_autotune_gemm_backends")


@pytest.mark.compiles
def test_two_keys_that_fail_by_themselves_are_both_named():
    ex = explored({"max_fusion_size": 7, "epilogue_fusion": False, "size_asserts": False})
    fail_if(ex, lambda config: {"max_fusion_size", "size_asserts"} & set(config))
    ex.compile()
    assert_cured_without(ex, "max_fusion_size", "size_asserts")


@pytest.mark.compiles
def test_a_key_that_breaks_the_backward_is_taken_back_there():
    ex = rx.explore(lambda x: x.sin().sum(), (torch.randn(8, requires_grad=True),)).mark("q", ops="*")
    ex.configure("q", {"size_asserts": False}, direction="backward")
    fail_if(ex, lambda config: "size_asserts" in config)
    ex.compile()
    (action, *_) = only(ex, "region-failed").actions
    assert str(action) == "ex.configure('q', {'size_asserts': rx.DEFAULT}, direction='backward')"
    ex.apply(only(ex, "region-failed"))
    ex.compile()
    assert ex.regions.state.tolist() == ["compiled"]


@pytest.mark.compiles
def test_a_failure_that_no_key_causes_names_no_key():
    ex = explored({"size_asserts": False, "max_fusion_size": 7})
    tried = fail_if(ex, lambda config: True)
    ex.compile()
    assert tried == [{"size_asserts": False, "max_fusion_size": 7}, {}]
    found = only(ex, "region-failed")
    assert "size_asserts" not in found.message
    assert not any(action.unset for action in found.actions)
