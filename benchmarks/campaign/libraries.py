"""Eighty small models of other libraries, with random weights, in sizes that take seconds."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.shared.models import ENCODER, GPT, LANGUAGE, SIZES, WORDS, labelled_sentences, transformer

WIDTH = 32

Inputs = Sequence[Any] | Mapping[str, Any]
"""Positional arguments of a call, or keyword arguments."""

Build = Callable[[bool], tuple[nn.Module, Inputs]]
"""Makes a model for training, or for inference, with the inputs of its call."""


@dataclass(frozen=True)
class Case:
    """One architecture of one library."""

    library: str
    name: str
    build: Build

    @property
    def is_installed(self) -> bool:
        """Whether the library is installed."""
        return importlib.util.find_spec(self.library) is not None

    def make(self, *, training: bool) -> tuple[nn.Module, Sequence[Any], Mapping[str, Any]]:
        """Return the model with its weights and the arguments of its call, the same each time."""
        _load_torchvision()  # where it is installed, other libraries import it too
        torch.manual_seed(0)
        model, inputs = self.build(training)
        model.train(training)
        return (model, (), inputs) if isinstance(inputs, Mapping) else (model, inputs, {})


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Context manager: silence the warnings of libraries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _load_torchvision() -> None:
    """Import torchvision beside any torch.

    The package index has the build for CUDA alone, whose operators do not load beside a torch without it. Models that
    use none of them run all the same, once the operators that its import asks for are declared.
    """
    try:
        import torchvision.ops  # noqa: F401 - to see whether it works
    except ModuleNotFoundError:
        return
    except RuntimeError:
        for op in ("nms", "qnms"):
            torch.library.define(f"torchvision::{op}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _case(path: str, inputs: Callable[[], Inputs], name: str = "") -> Callable[..., Case]:
    """Return a function that makes a case from the arguments of the class at ``path``; the path names the library."""
    module, _, cls = path.rpartition(".")

    def make_case(*args: Any, **options: Any) -> Case:
        def build(_training: bool) -> tuple[nn.Module, Inputs]:
            return getattr(importlib.import_module(module), cls)(*args, **options), inputs()

        return Case(path.partition(".")[0], name or cls, build)

    return make_case


def _transformer(name: str, head: str, inputs: Callable[[], Mapping[str, Any]]) -> Callable[..., Case]:
    """Return a function that makes a case of transformers, with this head, from the options of its config."""

    def make_case(**options: Any) -> Case:
        build = transformer(f"{name}{head}", inputs)(**options)
        return Case("transformers", name, lambda _training: build())

    return make_case


def _random(*shape: int) -> Callable[[], Inputs]:
    return lambda: (torch.randn(shape),)


def _tensors(**shapes: Sequence[int]) -> dict[str, Any]:
    return {name: torch.randn(*shape) for name, shape in shapes.items()}


# ------------------------------------------------------------------------------------------------------ timm and vision


def _timm(name: str, size: int = 64) -> Case:
    return _case("timm.create_model", _random(2, 3, size, size), name)(name, num_classes=10)


def _torchvision(name: str, *shape: int) -> Case:
    images = _random(*(shape or (2, 3, 64, 64)))
    return _case("torchvision.models.get_model", images, name)(name, weights=None, num_classes=10)


# ---------------------------------------------------------------------------------------------------------- diffusers


HEADS = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2}
CODER = {
    "block_out_channels": (16, 32),
    "norm_num_groups": 8,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}


def _denoiser_inputs(**shapes: Sequence[int]) -> Callable[[], dict[str, Any]]:
    """Return a function that makes a denoiser's inputs in these shapes; the model then returns a tuple."""
    return lambda: {**_tensors(**shapes), "timestep": torch.tensor([7]), "return_dict": False}


def _autoencoder_inputs() -> Inputs:
    return {"sample": torch.randn(1, 3, 16, 16), "return_dict": False}


# ------------------------------------------------------------------------------------------------------------- graphs


def _graph_inputs() -> Inputs:
    return torch.randn(40, 16), torch.randint(0, 40, (2, 120))


class _GraphNet(nn.Module):
    """Two convolutions with norms between."""

    def __init__(self, name: str, *args: int) -> None:
        super().__init__()
        convolution = getattr(importlib.import_module("torch_geometric.nn.conv"), name)
        self.convs = nn.ModuleList(convolution(*args) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x, edge_index))) + x
        classes: torch.Tensor = self.head(x)
        return classes


