"""Operations that the demo models share, with the parameters that inference engines give them."""

from __future__ import annotations

from collections.abc import Callable

import ait_llm.hostatb as torch_atb


def linear(*, bias: bool) -> torch_atb.Operation:
    """``x [tokens, in] @ weight [out, in].T (+ bias [out])``."""
    return torch_atb.Operation(torch_atb.LinearParam(transpose_b=True, has_bias=bias))


def rms_norm(epsilon: float) -> torch_atb.Operation:
    """RMSNorm over the last dimension."""
    param = torch_atb.RmsNormParam(
        layer_type=torch_atb.RmsNormParam.RmsNormType.RMS_NORM_NORM,
        norm_param=torch_atb.RmsNormParam.NormParam(epsilon=epsilon),
    )
    return torch_atb.Operation(param)


def layer_norm(epsilon: float) -> torch_atb.Operation:
    """LayerNorm over the last dimension of ``[tokens, hidden]``."""
    param = torch_atb.LayerNormParam(
        layer_type=torch_atb.LayerNormParam.LayerNormType.LAYER_NORM_NORM,
        norm_param=torch_atb.LayerNormParam.NormParam(
            epsilon=epsilon, begin_norm_axis=1, begin_params_axis=1
        ),
    )
    return torch_atb.Operation(param)


def add() -> torch_atb.Operation:
    """Sum of two tensors."""
    add_type = torch_atb.ElewiseParam.ElewiseType.ELEWISE_ADD
    return torch_atb.Operation(torch_atb.ElewiseParam(elewise_type=add_type))


def gather() -> torch_atb.Operation:
    """Rows of a table by index."""
    return torch_atb.Operation(torch_atb.GatherParam(axis=0))


def split(sizes: list[int]) -> torch_atb.Operation:
    """Pieces of the columns of ``[tokens, hidden]``; with sizes, no axis may count from the end."""
    return torch_atb.Operation(
        torch_atb.SplitParam(split_dim=1, split_num=len(sizes), split_sizes=sizes)
    )


def to_heads(head_dim: int) -> Callable[[list[int]], list[int]]:
    """View ``[tokens, heads * head_dim]`` as ``[tokens, heads, head_dim]``."""

    def reshape(shape: list[int]) -> list[int]:
        return [shape[0], shape[1] // head_dim, head_dim]

    return reshape


def merge_heads(shape: list[int]) -> list[int]:
    """View ``[tokens, heads, head_dim]`` as ``[tokens, heads * head_dim]``."""
    return [shape[0], shape[1] * shape[2]]
