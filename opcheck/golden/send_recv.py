"""Send and Recv: one tensor from one rank to another.

The n-th Send of one rank meets the n-th Recv of the other. Recv is computed from the inputs of the
whole group, those of Send included: a rank whose parameters have ``srcRank`` receives.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import (
    MOVES,
    Arithmetic,
    Params,
    Result,
    collective_op,
    golden_op,
)
from ait_llm.opcheck.golden.ranks import check_moved, rank_size
from ait_llm.opcheck.golden.shapes import check_count
from ait_llm.opcheck.golden.support import int_param, refused, tensor_at

SEND = "SendOperation"
RECV = "RecvOperation"


def infer_shape_send(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """No output."""
    check_count(SEND, descs, 1)
    check_moved(SEND, descs)
    return ()


def infer_shape_recv(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Shape and dtype of the shape holder."""
    check_count(RECV, descs, 1)
    check_moved(RECV, descs)
    return (descs[0],)


@golden_op(SEND, infer_shape=infer_shape_send, kernel=MOVES)
def compute_send(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Nothing: the sending rank has no output. Input: the tensor to send."""
    tensor_at(SEND, inputs, 0)
    return Result(())


@collective_op(RECV, infer_shape=infer_shape_recv, kernel=MOVES)
def compute_recv(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """The tensor that rank ``srcRank`` sends. Input: a tensor of its shape and dtype."""
    results = []
    for own, own_params in zip(inputs, params, strict=True):
        if "srcRank" not in own_params:
            results.append(Result(()))
            continue
        source = int_param(RECV, own_params, "srcRank", 1)
        if not 0 <= source < len(inputs) or len(inputs) != rank_size(RECV, own_params):
            raise refused(RECV, f"srcRank is {source}; got tensors of {len(inputs)} ranks")
        sent, wanted = tensor_at(RECV, inputs[source], 0), tensor_at(RECV, own, 0)
        if sent.shape != wanted.shape or sent.dtype != wanted.dtype:
            raise refused(
                RECV,
                f"rank {source} sends {sent.dtype} {list(sent.shape)}, the receiver expects "
                f"{wanted.dtype} {list(wanted.shape)}",
            )
        results.append(Result((sent.clone(),)))
    return tuple(results)