def _convolution(name: str, *args: int) -> Case:
    return Case("torch_geometric", name, lambda _training: (_GraphNet(name, *args), _graph_inputs()))


# ----------------------------------------------------------------------------------- layers with options, and adapters

X_SIZE = {"depth": 2, "heads": 2, "attn_dim_head": 16}
X_WORDS = {"num_tokens": WORDS, "max_seq_len": 16}


def _x_transformer(kind: str, *options: str) -> Case:
    """Return a transformer with options that are off by default."""

    def build(_training: bool) -> tuple[nn.Module, Inputs]:
        import x_transformers as library

        sizes: dict[str, Any] = {**X_SIZE, **dict.fromkeys(options, True)}
        words = torch.randint(0, WORDS, (2, 12))
        if kind == "XTransformer":
            sides = {f"{side}_{key}": value for side in ("enc", "dec") for key, value in {**sizes, **X_WORDS}.items()}
            return library.XTransformer(dim=WIDTH, **sides), (words, words)
        layers = getattr(library, kind)(dim=WIDTH, **sizes)
        return library.TransformerWrapper(**X_WORDS, attn_layers=layers), (words,)

    return Case("x_transformers", " ".join([kind, *options]), build)


LLAMA = {**LANGUAGE, **SIZES, "num_key_value_heads": 2, "pad_token_id": 0}


def _peft_case(kind: str, **sizes: Any) -> Case:
    """Return a small Llama with a PEFT adapter of type ``kind``."""

    def build(_training: bool) -> tuple[nn.Module, Inputs]:
        from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftType, TaskType, get_peft_model

        model, inputs = transformer("LlamaForCausalLM", labelled_sentences)(**LLAMA)()
        adapter = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(kind)]
        targets = ["q_proj", "v_proj"]
        return get_peft_model(model, adapter(task_type=TaskType.CAUSAL_LM, target_modules=targets, **sizes)), inputs

    return Case("peft", kind, build)


def _torchao_case(name: str) -> Case:
    """Return a small GPT, quantized for inference and fake-quantized for training.

    If a config has no fake quantization, the layers left in floating point are trained.
    """

    def build(training: bool) -> tuple[nn.Module, Inputs]:
        from torchao import quantization
        from torchao.quantization.qat import QATConfig

        config = getattr(quantization, name)()
        model = GPT(WIDTH, depth=2).to(torch.bfloat16)
        try:
            quantization.quantize_(model, QATConfig(config, step="prepare") if training else config)
        except ValueError:
            quantization.quantize_(model, config)
        return model, (torch.randint(2, WORDS, (2, 12)),)

    return Case("torchao", name, build)


DRAWN = (
    *map(_timm, ("edgenext_xx_small", "hgnetv2_b1", "convit_tiny", "dla46x_c", "cspnext_tiny")),
    *map(_timm, ("legacy_seresnet18", "mambaout_femto")),
    _timm("visformer_tiny", 224),
    _timm("test_vit_relpos", 160),
    *map(_torchvision, ("mnasnet1_3", "mobilenet_v2", "shufflenet_v2_x0_5", "squeezenet1_0", "efficientnet_b0")),
    _torchvision("mc3_18", 1, 3, 8, 64, 64),
    _case(
        "torchvision.models.get_model",
        lambda: {**_tensors(image1=(1, 3, 128, 128), image2=(1, 3, 128, 128)), "num_flow_updates": 2},
        "raft_large",
    )("raft_large", weights=None),
    _case("diffusers.VQModel", _autoencoder_inputs)(**CODER, latent_channels=3),
    _case("diffusers.AutoencoderKL", _autoencoder_inputs)(**CODER, latent_channels=4),
    _case(
        "diffusers.PriorTransformer",
        _denoiser_inputs(hidden_states=(1, 8), proj_embedding=(1, 8), encoder_hidden_states=(1, 7, 8)),
    )(**HEADS, embedding_dim=8, num_embeddings=7),
    _case("diffusers.UNet2DConditionModel", _denoiser_inputs(sample=(1, 4, 16, 16), encoder_hidden_states=(1, 6, 16)))(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        attention_head_dim=2,
        cross_attention_dim=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    ),
    _case(
        "diffusers.DiTTransformer2DModel",
        lambda: {**_denoiser_inputs(hidden_states=(1, 4, 8, 8))(), "class_labels": torch.tensor([3])},
    )(**HEADS, in_channels=4, out_channels=8, sample_size=8, num_embeds_ada_norm=8),
    _case(
        "diffusers.LTXVideoTransformer3DModel",
        lambda: {
            **_denoiser_inputs(hidden_states=(1, 2 * 4 * 4, 4), encoder_hidden_states=(1, 6, 16))(),
            "encoder_attention_mask": torch.ones(1, 6),
            "num_frames": 2,
            "height": 4,
            "width": 4,
        },
    )(**HEADS, in_channels=4, out_channels=4, cross_attention_dim=16, caption_channels=16),
    _case("torch_geometric.nn.models.GAT", _graph_inputs)(16, 16, 2, 4),
    _convolution("AntiSymmetricConv", 16),
    *(_convolution(name, 16, 16) for name in ("GATv2Conv", "LEConv", "FiLMConv", "EGConv")),
    _x_transformer(
        *("XTransformer", "attn_pre_scale_post_talking_heads", "attn_zero_init_output", "ff_post_act_ln"),
        "ff_zero_init_output",
    ),
    _x_transformer("Encoder", "adaptive_condition_mlp", "attn_cog_signed", "attn_output_gate_headwise", "ff_glu"),
    _x_transformer(
        "XTransformer", "attn_hard", "learned_reinject_input_gate", "scale_residual", "zero_init_branch_output"
    ),
    _x_transformer(
        "Decoder", "attn_post_talking_heads", "attn_use_rel_proj_pos_bias", "integrate_layers", "use_rmsnorm"
    ),
    _x_transformer("PrefixDecoder", "adaptive_condition_mlp", "attn_add_zero_kv", "macaron", "reinject_input"),
    *map(_peft_case, ("FROD", "IA3")),
    *(_peft_case(kind, r=4) for kind in ("SUPERTUNING", "VERA")),
    *map(_torchao_case, ("IntxWeightOnlyConfig", "Float8WeightOnlyConfig", "Int8DynamicActivationIntxWeightConfig")),
)
"""Forty architectures that were chosen at random from the registries of seven libraries."""


