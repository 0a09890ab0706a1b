"""Real architectures with random weights, small: what people compile, in the shapes that a laptop can bear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

WORDS = 97
"""Size of all vocabularies."""


@dataclass(frozen=True)
class Architecture:
    """One model: ``build`` returns it with the keyword arguments of its call, ``modules`` are globs of its regions."""

    kind: str
    build: Callable[[], tuple[nn.Module, Mapping[str, Any]]]
    modules: tuple[str, ...]


def _ids(length: int = 12) -> torch.Tensor:
    return torch.randint(2, WORDS, (2, length))


def _image(size: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


def _transformers(config: str, model: str, inputs: Callable[[], Mapping[str, Any]], **options: Any) -> Any:
    """Return a ``build`` for the class ``model`` of transformers under ``config``."""

    def build() -> tuple[nn.Module, Mapping[str, Any]]:
        import transformers

        made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options))
        return made, inputs()

    return build


ENCODER = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
DECODER = {**ENCODER, "num_key_value_heads": 1, "head_dim": 16, "use_cache": False, "pad_token_id": 0}
VISION = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


def _text() -> dict[str, Any]:
    return {"input_ids": _ids()}


def _language() -> dict[str, Any]:
    ids = _ids()
    return {"input_ids": ids, "labels": ids}


def _pairs() -> dict[str, Any]:
    return {"input_ids": _ids(), "labels": _ids(8)}


def _pixels() -> dict[str, Any]:
    return {"pixel_values": _image()}


def _both() -> dict[str, Any]:
    return {"input_ids": _ids(), "pixel_values": _image(), "return_loss": True}


class Attention(nn.Module):
    """Causal or full self-attention."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each position gathers from the others."""
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
        """Return ``x`` with both added."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A decoder as one writes it by hand, its head tied to its table."""

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
    "gpt": Architecture("decoder, by hand", lambda: (GPT(), {"ids": _ids()}), ("layers.*",)),
    "dit": Architecture(
        "diffusion transformer, by hand",
        lambda: (
            DiffusionTransformer(),
            {"image": _image(), "time": torch.rand(2) * 1000, "label": torch.tensor([1, 7])},
        ),
        ("blocks.*",),
    ),
    "bert": Architecture("encoder", _transformers("BertConfig", "BertModel", _text, **ENCODER), ("encoder.layer.*",)),
    "albert": Architecture(
        "encoder, one layer called often",
        _transformers("AlbertConfig", "AlbertModel", _text, **ENCODER, embedding_size=16),
        ("**.albert_layers.*",),
    ),
    "gpt2": Architecture(
        "decoder",
        _transformers(
            "GPT2Config",
            "GPT2LMHeadModel",
            _language,
            vocab_size=WORDS,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=32,
            use_cache=False,
        ),
        ("transformer.h.*",),
    ),
    "llama": Architecture(
        "decoder", _transformers("LlamaConfig", "LlamaForCausalLM", _language, **DECODER), ("model.layers.*",)
    ),
    "gemma": Architecture(
        "decoder", _transformers("GemmaConfig", "GemmaForCausalLM", _language, **DECODER), ("model.layers.*",)
    ),
    "mixtral": Architecture(
        "mixture of experts",
        _transformers("MixtralConfig", "MixtralForCausalLM", _language, **DECODER, num_local_experts=3),
        ("model.layers.*.self_attn", "model.layers.*.mlp"),
    ),
    "qwen2_moe": Architecture(
        "mixture of experts",
        _transformers(
            "Qwen2MoeConfig",
            "Qwen2MoeForCausalLM",
            _language,
            **DECODER,
            num_experts=3,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
        ),
        ("model.layers.*.self_attn", "model.layers.*.mlp"),
    ),
    "t5": Architecture(
        "encoder-decoder",
        _transformers(
            "T5Config",
            "T5ForConditionalGeneration",
            _pairs,
            vocab_size=WORDS,
            d_model=32,
            d_kv=16,
            d_ff=64,
            num_layers=2,
            num_heads=2,
            use_cache=False,
            decoder_start_token_id=0,
        ),
        ("encoder.block.*", "decoder.block.*"),
    ),
    "bart": Architecture(
        "encoder-decoder",
        _transformers(
            "BartConfig",
            "BartForConditionalGeneration",
            _pairs,
            vocab_size=WORDS,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=32,
            use_cache=False,
        ),
        ("model.encoder.layers.*", "model.decoder.layers.*"),
    ),
    "vit": Architecture(
        "vision transformer", _transformers("ViTConfig", "ViTModel", _pixels, **VISION), ("**.layer.*", "layers.*")
    ),
    "dinov2": Architecture(
        "vision transformer",
        _transformers("Dinov2Config", "Dinov2Model", _pixels, **VISION, mlp_ratio=2),
        ("**.layer.*", "layers.*"),
    ),
    "swin": Architecture(
        "vision transformer with windows",
        _transformers(
            "SwinConfig",
            "SwinModel",
            _pixels,
            image_size=32,
            patch_size=4,
            embed_dim=16,
            depths=[2, 2],
            num_heads=[1, 2],
            window_size=4,
        ),
        ("encoder.layers.*.blocks.*",),
    ),
    "segformer": Architecture(
        "segmentation transformer",
        _transformers(
            "SegformerConfig",
            "SegformerForSemanticSegmentation",
            lambda: {"pixel_values": _image(), "labels": torch.randint(0, 2, (2, 32, 32))},
            hidden_sizes=[16, 32, 32, 32],
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 1, 2, 2],
            decoder_hidden_size=16,
        ),
        ("**.block.*", "**.layers.*", "decode_head"),
    ),
    "clip": Architecture(
        "vision and language",
        _transformers(
            "CLIPConfig",
            "CLIPModel",
            _both,
            text_config={**ENCODER, "projection_dim": 16, "max_position_embeddings": 32, "eos_token_id": 2},
            vision_config={**VISION, "projection_dim": 16},
            projection_dim=16,
        ),
        ("text_model.encoder.layers.*", "vision_model.encoder.layers.*"),
    ),
    "resnet": Architecture(
        "convolutional net",
        _transformers(
            "ResNetConfig",
            "ResNetModel",
            _pixels,
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[2, 2],
            layer_type="basic",
        ),
        ("encoder.stages.*.layers.*",),
    ),
    "convnext": Architecture(
        "convolutional net",
        _transformers("ConvNextConfig", "ConvNextModel", _pixels, hidden_sizes=[8, 16], depths=[2, 2], num_stages=2),
        ("encoder.stages.*.layers.*",),
    ),
    "mamba": Architecture(
        "state-space model",
        _transformers(
            "MambaConfig",
            "MambaForCausalLM",
            _language,
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=8,
            use_cache=False,
        ),
        ("backbone.layers.*",),
    ),
    "whisper": Architecture(
        "speech, encoder-decoder",
        _transformers(
            "WhisperConfig",
            "WhisperForConditionalGeneration",
            lambda: {"input_features": torch.randn(2, 16, 32), "labels": _ids(8)},
            vocab_size=WORDS,
            num_mel_bins=16,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=16,
            max_target_positions=16,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=1,
            decoder_start_token_id=1,
            suppress_tokens=None,
            begin_suppress_tokens=None,
            use_cache=False,
        ),
        ("model.encoder.layers.*", "model.decoder.layers.*"),
    ),
    "wav2vec2": Architecture(
        "speech",
        _transformers(
            "Wav2Vec2Config",
            "Wav2Vec2Model",
            lambda: {"input_values": torch.randn(2, 640)},
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            conv_dim=(16, 16),
            conv_stride=(5, 2),
            conv_kernel=(10, 3),
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=2,
            mask_time_length=2,
        ),
        ("encoder.layers.*",),
    ),
}
