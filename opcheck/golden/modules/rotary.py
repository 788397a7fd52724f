"""Tables of rotary positions: ``cos`` and ``sin`` of position times frequency."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ait_llm.opcheck.golden.modules.engines import rotary_positions
from ait_llm.opcheck.golden.modules.table import Compute, Given

# Frequencies of these do not change while the model runs.
_FIXED = frozenset({"default", "linear", "llama3", "yarn"})
# Each frequency stands beside itself, or their positions have several axes.
_OTHERS = (
    "Blt",
    "Cohere",
    "DeepseekV4",
    "EfficientLoFTR",
    "EsmFold",
    "MusicFlamingo",
    "Omni",
    "Vision",
    "VL",
)
# They hand out float32, whatever the type of the model.
_WIDE = frozenset(
    {
        "FlexOlmoRotaryEmbedding",
        "Olmo2RotaryEmbedding",
        "Olmo3RotaryEmbedding",
        "OlmoRotaryEmbedding",
    }
)
_POSITIONS = ("position_ids", "1")


def rotary_tables(given: Given) -> Compute | None:
    """A class of ``transformers`` that ends with RotaryEmbedding and has its usual attributes.

    The angles come once or, where the table is twice as wide as there are frequencies, twice.
    """
    if "cos_sin_cache" in given.weights or "is_neox_style" in given.definition:
        return rotary_positions(given)
    layer = given.definition.get("2", given.definition.get("layer_type"))
    prefix = f"{layer}_" if isinstance(layer, str) else ""
    kind = given.definition.get("rope_type")
    if isinstance(kind, dict):
        kind = kind.get(layer)
    scaling = given.number(f"{prefix}attention_scaling")
    name = f"{prefix}inv_freq"
    places = [place for place in _POSITIONS if place in given.inputs]
    if (
        kind not in _FIXED
        or scaling is None
        or name not in given.weights
        or len(places) != 1
        or "0" not in given.inputs
        or any(word in given.type for word in _OTHERS)
        or len(given.outputs) != 2
    ):
        return None
    (count,) = given.weights[name]
    widths = {shape[-1] for shape in given.outputs if len(shape) == 3}
    if widths not in ({count}, {2 * count}):
        return None
    twice = widths == {2 * count}

    def compute(tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        dtype = torch.float32 if given.type in _WIDE else tensors["0"].dtype
        positions = tensors[places[0]].to(torch.float32)
        angles = positions[:, :, None] * tensors[name].to(torch.float32)[None, None, :]
        if twice:
            angles = torch.cat((angles, angles), dim=-1)
        return (angles.cos() * scaling).to(dtype), (angles.sin() * scaling).to(dtype)

    return compute