class _Flow(nn.Module):
    """A normalizing flow: returns the likelihood of its input."""

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


IMAGE = _random(2, 3, 32, 32)
PATCHES = {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": WIDTH, "depth": 2}
OPERATOR = {"n_modes": (4, 4), "in_channels": 2, "out_channels": 1, "hidden_channels": 16, "n_layers": 2}
PADDED = {**ENCODER, "pad_token_id": 0}
DECODER = {"vocab_size": WORDS, "hidden_size": WIDTH, "use_cache": False}


TEXTS = partial(labelled_sentences, 16)
PIXELS = partial(_tensors, pixel_values=(2, 3, 32, 32))


def _text() -> Mapping[str, Any]:
    return {"input_ids": torch.randint(2, WORDS, (2, 16)), "attention_mask": torch.ones(2, 16, dtype=torch.int64)}


LISTED = (
    _case("monai.networks.nets.BasicUNet", _random(2, 1, 32, 32, 32))(3, 1, 2, features=(8, 8, 16, 16, 16, 8)),
    _case("monai.networks.nets.SegResNet", _random(2, 1, 16, 16, 16))(3, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,)),
    _case("monai.networks.nets.DynUNet", _random(2, 1, 32, 32))(
        2, 1, 2, (3, 3, 3), (1, 2, 2), (2, 2), filters=(8, 16, 16)
    ),
    _case("monai.networks.nets.AttentionUnet", _random(2, 1, 32, 32))(2, 1, 2, (8, 16, 16), (2, 2)),
    _case("monai.networks.nets.AutoEncoder", _random(2, 1, 32, 32))(2, 1, 2, (8, 16), (2, 2)),
    _case("monai.networks.nets.DenseNet", _random(2, 1, 32, 32))(
        2, 1, 3, init_features=8, growth_rate=8, block_config=(2, 2)
    ),
    _case("vit_pytorch.cait.CaiT", IMAGE, "cait")(**PATCHES, cls_depth=1, heads=2, mlp_dim=64),
    _case("vit_pytorch.cvt.CvT", IMAGE, "cvt")(num_classes=10, s1_emb_dim=16, s2_emb_dim=16, s3_emb_dim=32, s3_depth=1),
    _case("vit_pytorch.levit.LeViT", IMAGE, "levit")(
        image_size=32, num_classes=10, dim=(16, 24), depth=1, heads=(2, 2), mlp_mult=2, stages=2
    ),
    _case("vit_pytorch.max_vit.MaxViT", IMAGE, "max_vit")(
        num_classes=10, dim_conv_stem=16, dim=16, dim_head=8, depth=(1, 1), window_size=4
    ),
    _case("vit_pytorch.nest.NesT", IMAGE, "nest")(
        image_size=32, patch_size=4, dim=16, heads=2, num_hierarchies=2, block_repeats=(1, 1), num_classes=10
    ),
    _case("vit_pytorch.xcit.XCiT", IMAGE, "xcit")(**PATCHES, cls_depth=1, heads=2, mlp_dim=64),
    _case("perceiver_pytorch.Perceiver", _random(2, 8, 8, 3))(
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
    _case("conformer.Conformer", _random(2, 20, WIDTH))(WIDTH, depth=2, dim_head=16, heads=2),
    _case("local_attention.LocalTransformer", lambda: (torch.randint(0, WORDS, (2, 16)),))(
        num_tokens=WORDS, max_seq_len=16, dim=WIDTH, depth=2, local_attn_window_size=8, dim_head=16, heads=2
    ),
    _case("tab_transformer_pytorch.FTTransformer", lambda: (torch.randint(0, 5, (8, 3)), torch.randn(8, 4)))(
        categories=(5, 6, 7), num_continuous=4, dim=WIDTH, depth=2, heads=2
    ),
    _case("rtdl_revisiting_models.ResNet", _random(16, 12))(
        d_in=12,
        d_out=3,
        n_blocks=2,
        d_block=WIDTH,
        d_hidden=48,
        d_hidden_multiplier=None,
        dropout1=0.0,
        dropout2=0.0,
    ),
    _case("mlp_mixer_pytorch.MLPMixer", IMAGE)(**PATCHES, channels=3),
    _case("g_mlp_pytorch.gMLPVision", IMAGE)(**PATCHES),
    _case("kornia.feature.HardNet", _random(2, 1, 32, 32))(pretrained=False),
    _case("neuralop.models.FNO", _random(2, 2, 16, 16))(**OPERATOR),
    _case("neuralop.models.TFNO", _random(2, 2, 16, 16))(**OPERATOR),
    Case("snntorch", "Leaky", lambda _training: (_Spikes(), (torch.randn(4, 20),))),
    Case("nflows", "MaskedAffine", lambda _training: (_Flow(), (torch.randn(16, 6),))),
    _case("ncps.torch.CfC", _random(2, 6, 5))(5, 16),
    _transformer("DebertaV2", "Model", _text)(**PADDED, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    _transformer("FNet", "Model", lambda: {"input_ids": torch.randint(2, WORDS, (2, 16))})(
        **{key: size for key, size in PADDED.items() if key != "num_attention_heads"}
    ),
    _transformer("Bloom", "ForCausalLM", TEXTS)(**DECODER, n_layer=2, n_head=2),
    _transformer("OPT", "ForCausalLM", TEXTS)(
        **DECODER, num_hidden_layers=2, num_attention_heads=2, ffn_dim=64, word_embed_proj_dim=WIDTH
    ),
    _transformer("GPTNeoX", "ForCausalLM", TEXTS)(**PADDED, use_cache=False),
    _transformer("Olmo2", "ForCausalLM", TEXTS)(**LLAMA),
    _transformer("PoolFormer", "Model", PIXELS)(
        depths=[1, 1],
        hidden_sizes=[16, 32],
        num_encoder_blocks=2,
        patch_sizes=[7, 3],
        strides=[4, 2],
        padding=[2, 1],
        mlp_ratio=2.0,
    ),
    _transformer("RegNet", "Model", PIXELS)(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8),
    _transformer("Hiera", "Model", PIXELS)(
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
    _transformer("PatchTST", "ForPrediction", partial(_tensors, past_values=(2, 32, 2), future_values=(2, 8, 2)))(
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
    _transformer("Electra", "Model", _text)(**PADDED, embedding_size=16),
    _transformer("RoFormer", "Model", _text)(**PADDED, embedding_size=WIDTH),
    _transformer("Falcon", "ForCausalLM", TEXTS)(**DECODER, num_hidden_layers=2, num_attention_heads=2),
    _transformer("MobileViTV2", "Model", partial(_tensors, pixel_values=(2, 3, 64, 64)))(
        image_size=64, expand_ratio=1.0, width_multiplier=0.25, n_attn_blocks=[1, 1, 1]
    ),
    _transformer("VideoMAE", "Model", partial(_tensors, pixel_values=(2, 4, 3, 32, 32)))(
        **SIZES, image_size=32, patch_size=8, num_frames=4
    ),
)
"""Forty more architectures: for medicine, tables, physics, time series; spikes and flows."""

CASES = (*DRAWN, *LISTED)
