"""Forty small models of other libraries, in a list: for medicine, tables, physics, time series; spikes and flows.

Each is built with random weights, in a size that takes seconds.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tests.campaign.library_case import Build, Built, Case

WIDTH = 32
WORDS = 97

Inputs = Callable[[], Sequence[Any]]


def _image(channels: int = 3, size: int = 32, batch: int = 2) -> Inputs:
    return lambda: (torch.randn(batch, channels, size, size),)


def _volume(size: int) -> Inputs:
    return lambda: (torch.randn(2, 1, size, size, size),)


def _made(path: str, inputs: Inputs, *args: Any, **options: Any) -> Build:
    """Return a ``build`` that calls the class at ``path``, its module and its name."""
    module, _, name = path.rpartition(".")

    def build(_training: bool) -> Built:
        return Built(getattr(importlib.import_module(module), name)(*args, **options), tuple(inputs()))

    return build


def _transformer(name: str, inputs: Callable[[], Mapping[str, Any]], **options: Any) -> Build:
    """Return a ``build`` for the class ``name`` of transformers, with a config of these options."""

    def build(_training: bool) -> Built:
        import transformers

        cls = getattr(transformers, name)
        return Built(cls(cls.config_class(**options)), (), inputs())

    return build


def _text() -> Mapping[str, Any]:
    return {"input_ids": torch.randint(2, WORDS, (2, 16)), "attention_mask": torch.ones(2, 16, dtype=torch.int64)}


def _labelled() -> Mapping[str, Any]:
    ids = torch.randint(2, WORDS, (2, 16))
    return {"input_ids": ids, "labels": ids}


def _pixels(size: int = 32) -> Callable[[], Mapping[str, Any]]:
    return lambda: {"pixel_values": torch.randn(2, 3, size, size)}


ENCODER = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 2 * WIDTH,
    "pad_token_id": 0,
}
DECODER = {**ENCODER, "use_cache": False, "num_key_value_heads": 2}


class _Flow(nn.Module):
    """A normalizing flow gives the likelihood of its input."""

    def __init__(self) -> None:
        super().__init__()
        from nflows.distributions.normal import StandardNormal
        from nflows.flows.base import Flow
        from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
        from nflows.transforms.base import CompositeTransform
        from nflows.transforms.permutations import ReversePermutation

        layers = [
            layer
            for _ in range(3)
            for layer in (ReversePermutation(6), MaskedAffineAutoregressiveTransform(6, hidden_features=WIDTH))
        ]
        self.flow = Flow(CompositeTransform(layers), StandardNormal([6]))

    def forward(self, x: torch.Tensor) -> Any:
        return self.flow.log_prob(x)


class _Spikes(nn.Module):
    """Leaky neurons that fire, over a few steps of time."""

    def __init__(self) -> None:
        super().__init__()
        import snntorch

        self.first, self.second = nn.Linear(20, WIDTH), nn.Linear(WIDTH, 10)
        self.fires, self.fires_again = snntorch.Leaky(beta=0.9), snntorch.Leaky(beta=0.8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, state_again = self.fires.init_leaky(), self.fires_again.init_leaky()
        seen = []
        for _ in range(4):
            spikes, state = self.fires(self.first(x), state)
            spikes, state_again = self.fires_again(self.second(spikes), state_again)
            seen.append(state_again)
        return torch.stack(seen)


MODELS: Mapping[str, Mapping[str, Build]] = {
    "monai": {
        "BasicUNet": _made("monai.networks.nets.BasicUNet", _volume(32), 3, 1, 2, features=(8, 8, 16, 16, 16, 8)),
        "SegResNet": _made(
            "monai.networks.nets.SegResNet", _volume(16), 3, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,)
        ),
        "DynUNet": _made(
            "monai.networks.nets.DynUNet", _image(1), 2, 1, 2, (3, 3, 3), (1, 2, 2), (2, 2), filters=(8, 16, 16)
        ),
        "AttentionUnet": _made("monai.networks.nets.AttentionUnet", _image(1), 2, 1, 2, (8, 16, 16), (2, 2)),
        "AutoEncoder": _made("monai.networks.nets.AutoEncoder", _image(1), 2, 1, 2, (8, 16), (2, 2)),
        "DenseNet": _made(
            "monai.networks.nets.DenseNet", _image(1), 2, 1, 3, init_features=8, growth_rate=8, block_config=(2, 2)
        ),
    },
    "vit_pytorch": {
        "cait": _made(
            "vit_pytorch.cait.CaiT",
            _image(),
            image_size=32,
            patch_size=8,
            num_classes=10,
            dim=WIDTH,
            depth=2,
            cls_depth=1,
            heads=2,
            mlp_dim=64,
        ),
        "cvt": _made(
            "vit_pytorch.cvt.CvT", _image(), num_classes=10, s1_emb_dim=16, s2_emb_dim=16, s3_emb_dim=32, s3_depth=1
        ),
        "levit": _made(
            "vit_pytorch.levit.LeViT",
            _image(),
            image_size=32,
            num_classes=10,
            dim=(16, 24),
            depth=1,
            heads=(2, 2),
            mlp_mult=2,
            stages=2,
        ),
        "max_vit": _made(
            "vit_pytorch.max_vit.MaxViT",
            _image(size=32),
            num_classes=10,
            dim_conv_stem=16,
            dim=16,
            dim_head=8,
            depth=(1, 1),
            window_size=4,
        ),
        "nest": _made(
            "vit_pytorch.nest.NesT",
            _image(),
            image_size=32,
            patch_size=4,
            dim=16,
            heads=2,
            num_hierarchies=2,
            block_repeats=(1, 1),
            num_classes=10,
        ),
        "xcit": _made(
            "vit_pytorch.xcit.XCiT",
            _image(),
            image_size=32,
            patch_size=8,
            num_classes=10,
            dim=WIDTH,
            depth=2,
            cls_depth=1,
            heads=2,
            mlp_dim=64,
        ),
    },
    "perceiver_pytorch": {
        "Perceiver": _made(
            "perceiver_pytorch.Perceiver",
            lambda: (torch.randn(2, 8, 8, 3),),
            num_freq_bands=4,
            depth=2,
            max_freq=8.0,
            num_latents=8,
            latent_dim=32,
            cross_dim_head=16,
            latent_dim_head=16,
            latent_heads=2,
            num_classes=10,
        ),
    },
    "conformer": {
        "Conformer": _made(
            "conformer.Conformer", lambda: (torch.randn(2, 20, WIDTH),), WIDTH, depth=2, dim_head=16, heads=2
        )
    },
    "local_attention": {
        "LocalTransformer": _made(
            "local_attention.LocalTransformer",
            lambda: (torch.randint(0, WORDS, (2, 16)),),
            num_tokens=WORDS,
            max_seq_len=16,
            dim=WIDTH,
            depth=2,
            local_attn_window_size=8,
            dim_head=16,
            heads=2,
        ),
    },
    "tab_transformer_pytorch": {
        "FTTransformer": _made(
            "tab_transformer_pytorch.FTTransformer",
            lambda: (torch.randint(0, 5, (8, 3)), torch.randn(8, 4)),
            categories=(5, 6, 7),
            num_continuous=4,
            dim=WIDTH,
            depth=2,
            heads=2,
        ),
    },
    "rtdl_revisiting_models": {
        "ResNet": _made(
            "rtdl_revisiting_models.ResNet",
            lambda: (torch.randn(16, 12),),
            d_in=12,
            d_out=3,
            n_blocks=2,
            d_block=WIDTH,
            d_hidden=48,
            d_hidden_multiplier=None,
            dropout1=0.0,
            dropout2=0.0,
        ),
    },
    "mlp_mixer_pytorch": {
        "MLPMixer": _made(
            "mlp_mixer_pytorch.MLPMixer",
            _image(),
            image_size=32,
            channels=3,
            patch_size=8,
            dim=WIDTH,
            depth=2,
            num_classes=10,
        )
    },
    "g_mlp_pytorch": {
        "gMLPVision": _made(
            "g_mlp_pytorch.gMLPVision", _image(), image_size=32, patch_size=8, num_classes=10, dim=WIDTH, depth=2
        )
    },
    "kornia": {
        "HardNet": _made("kornia.feature.HardNet", _image(1), pretrained=False),
    },
    "neuralop": {
        "FNO": _made(
            "neuralop.models.FNO",
            _image(2, 16),
            n_modes=(4, 4),
            in_channels=2,
            out_channels=1,
            hidden_channels=16,
            n_layers=2,
        ),
        "TFNO": _made(
            "neuralop.models.TFNO",
            _image(2, 16),
            n_modes=(4, 4),
            in_channels=2,
            out_channels=1,
            hidden_channels=16,
            n_layers=2,
        ),
    },
    "snntorch": {"Leaky": lambda _training: Built(_Spikes(), (torch.randn(4, 20),))},
    "nflows": {"MaskedAffine": lambda _training: Built(_Flow(), (torch.randn(16, 6),))},
    "ncps": {"CfC": _made("ncps.torch.CfC", lambda: (torch.randn(2, 6, 5),), 5, 16)},
    "transformers": {
        "DebertaV2": _transformer(
            "DebertaV2Model", _text, **ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"]
        ),
        "FNet": _transformer(
            "FNetModel",
            lambda: {"input_ids": torch.randint(2, WORDS, (2, 16))},
            **{k: v for k, v in ENCODER.items() if k != "num_attention_heads"},
        ),
        "Bloom": _transformer(
            "BloomForCausalLM", _labelled, vocab_size=WORDS, hidden_size=WIDTH, n_layer=2, n_head=2, use_cache=False
        ),
        "OPT": _transformer(
            "OPTForCausalLM",
            _labelled,
            vocab_size=WORDS,
            hidden_size=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=64,
            word_embed_proj_dim=WIDTH,
            use_cache=False,
        ),
        "GPTNeoX": _transformer("GPTNeoXForCausalLM", _labelled, **ENCODER, use_cache=False),
        "Olmo2": _transformer("Olmo2ForCausalLM", _labelled, **DECODER),
        "PoolFormer": _transformer(
            "PoolFormerModel",
            _pixels(),
            depths=[1, 1],
            hidden_sizes=[16, 32],
            num_encoder_blocks=2,
            patch_sizes=[7, 3],
            strides=[4, 2],
            padding=[2, 1],
            mlp_ratio=2.0,
        ),
        "RegNet": _transformer(
            "RegNetModel", _pixels(), embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8
        ),
        "Hiera": _transformer(
            "HieraModel",
            _pixels(),
            image_size=[32, 32],
            embed_dim=16,
            depths=[1, 1],
            num_heads=[1, 2],
            query_stride=[2, 2],
            num_query_pool=1,
            masked_unit_size=[4, 4],
            patch_size=[7, 7],
            patch_stride=[4, 4],
            patch_padding=[3, 3],
        ),
        "PatchTST": _transformer(
            "PatchTSTForPrediction",
            lambda: {"past_values": torch.randn(2, 32, 2), "future_values": torch.randn(2, 8, 2)},
            num_input_channels=2,
            context_length=32,
            patch_length=4,
            patch_stride=4,
            d_model=16,
            num_attention_heads=2,
            num_hidden_layers=2,
            ffn_dim=32,
            prediction_length=8,
            loss="mse",
        ),
        "Electra": _transformer("ElectraModel", _text, **ENCODER, embedding_size=16),
        "RoFormer": _transformer("RoFormerModel", _text, **ENCODER, embedding_size=WIDTH),
        "Falcon": _transformer(
            "FalconForCausalLM",
            _labelled,
            vocab_size=WORDS,
            hidden_size=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            use_cache=False,
        ),
        "MobileViTV2": _transformer(
            "MobileViTV2Model",
            _pixels(64),
            image_size=64,
            expand_ratio=1.0,
            width_multiplier=0.25,
            n_attn_blocks=[1, 1, 1],
        ),
        "VideoMAE": _transformer(
            "VideoMAEModel",
            lambda: {"pixel_values": torch.randn(2, 4, 3, 32, 32)},
            **{k: v for k, v in ENCODER.items() if k not in ("vocab_size", "pad_token_id")},
            image_size=32,
            patch_size=8,
            num_frames=4,
        ),
    },
}

LISTED = tuple(Case(library, name, build) for library, models in MODELS.items() for name, build in models.items())
