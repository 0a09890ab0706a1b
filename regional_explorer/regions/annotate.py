"""``rx.region``: marks a region in the source, as a context manager or decorator, with its config or preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.fx.traceback import annotate

from regional_explorer.errors import InvalidConfigValueError, shown_value
from regional_explorer.record.configs import preset
from regional_explorer.record.plan import Default, require_name
from regional_explorer.torch_api.graphs import ANNOTATION

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager  # the type that ``annotate`` returns, a decorator as well

CONFIG_TYPES = (bool, int, float, str, list, tuple, dict, type(None), Default)
"""The types of config values."""


def region(name: str, /, *presets: str, **configs: Any) -> _GeneratorContextManager[None]:
    """Mark the ops of a block, or of a decorated function, as the region ``name``, to be compiled under ``configs``.

    Shorthand for ``torch.fx.traceback.annotate``: the block works the same under plain ``torch.compile`` with the
    ``regional_inductor`` backend, and does nothing in eager mode.

    Args:
        name: the region's name; blocks of one name belong to one region.
        *presets: names of configs, such as ``"no fusion"`` or ``"NaN asserts"``.
        **configs: Inductor configs by dotted key; those with a dot need ``**{"triton.cudagraphs": False}``.

    Raises:
        PlanError: the name is not a string, or is empty.
        InvalidConfigValueError: there is no such preset, or a value has a type that no config has; ``explore`` checks
            which values torch accepts.

    Example::

        with rx.region("mlp", max_fusion_size=8):
            x = self.mlp(x)
    """
    require_name(name)
    for preset_name in reversed(presets):  # the last one wins over those before it, and ``configs`` over all
        configs = {**preset(preset_name), **configs}
    for key, value in configs.items():
        if not isinstance(value, CONFIG_TYPES):  # Dynamo keeps the mark, and supports only constants
            raise InvalidConfigValueError(
                f"{key}={shown_value(value)}: a config value is a number, a string, True, False, None, or a list or "
                "dict of these."
            )
    # A plain function that returns annotate(...): Dynamo traces that, but no context manager class of our own.
    return annotate({ANNOTATION: {"inductor_region": name, "inductor_configs": configs}})
