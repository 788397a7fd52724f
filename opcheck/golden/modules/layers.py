"""Products with weights, tables, and what passes values on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.base import Accepts, Params
from ait_llm.opcheck.golden.modules.microscaling import product as microscaled
from ait_llm.opcheck.golden.modules.quantised import product, weight_only
from ait_llm.opcheck.golden.modules.table import Compute, Given, module, only

_CONVOLUTIONS = {
    "Conv1d": functional.conv1d,
    "Conv2d": functional.conv2d,
    "Conv3d": functional.conv3d,
}
_DROPOUTS = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "StableDropout")


@module("Linear", "NonDynamicallyQuantizableLinear", weights=True)
def _linear(given: Given) -> Compute | None:
    if given.definition.get("weight.type") == "MXTensor":
        return microscaled(given)
    sizes = given.number("out_features"), given.number("in_features")
    if not given.takes(["weight"], ["bias"]) or given.weights["weight"] != sizes:
        return None
    if given.definition.get("bias", "bias" in given.weights) is not ("bias" in given.weights):
        return None  # it has one that was not saved
    if given.dequantised:
        return product(given) if weight_only(given) else None
    return lambda t: functional.linear(only(t, given), t["weight"], t.get("bias"))


@module("Conv1D", weights=True)
def _transposed_linear(given: Given) -> Compute | None:
    """The product of GPT-2, whose weight is ``[in, out]``."""
    sizes = given.number("nx"), given.number("nf")
    if not given.takes(["weight", "bias"]) or given.weights["weight"] != sizes:
        return None
    return lambda t: functional.linear(only(t, given), t["weight"].t(), t["bias"])


@module("Embedding", weights=True)
def _embedding(given: Given) -> Compute | None:
    if not given.takes(["weight"]) or given.definition.get("max_norm", 0) is not None:
        return None
    return lambda t: functional.embedding(only(t, given), t["weight"])


@module(
    "GemmaTextScaledWordEmbedding",
    "Gemma2TextScaledWordEmbedding",
    "Gemma3TextScaledWordEmbedding",
    "Gemma3nTextScaledWordEmbedding",
    "BartScaledWordEmbedding",
    weights=True,
)
def _scaled_embedding(given: Given) -> Compute | None:
    """Rows of the table times ``embed_scale`` in the type of the table."""
    if (
        not given.takes(["weight"], ["embed_scale"])
        or given.definition.get("max_norm", 0) is not None
    ):
        return None
    number = given.number("embed_scale")
    if "embed_scale" not in given.weights and number is None:
        return None

    def compute(tensors: Mapping[str, Tensor]) -> Tensor:
        weight = tensors["weight"]
        scale = tensors.get("embed_scale")
        rows = functional.embedding(only(tensors, given), weight)
        if scale is not None:
            return rows * scale.to(weight.dtype)
        return rows * (1.0 if number is None else number)

    return compute


@module("Conv1d", "Conv2d", "Conv3d", weights=True)
def _convolution(given: Given) -> Compute | None:
    names = ("stride", "padding", "dilation", "groups")
    known: dict[str, Any] = {name: given.definition.get(name) for name in names}
    if (
        not given.takes(["weight"], ["bias"])
        or given.definition.get("padding_mode") != "zeros"
        or given.definition.get("transposed") is not False
        or given.definition.get("bias") is not ("bias" in given.weights)
        or None in known.values()
    ):
        return None
    function = _CONVOLUTIONS[given.type]
    return lambda t: function(only(t, given), t["weight"], t.get("bias"), **known)


@module("Identity")
def _identity(given: Given) -> Compute | None:
    return (lambda t: only(t, given)) if given.takes(()) else None


@module(*_DROPOUTS)
def _dropout(given: Given) -> Compute | None:
    """What it is outside of training; :func:`legal_choice` says what else is right."""
    return (lambda t: only(t, given)) if given.takes(()) else None


def legal_choice(given: Given) -> Accepts | None:
    """Whether results other than golden's are right, for modules that may draw; None for others."""
    rate = given.number("p")
    if given.type not in _DROPOUTS or rate is None or not 0 <= rate < 1:
        return None

    def is_drawn(
        inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Params
    ) -> bool:
        """Each element was dropped, or is as much larger as many are dropped."""
        (x,), (found,) = inputs, outputs
        if x is None or x.shape != found.shape:
            return False
        kept = found != 0
        if bool(kept.all()) or rate == 0:
            return False
        near = torch.finfo(found.dtype).eps
        return torch.allclose(
            found[kept].double(), x[kept].double() / (1 - rate), rtol=near, atol=0.0
        )

    return is_drawn


@module("Flatten")
def _flatten(given: Given) -> Compute | None:
    start, end = given.definition.get("start_dim"), given.definition.get("end_dim")
    if not given.takes(()) or type(start) is not int or type(end) is not int:
        return None
    return lambda t: only(t, given).flatten(start, end)
