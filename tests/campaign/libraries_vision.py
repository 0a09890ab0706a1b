"""``timm`` and ``torchvision``: one model of each family, drawn from the libraries' own lists."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from tests.campaign.library_case import Build, Built, is_small, quiet

CLASSES = 10


def timm_models(draw: random.Random) -> Iterator[tuple[str, Build]]:
    """Yield one small model of each family, families in random order."""
    load_torchvision()
    import timm

    families = timm.list_modules()
    draw.shuffle(families)
    for family in families:
        names = timm.list_models(module=family)
        draw.shuffle(names)
        name = next((name for name in names if _small(timm.create_model, name)), None)
        if name is not None:
            yield name, _image_model(timm.create_model, name)


def torchvision_models(draw: random.Random) -> Iterator[tuple[str, Build]]:
    """Yield classification, segmentation, video and optical flow models, one of each family."""
    load_torchvision()
    from torchvision import models

    shapes: dict[str, Any] = dict.fromkeys(models.list_models(models), (2, 3))
    for module in (models.segmentation, models.video, models.optical_flow):
        shapes |= dict.fromkeys(models.list_models(module), (1, 3))
    video, flow = (set(models.list_models(module)) for module in (models.video, models.optical_flow))
    names = list(shapes)
    draw.shuffle(names)
    families = set()
    for name in names:
        family = name.rstrip("0123456789").partition("_")[0]
        if family in families or not _small(_torchvision_model, name):
            continue
        families.add(family)
        if name in video:
            yield name, _call(_torchvision_model, name, (torch.Size((1, 3, 8, 64, 64)),), {})
        elif name in flow:
            yield name, _call(_torchvision_model, name, (torch.Size((1, 3, 128, 128)),) * 2, {"num_flow_updates": 2})
        else:
            yield name, _image_model(_torchvision_model, name)


def load_torchvision() -> None:
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


def _torchvision_model(name: str, **options: Any) -> torch.nn.Module:
    from torchvision.models import get_model

    segmentation = any(part in name for part in ("deeplab", "fcn", "lraspp"))
    if segmentation:
        options |= {"weights_backbone": None}
    if "raft" in name:
        options.pop("num_classes", None)
    model: torch.nn.Module = get_model(name, weights=None, **options)
    return model


def _small(make: Any, name: str) -> bool:
    """Tell whether a model is small, without making its weights."""
    try:
        with quiet(), torch.device("meta"):
            return is_small(make(name))
    except Exception:  # noqa: BLE001 - models that cannot be built so are passed over
        return False


def _image_model(make: Any, name: str) -> Build:
    """Return how to build a model that takes two images: small ones, or the size it was made for."""

    def build(_training: bool) -> Built:
        model = make(name, num_classes=CLASSES)
        size = 64
        try:
            with torch.no_grad():
                model.eval()(torch.randn(2, 3, size, size))
        except (RuntimeError, AssertionError, ValueError):
            size = (getattr(model, "default_cfg", None) or {"input_size": (3, 224, 224)})["input_size"][-1]
        return Built(model, (torch.randn(2, 3, size, size),))

    return build


def _call(make: Any, name: str, shapes: tuple[torch.Size, ...], kwargs: dict[str, Any]) -> Build:
    def build(_training: bool) -> Built:
        return Built(make(name, num_classes=CLASSES), tuple(torch.randn(shape) for shape in shapes), kwargs)

    return build
