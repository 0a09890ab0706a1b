"""The seconds that compiles are expected to take, beside those that they take with empty caches."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from msgspec.structs import replace

import regional_explorer as rx
from benchmarks.row import Row, elapsed_s
from regional_explorer.compiler.compilation import start_toolchain
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.expected import expected_compile_s
from regional_explorer.record.plan import Selector, SelectorKind
from regional_explorer.torch_api.inductor import empty_caches
from tests.shared.models import ARCHITECTURES, DECODER, ENCODER, Architecture, labelled_sentences, transformer

QWEN = {**DECODER, "hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 384}
BERT = {**ENCODER, "hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 128}
MODELS = {
    **{name: ARCHITECTURES[name] for name in ("gpt", "bert", "llama", "vit", "mamba", "resnet", "t5")},
    "qwen3 of 3 layers": Architecture(
        transformer("Qwen3ForCausalLM", partial(labelled_sentences, 128))(**QWEN), ("model.layers.*",)
    ),
    "bert of 12 layers": Architecture(
        transformer("BertForMaskedLM", partial(labelled_sentences, 32))(**BERT), ("bert.encoder.layer.*",)
    ),
}


def expected_rows(models: Iterable[str] = MODELS) -> Iterator[Row]:
    """Compile training steps of each of ``models``: its layers as one region, all ops as one, and ``torch.compile``."""
    for name in models:
        torch.manual_seed(0)
        model, kwargs = MODELS[name].build()
        ex = rx.explore(model.train(), kwargs=kwargs)
        start_toolchain(ex.live.program, lambda *_: None)
        layers = Selector(SelectorKind.MODULES, MODELS[name].modules)
        for what, selector in {"its layers": layers, "every op": Selector(SelectorKind.OPS, ("*",))}.items():
            ex.mark("region", selector)
            as_at_first = replace(ex.session, compile_rate=1.0)
            predicted_s = expected_compile_s(as_at_first, as_at_first.partitions) or math.nan
            yield _row(f"{what} of {name}", predicted_s, partial(ex.compile, cold=True))
            ex.unmark("region")
        with empty_caches():
            predicted_s = expected_compile_s(replace(ex.session, compile_rate=1.0)) or math.nan
            compile_whole = partial(ex.live.variants.compile, VariantName.FULL)
            yield _row(f"torch.compile of {name}", predicted_s, compile_whole)
        ex.close()


def _row(what: str, predicted_s: float, compile_it: Callable[[], object]) -> Row:
    before = _processor_s()
    real_s = elapsed_s(compile_it)
    busy = f"{_processor_s() - before:.3g} s of the processor"
    return Row(f"the expected seconds of compiling {what}", f"the compile ({busy})", [predicted_s], [real_s], 2.0, 0.5)


def _processor_s() -> float:
    """Return the seconds of processor time that this process and its ended children have used."""
    return sum(os.times()[:4])
