"""``diffusers``: a table of small configs, for its models take configs of their own, and a random order of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from tests.campaign.library_case import Build, Built

Inputs = Callable[[], Mapping[str, torch.Tensor]]


def _image(channels: int, size: int = 16) -> torch.Tensor:
    return torch.randn(1, channels, size, size)


def _time() -> torch.Tensor:
    return torch.tensor([7])


def _text(width: int, length: int = 6) -> torch.Tensor:
    return torch.randn(1, length, width)


def _denoised(channels: int, size: int = 16, **more: torch.Tensor) -> Mapping[str, torch.Tensor]:
    return {"sample": _image(channels, size), "timestep": _time(), **more}


def _latents(channels: int, **more: torch.Tensor) -> Mapping[str, torch.Tensor]:
    return {"hidden_states": _image(channels, 8), "timestep": _time(), **more}


HEADS = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2}
UNET = {"sample_size": 16, "layers_per_block": 1, "block_out_channels": (16, 32), "norm_num_groups": 8}
CODER = {"block_out_channels": (16, 32), "latent_channels": 4, "norm_num_groups": 8}

MODELS: Mapping[str, tuple[Mapping[str, Any], Inputs]] = {
    "UNet2DModel": (
        {
            **UNET,
            "attention_head_dim": 8,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        lambda: _denoised(3),
    ),
    "UNet2DConditionModel": (
        {
            **UNET,
            "attention_head_dim": 2,
            "cross_attention_dim": 16,
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        },
        lambda: _denoised(4, encoder_hidden_states=_text(16)),
    ),
    "UNet3DConditionModel": (
        {
            **UNET,
            "attention_head_dim": 8,
            "cross_attention_dim": 16,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        lambda: {"sample": torch.randn(1, 4, 2, 16, 16), "timestep": _time(), "encoder_hidden_states": _text(16)},
    ),
    "AutoencoderKL": (
        {
            **CODER,
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
        },
        lambda: {"sample": _image(3)},
    ),
    "VQModel": (
        {
            "block_out_channels": (16, 32),
            "norm_num_groups": 8,
            "latent_channels": 3,
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
        },
        lambda: {"sample": _image(3)},
    ),
    "AutoencoderTiny": (
        {
            "encoder_block_out_channels": (16, 16),
            "decoder_block_out_channels": (16, 16),
            "num_encoder_blocks": (1, 2),
            "num_decoder_blocks": (2, 1),
        },
        lambda: {"sample": _image(3)},
    ),
    "DiTTransformer2DModel": (
        {**HEADS, "in_channels": 4, "out_channels": 8, "sample_size": 8, "num_embeds_ada_norm": 8},
        lambda: _latents(4, class_labels=torch.tensor([3])),
    ),
    "PixArtTransformer2DModel": (
        {
            **HEADS,
            "sample_size": 8,
            "caption_channels": 16,
            "cross_attention_dim": 16,
            "use_additional_conditions": False,
        },
        lambda: _latents(4, encoder_hidden_states=_text(16)),
    ),
    "SD3Transformer2DModel": (
        {
            **HEADS,
            "sample_size": 8,
            "patch_size": 2,
            "in_channels": 4,
            "out_channels": 4,
            "caption_projection_dim": 16,
            "joint_attention_dim": 16,
            "pooled_projection_dim": 32,
            "pos_embed_max_size": 16,
        },
        lambda: _latents(4, encoder_hidden_states=_text(16), pooled_projections=torch.randn(1, 32)),
    ),
    "FluxTransformer2DModel": (
        {
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 2,
            "num_attention_heads": 2,
            "attention_head_dim": 16,
            "joint_attention_dim": 16,
            "pooled_projection_dim": 16,
            "axes_dims_rope": (4, 4, 8),
        },
        lambda: {
            "hidden_states": torch.randn(1, 16, 4),
            "encoder_hidden_states": _text(16),
            "pooled_projections": torch.randn(1, 16),
            "timestep": torch.tensor([0.5]),
            "img_ids": torch.randn(16, 3),
            "txt_ids": torch.randn(6, 3),
        },
    ),
    "SanaTransformer2DModel": (
        {
            **HEADS,
            "sample_size": 8,
            "in_channels": 4,
            "out_channels": 4,
            "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 8,
            "cross_attention_dim": 16,
            "caption_channels": 16,
        },
        lambda: _latents(4, encoder_hidden_states=_text(16)),
    ),
    "LTXVideoTransformer3DModel": (
        {**HEADS, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 16, "caption_channels": 16},
        lambda: {
            "hidden_states": torch.randn(1, 2 * 4 * 4, 4),
            "encoder_hidden_states": _text(16),
            "encoder_attention_mask": torch.ones(1, 6),
            "timestep": _time(),
            "num_frames": 2,  # type: ignore[dict-item]  # sizes, no tensors
            "height": 4,  # type: ignore[dict-item]
            "width": 4,  # type: ignore[dict-item]
        },
    ),
    "AuraFlowTransformer2DModel": (
        {
            "sample_size": 8,
            "in_channels": 4,
            "out_channels": 4,
            "num_mmdit_layers": 1,
            "num_single_dit_layers": 1,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "caption_projection_dim": 16,
            "pos_embed_max_size": 64,
        },
        lambda: _latents(4, encoder_hidden_states=_text(16)),
    ),
    "PriorTransformer": (
        {**HEADS, "embedding_dim": 8, "num_embeddings": 7},
        lambda: {
            "hidden_states": torch.randn(1, 8),
            "timestep": _time(),
            "proj_embedding": torch.randn(1, 8),
            "encoder_hidden_states": torch.randn(1, 7, 8),
        },
    ),
}
"""What is drawn from, by class: config and inputs."""


def models(draw: random.Random) -> Iterator[tuple[str, Build]]:
    """Yield the models of the table in random order."""
    names = list(MODELS)
    draw.shuffle(names)
    for name in names:
        yield name, _model(name)


def _model(name: str) -> Build:
    def build(_training: bool) -> Built:
        import diffusers

        config, inputs = MODELS[name]
        return Built(getattr(diffusers, name)(**config), (), {**inputs(), "return_dict": False})

    return build
