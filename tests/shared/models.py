"""The measured programs: a chain of blocks, the quickstart's GPT, and 21 real architectures in a laptop's sizes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx

WIDTH = 64
"""The width of a chain's blocks."""

WORDS = 97
"""Size of all vocabularies."""


class Block(nn.Module):
    """A residual MLP block marked as a region; ``steps`` sets how many ops it has beyond the two products."""

    def __init__(self, region: str, config: dict[str, object], steps: int) -> None:
        super().__init__()
        self.region = region
        self.config = config
        self.steps = steps
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` plus the result of the region on it."""
        with rx.region(self.region, **self.config):
            y = F.gelu(self.up(x))
            for step in range(self.steps):
                y = torch.sin(y) * (step + 1.5)
            y = self.down(y)
        return x + y


class Chain(nn.Module):
    """``regions`` blocks, all different (``equal=False``), or ``regions`` equal blocks of one name."""

    def __init__(self, regions: int, *, equal: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            Block("block" if equal else f"r{index:02}", {}, 1 if equal else index + 1) for index in range(regions)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a scalar loss."""
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def inputs(rows: int = 32) -> torch.Tensor:
    """Return an input that needs a gradient, so that all blocks have equal backwards."""
    return torch.randn(rows, WIDTH, requires_grad=True)


def quickstart() -> rx.Exploration:
    """Return the exploration of the quickstart notebook's GPT: its cell without the magic."""
    notebook = Path(__file__).resolve().parents[2] / "notebooks" / "quickstart.ipynb"
    cells = ("".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"])
    source = next(cell for cell in cells if "class GPT" in cell)
    lines = [line for line in source.splitlines() if not line.startswith("%")]
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "rx": rx}
    exec(compile("\n".join(lines), "<quickstart>", "exec"), names)  # noqa: S102 - the project's own notebook
    return rx.explore(names["model"], (names["tokens"], names["targets"]))


def explore(name: str, *, training: bool = True, repeats: int = 1) -> rx.Exploration:
    """Return the exploration of an architecture with its regions marked, or of the quickstart's GPT.

    Its inputs are repeated ``repeats`` times along their first dimension, the batch.
    """
    if name == "quickstart":
        return quickstart()
    ex = explore_unmarked(name, training=training, repeats=repeats)
    globs = ARCHITECTURES[name].modules
    for glob in globs:
        try:
            ex.mark(glob.replace("*", "").strip(".").replace("..", "."), modules=glob)
        except rx.SelectorError:
            # Names of submodules differ between versions of transformers; one glob that matches will do.
            if glob == globs[-1] and not ex.plan.regions:
                raise
    return ex


def explore_unmarked(name: str, *, training: bool, repeats: int = 1) -> rx.Exploration:
    """Return the exploration of an architecture with only the regions marked in its source."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(0)
    model, kwargs = ARCHITECTURES[name].build()
    if repeats > 1:
        values = {key: torch.cat([value] * repeats) for key, value in kwargs.items() if torch.is_tensor(value)}
        kwargs = {**kwargs, **values}
    return rx.explore(model.train(training), kwargs=kwargs, grad=training)


Build = Callable[[], tuple[nn.Module, Mapping[str, Any]]]
"""Makes a model with the keyword arguments of its call."""


@dataclass(frozen=True)
class Architecture:
    """One model with the globs of its regions."""

    build: Build
    modules: tuple[str, ...]


def _ids(length: int = 12) -> torch.Tensor:
    return torch.randint(2, WORDS, (2, length))


def _image(size: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


def transformer(name: str, inputs_of: Callable[[], Mapping[str, Any]]) -> Callable[..., Build]:
    """Return a function from the options of a config to a builder of the class ``name`` of transformers."""

    def taking(**options: Any) -> Build:
        def build() -> tuple[nn.Module, Mapping[str, Any]]:
            import transformers

            cls = getattr(transformers, name)
            return cls(cls.config_class(**options)), inputs_of()

        return build

    return taking


def _text() -> dict[str, Any]:
    return {"input_ids": _ids()}


def labelled_sentences(length: int = 12) -> dict[str, Any]:
    """Return sentences of ``length`` words, with each next word as label."""
    ids = _ids(length)
    return {"input_ids": ids, "labels": ids}


def _pairs() -> dict[str, Any]:
    return {"input_ids": _ids(), "labels": _ids(8)}


def _pixels() -> dict[str, Any]:
    return {"pixel_values": _image()}


def _architecture(name: str, inputs_of: Callable[[], Mapping[str, Any]], *modules: str) -> Callable[..., Architecture]:
    """Return a function from the options of a config to the architecture, with the globs of its regions."""
    return lambda **options: Architecture(transformer(name, inputs_of)(**options), modules)


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
LANGUAGE = {"vocab_size": WORDS, "use_cache": False}
ENCODER = {"vocab_size": WORDS, **SIZES}
DECODER = {**LANGUAGE, **SIZES, "num_key_value_heads": 1, "head_dim": 16, "pad_token_id": 0}
VISION = {**SIZES, "image_size": 32, "patch_size": 8}
TWO_SIDES = {**LANGUAGE, "d_model": 32} | {
    f"{side}_{size}": number
    for side in ("encoder", "decoder")
    for size, number in {"layers": 2, "attention_heads": 2, "ffn_dim": 64}.items()
}
EXPERTS = ("model.layers.*.self_attn", "model.layers.*.mlp")
BOTH_LAYERS = ("model.encoder.layers.*", "model.decoder.layers.*")
EITHER_LAYERS = ("**.layer.*", "layers.*")
"""The layers of vision transformers in older and in newer versions of transformers."""


class Attention(nn.Module):
    """Causal or full self-attention."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return for each position the values gathered from the other positions."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class GPTBlock(nn.Module):
    """Attention and MLP, each on a normed residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, 2, causal=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` with the outputs of both added."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A decoder as written by hand; its head shares the weights of its embedding."""

    def __init__(self, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList(GPTBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the loss of predicting each next word."""
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class DiffusionBlock(nn.Module):
    """A transformer block whose norms are shifted and scaled by the noise level."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.attn = Attention(width, 2, causal=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Return the tokens, moved by attention and MLP as far as the gates let them."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        x = x + gate1 * self.attn(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiffusionTransformer(nn.Module):
    """Predicts the noise in an image from its patches, the time and a label."""

    def __init__(self, width: int = 32, depth: int = 3, patch: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.position = nn.Parameter(torch.randn(1, 64, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(10, width)
        self.blocks = nn.ModuleList(DiffusionBlock(width) for _ in range(depth))
        self.out = nn.Linear(width, 3 * patch * patch)
        self.patch = patch

    def forward(self, image: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error of the noise predicted."""
        x = self.patches(image).flatten(2).transpose(1, 2) + self.position
        steps = torch.arange(x.shape[-1] // 2, device=time.device)
        angles = time[:, None] * torch.exp(-steps / steps.numel() * 9.2)
        condition = self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.label(label)
        for block in self.blocks:
            x = block(x, condition)
        noise = F.fold(self.out(x).transpose(1, 2), image.shape[-2:], self.patch, stride=self.patch)
        return (noise - image).square().mean()


ARCHITECTURES: dict[str, Architecture] = {
    "gpt": Architecture(lambda: (GPT(), {"ids": _ids()}), ("layers.*",)),
    "dit": Architecture(
        lambda: (
            DiffusionTransformer(),
            {"image": _image(), "time": torch.rand(2) * 1000, "label": torch.tensor([1, 7])},
        ),
        ("blocks.*",),
    ),
    "bert": _architecture("BertModel", _text, "encoder.layer.*")(**ENCODER),
    "albert": _architecture("AlbertModel", _text, "**.albert_layers.*")(**ENCODER, embedding_size=16),
    "gpt2": _architecture("GPT2LMHeadModel", labelled_sentences, "transformer.h.*")(
        **LANGUAGE, n_embd=32, n_layer=2, n_head=2, n_positions=32
    ),
    "llama": _architecture("LlamaForCausalLM", labelled_sentences, "model.layers.*")(**DECODER),
    "gemma": _architecture("GemmaForCausalLM", labelled_sentences, "model.layers.*")(**DECODER),
    "mixtral": _architecture("MixtralForCausalLM", labelled_sentences, *EXPERTS)(**DECODER, num_local_experts=3),
    "qwen2_moe": _architecture("Qwen2MoeForCausalLM", labelled_sentences, *EXPERTS)(
        **DECODER, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32
    ),
    "t5": _architecture("T5ForConditionalGeneration", _pairs, "encoder.block.*", "decoder.block.*")(
        **LANGUAGE, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
    ),
    "bart": _architecture("BartForConditionalGeneration", _pairs, *BOTH_LAYERS)(
        **TWO_SIDES, max_position_embeddings=32
    ),
    "vit": _architecture("ViTModel", _pixels, *EITHER_LAYERS)(**VISION),
    "dinov2": _architecture("Dinov2Model", _pixels, *EITHER_LAYERS)(**VISION, mlp_ratio=2),
    "swin": _architecture("SwinModel", _pixels, "encoder.layers.*.blocks.*")(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[1, 2], window_size=4
    ),
    "segformer": _architecture(
        "SegformerForSemanticSegmentation",
        lambda: {"pixel_values": _image(), "labels": torch.randint(0, 2, (2, 32, 32))},
        *("**.block.*", "**.layers.*", "decode_head"),
    )(hidden_sizes=[16, 32, 32, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16),
    "clip": _architecture(
        "CLIPModel",
        lambda: {"input_ids": _ids(), "pixel_values": _image(), "return_loss": True},
        *("text_model.encoder.layers.*", "vision_model.encoder.layers.*"),
    )(
        text_config={**ENCODER, "projection_dim": 16, "max_position_embeddings": 32, "eos_token_id": 2},
        vision_config={**VISION, "projection_dim": 16},
        projection_dim=16,
    ),
    "resnet": _architecture("ResNetModel", _pixels, "encoder.stages.*.layers.*")(
        embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic"
    ),
    "convnext": _architecture("ConvNextModel", _pixels, "encoder.stages.*.layers.*")(
        hidden_sizes=[8, 16], depths=[2, 2], num_stages=2
    ),
    "mamba": _architecture("MambaForCausalLM", labelled_sentences, "backbone.layers.*")(
        **LANGUAGE, hidden_size=32, num_hidden_layers=2, state_size=8
    ),
    "whisper": _architecture(
        "WhisperForConditionalGeneration",
        lambda: {"input_features": torch.randn(2, 16, 32), "labels": _ids(8)},
        *BOTH_LAYERS,
    )(
        **TWO_SIDES,
        num_mel_bins=16,
        max_source_positions=16,
        max_target_positions=16,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        pad_token_id=0,
    ),
    "wav2vec2": _architecture("Wav2Vec2Model", lambda: {"input_values": torch.randn(2, 640)}, "encoder.layers.*")(
        **SIZES,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        mask_time_length=2,
    ),
}
