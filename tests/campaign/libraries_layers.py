"""``x-transformers`` with options drawn at random, and a small decoder with ``peft`` adapters or ``torchao`` layers."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.architectures import GPT, WORDS
from tests.campaign.library_case import Build, Built

WIDTH = 32
OPTIONS = 4
"""So many options of a layer are switched on at once."""


def x_transformers(draw: random.Random) -> Iterator[tuple[str, Build]]:
    """Yield encoders and decoders with options that are off by default, drawn from all that the layers have."""
    from x_transformers import Attention, FeedForward
    from x_transformers.x_transformers import AttentionLayers

    flags = [*_flags(AttentionLayers), *(f"attn_{flag}" for flag in _flags(Attention))]
    flags += [f"ff_{flag}" for flag in _flags(FeedForward)]
    kinds = ("Encoder", "Decoder", "PrefixDecoder", "ViTransformerWrapper", "XTransformer")
    while True:
        kind, options = draw.choice(kinds), sorted(draw.sample(flags, OPTIONS))
        yield f"{kind} {' '.join(options)}", _x_transformer(kind, options)


def _flags(layer: type) -> list[str]:
    """Return the arguments of a layer that are False by default; these hold for all kinds of layers."""
    outside = {"causal", "cross_attend", "only_cross", "verbose", "flash", "onnxable", "on_attn"}
    parameters = inspect.signature(layer).parameters
    return [name for name, found in parameters.items() if found.default is False and name not in outside]


def _x_transformer(kind: str, options: list[str]) -> Build:
    def build(_training: bool) -> Built:
        import x_transformers as library

        flags: dict[str, Any] = dict.fromkeys(options, True)
        words = torch.randint(0, WORDS, (2, 12))
        size = {"dim": WIDTH, "depth": 2, "heads": 2, "attn_dim_head": 16}
        if kind == "XTransformer":
            sides = {f"{side}_{key}": value for side in ("enc", "dec") for key, value in {**size, **flags}.items()}
            sides |= {"enc_num_tokens": WORDS, "enc_max_seq_len": 16, "dec_num_tokens": WORDS, "dec_max_seq_len": 16}
            del sides["enc_dim"], sides["dec_dim"]
            return Built(library.XTransformer(dim=WIDTH, **sides), (words, words))
        if kind == "ViTransformerWrapper":
            layers = library.Encoder(**size, **flags)
            model = library.ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, attn_layers=layers)
            return Built(model, (torch.randn(2, 3, 32, 32),))
        layers = getattr(library, kind)(**size, **flags)
        return Built(library.TransformerWrapper(num_tokens=WORDS, max_seq_len=16, attn_layers=layers), (words,))

    return build


def adapters(draw: random.Random) -> Iterator[tuple[str, Build]]:
    """Yield a small Llama with an adapter of each kind, in random order."""
    from peft import PeftType

    kinds = [kind.value for kind in PeftType]
    draw.shuffle(kinds)
    for kind in kinds:
        yield kind, _adapted(kind)


def _adapted(kind: str) -> Build:
    def build(_training: bool) -> Built:
        import transformers
        from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftType, TaskType, get_peft_model

        config = transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            intermediate_size=2 * WIDTH,
            use_cache=False,
            pad_token_id=0,
        )
        adapter = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(kind)]
        known = inspect.signature(adapter).parameters
        sizes = {
            "r": 4,
            "num_virtual_tokens": 4,
            "target_modules": ["q_proj", "v_proj"],
            "task_type": TaskType.CAUSAL_LM,
        }
        model = get_peft_model(
            transformers.LlamaForCausalLM(config), adapter(**{key: sizes[key] for key in sizes if key in known})
        )
        ids = torch.randint(2, WORDS, (2, 12))
        return Built(model, (), {"input_ids": ids, "labels": ids})

    return build


def quantizations(draw: random.Random) -> Iterator[tuple[str, Build]]:
    """Yield the small GPT under the library's configs.

    It is quantized for inference, and fake-quantized for training where the library has that for a config. Where not,
    what is left in floating point is trained.
    """
    from torchao import quantization

    names = [name for name in dir(quantization) if name.endswith("Config") and name != "FqnToConfig"]
    draw.shuffle(names)
    for name in names:
        yield name, _quantized(name)


def _quantized(name: str) -> Build:
    def build(training: bool) -> Built:
        from torchao import quantization
        from torchao.quantization.qat import QATConfig

        config = getattr(quantization, name)()
        model = GPT(WIDTH, depth=2).to(torch.bfloat16)
        try:
            quantization.quantize_(model, QATConfig(config, step="prepare") if training else config)
        except ValueError:
            quantization.quantize_(model, config)
        return Built(model, (torch.randint(2, WORDS, (2, 12)),))

    return build
