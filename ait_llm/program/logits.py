"""The logits that a forward pass returns, found without building its program."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.program.one_pass import Pass
from ait_llm.program.token_ids import vocabulary

_RESULT = "output_logits"


def newest_logits(run: Pass, request: int, requests: int) -> tuple[Tensor, Array] | None:
    """What a pass says of the token that follows one of its requests.

    Args:
        run: the pass.
        request: number of the request in its batch.
        requests: how many it has.

    Returns:
        The tensor that holds the logits, and those of that request in float64, ``[vocabulary]``;
        None where the capture does not have them.
    """
    for tensor in _candidates(run):
        row = _row(tensor, request)
        if row is not None:
            return tensor, row
    for tensor in _of_vocabulary(run, requests):
        row = _row(tensor, request)
        if row is not None:
            return tensor, row
    return None


def largest_logit(run: Pass, request: int, requests: int) -> int | None:
    """The token that a pass prefers for one of its requests; None where that is not known."""
    found = newest_logits(run, request, requests)
    return None if found is None else int(np.argmax(found[1]))


def every_logit(run: Pass) -> Array | None:
    """All logits that a pass of one request returns, ``[tokens, vocabulary]``, as captured."""
    tensor = _of_one_request(run)
    try:
        values: Array | None = None if tensor is None else tensor.nd()[0]
    except AitError:
        return None
    return values


def count_of_logits(run: Pass) -> int | None:
    """Of how many tokens a pass of one request returns logits, which are not read."""
    tensor = _of_one_request(run)
    return None if tensor is None else tensor.shape[1]


def _of_one_request(run: Pass) -> Tensor | None:
    for tensor in _candidates(run):
        try:
            is_row = len(tensor.shape) == 3 and tensor.shape[0] == 1
            if is_row and tensor.dtype.is_floating and tensor.has_data:
                return tensor
        except AitError:
            continue
    return None


def _candidates(run: Pass) -> Iterator[Tensor]:
    """What may be the logits of a pass: what is called so, else the results of its last module."""
    outputs = [
        (operation, tensor)
        for operation in run.operations
        if "." not in operation.name or "logits" in operation.name or "head" in operation.name
        for tensor in operation.outputs
    ]
    yield from (tensor for _, tensor in outputs if tensor.stem == _RESULT)
    yield from (tensor for operation, tensor in outputs if "." in operation.name)


def _of_vocabulary(run: Pass, requests: int) -> Iterator[Tensor]:
    """Results as wide as the vocabulary, one row for each request, the last of the pass first."""
    width = vocabulary(run)
    if width is None:
        return
    for operation in reversed(run.operations):
        for tensor in operation.outputs:
            try:
                shape = tensor.shape
            except AitError:
                continue
            if len(shape) in (2, 3) and (shape[0], shape[-1]) == (requests, width):
                yield tensor


def _row(tensor: Tensor, request: int) -> Array | None:
    try:
        if not tensor.dtype.is_floating or not tensor.has_data or len(tensor.shape) not in (2, 3):
            return None
        if request >= tensor.shape[0]:
            return None
        values = tensor.nd()[request]
    except AitError:
        return None
    row: Array = (values if values.ndim == 1 else values[-1]).astype(np.float64)
    return row
