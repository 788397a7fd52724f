"""Mixtures of experts: grouped products, the block of two products, choice of experts."""

from __future__ import annotations

from collections.abc import Callable

from ait_llm.core import DType
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    counted_as,
    require_input,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import (
    depth_of,
    require_rank,
    require_ranks,
    require_shape,
    rows_of,
    weight_columns,
    weight_depth,
)
from ait_llm.hostatb.params.enums import ActivationType
from ait_llm.opcheck.golden.base import Refusal

# -- Grouped products ---------------------------------------------------------------------------

_MOST_SIDE, _MOST_GROUPS = 65535, 128


def _inplace_add(params: Params) -> None:
    require_param(not params["transposeB"], "transposeB", True, "false")


def _inplace_add_inputs(params: Params, inputs: Descs) -> None:
    x, weight, groups, total = inputs
    require_ranks(inputs, (2, 2, 1, 2), Refusal.DIM)
    rows, depth = rows_of(x, params["transposeA"]), depth_of(x, params["transposeA"])
    columns = weight_columns(weight, False)
    for index, side in ((0, rows), (1, columns)):
        require_input(side <= _MOST_SIDE, index, inputs[index], f"<= {_MOST_SIDE}")
    require_input(weight_depth(weight, False) == depth, 1, weight, f"k = {depth}")
    count = groups.shape[0]
    require_input(count <= _MOST_GROUPS, 2, groups, f"[<= {_MOST_GROUPS}]")
    shapes = (count * rows, columns), (rows, count * columns)
    require_input(total.shape in shapes, 3, total, str(list(shapes[0])))


accept(
    Acceptance(
        "GroupedMatmulInplaceAddOperation",
        lambda _: "GroupedMatmulInplaceAddOperation",
        _inplace_add,
        _inplace_add_inputs,
    )
)

_UP = 0  # moeType
_HALF = (DType.UNDEFINED.code, DType.FLOAT16.code, DType.BFLOAT16.code)
_NARROW, _WIDE = range(32, 257), range(32, 5121)
_EXPERTS, _TOKENS = range(128, 257), range(128, 513)


def _routing(params: Params) -> None:
    top, out = params["topK"], int(params["outDataType"])
    require_param(2 <= top <= 10, "topK", top, "2 .. 10")
    require_param(out in _HALF, "outDataType", out, "-1, 1, 27")


def _is_quantised(params: Params) -> bool:
    return int(params["outDataType"]) != DType.UNDEFINED.code


def _routing_table(params: Params) -> str:
    return f"GroupedMatmulWithRouting{'Quant' if _is_quantised(params) else ''}Operation"


def _routing_inputs(params: Params, inputs: Descs) -> None:
    x, weight, counts, indices = inputs[:4]
    require_rank(0, x, 2, status=Refusal.DIM)
    require_rank(1, weight, 3, 4, status=Refusal.DIM)
    transposed, up, top = params["transposeB"], params["moeType"] == _UP, params["topK"]
    rows, depth = x.shape
    inner, columns = weight_depth(weight, transposed), weight_columns(weight, transposed)
    require_input(inner == depth, 1, weight, f"k = {depth}")
    require_input(inner % 32 == 0 and columns % 32 == 0, 1, weight, "k % 32 = n % 32 = 0")
    depths, widths = (_WIDE, _NARROW) if up else (_NARROW, _WIDE)
    for name, value, sizes in (("k", inner, depths), ("n", columns, widths)):
        text = f"{name} = {sizes.start} .. {sizes.stop - 1}"
        require_input(value in sizes, 1, weight, text)
    experts, tokens = weight.shape[0], rows if up else rows // top
    require_shape(2, counts, experts)
    text = f"[{_EXPERTS.start} .. {_EXPERTS.stop - 1}]"
    require_input(experts in _EXPERTS, 2, counts, text)
    require_shape(3, indices, rows * top if up else rows)
    text = f"tokens = {_TOKENS.start} .. {_TOKENS.stop - 1}"
    require_input(tokens in _TOKENS, 0, x, text)
    if _is_quantised(params):
        require_shape(4, inputs[4], experts, columns)
        require_shape(5, inputs[5], rows)


accept(
    Acceptance(
        "GroupedMatmulWithRoutingOperation",
        _routing_table,
        _routing,
        _routing_inputs,
        counted_as(Refusal.DIM),
    )
)

# -- Two quantised products with a gate between them ---------------------------------------------

_MOST_ROWS, _MOST_BLOCK_GROUPS = 131072, 32
_HIDDEN, _UP_WIDTH, _DOWN_WIDTH = 7168, 4096, 2048


def _block(params: Params) -> None:
    for name, wanted in (
        ("outputType", (0,)),
        ("groupListType", (0,)),
        ("weightUpPermuteType", (0, 1)),
        ("transposeWeightUp", (False,)),
        ("transposeWeightDown", (True,)),
    ):
        if name in params:
            value = int(params[name])
            require_param(value in wanted, name, value, ", ".join(str(int(w)) for w in wanted))


def _block_inputs(grouped: bool) -> Callable[[Params, Descs], None]:
    def check(params: Params, inputs: Descs) -> None:
        ranks = (2, 3, 2, 1, 1, 3, 2) if grouped else (2, 2, 1, 1, 2, 1)
        require_ranks(inputs, ranks)
        rows = inputs[0].shape[0]
        require_input(rows <= _MOST_ROWS, 0, inputs[0], f"[<= {_MOST_ROWS}, {_HIDDEN}]")
        groups: tuple[int, ...] = ()
        if grouped:
            groups = inputs[4].shape
            fits = groups[0] <= _MOST_BLOCK_GROUPS
            require_input(fits, 4, inputs[4], f"[<= {_MOST_BLOCK_GROUPS}]")
        shapes = (
            (rows, _HIDDEN),
            (*groups, _HIDDEN, _UP_WIDTH),
            (*groups, _UP_WIDTH),
            (rows,),
            *((groups,) if grouped else ()),
            (*groups, _HIDDEN, _DOWN_WIDTH),
            (*groups, _HIDDEN),
        )
        for index, shape in enumerate(shapes):
            require_shape(index, inputs[index], *shape)

    return check


accept(
    Acceptance(
        "GmmDeqSwigluQuantGmmDeqOperation",
        lambda _: "GmmDeqSwigluQuantGmmDeqOperation",
        _block,
        _block_inputs(grouped=True),
        counted_as(Refusal.DIM_COUNT, Refusal.SIZE),
    )
)
accept(
    Acceptance(
        "MmDeqSwigluQuantMmDeqOperation",
        lambda _: "MmDeqSwigluQuantMmDeqOperation",
        _block,
        _block_inputs(grouped=False),
        counted_as(Refusal.DIM_COUNT, Refusal.SIZE),
    )
)

# -- Choice of experts --------------------------------------------------------------------------

_MOST_COUNTS = 1024


def _gating(params: Params) -> None:
    counts, top = params["cumSumNum"], params["topkExpertNum"]
    own = list(params["deviceExpert"])
    require_param(0 <= counts <= _MOST_COUNTS, "cumSumNum", counts, f"0 .. {_MOST_COUNTS}")
    require_param(1 <= top <= max(1, counts), "topkExpertNum", top, f"1 .. {max(1, counts)}")
    known = all(0 <= expert < counts for expert in own)
    unique = len(set(own)) == len(own)
    require_param(known and unique, "deviceExpert", own, f"0 .. {counts - 1}")


def _gating_table(params: Params) -> str:
    name = f"GatingOperation{'ExpertParallelism' if params['deviceExpert'] else ''}"
    return f"{name}{'Int64' if params['cumSumInt64'] else ''}"


def _gating_inputs(params: Params, inputs: Descs) -> None:
    chosen, order = inputs
    top = params["topkExpertNum"]
    require_rank(0, chosen, 1, status=Refusal.SIZE)
    require_input(chosen.shape[0] % top == 0, 0, chosen, f"[{top} * tokens]")
    require_rank(1, order, 1, status=Refusal.SIZE)
    require_shape(1, order, *chosen.shape)


accept(
    Acceptance("GatingOperation", _gating_table, _gating, _gating_inputs, counted_as(Refusal.SIZE)),
)

_ORDER_LENGTH, _MOST_CHOICES = 1024, 1024
_BEST_SUM = 1  # groupMultiFlag: groups are compared by the sum of their best experts


def _group_topk(params: Params) -> None:
    groups, k, flag = params["groupNum"], params["k"], params["groupMultiFlag"]
    require_param(groups >= 1, "groupNum", groups, ">= 1")
    require_param(1 <= k <= groups, "k", k, f"1 .. {groups}")
    require_param(0 <= flag <= _BEST_SUM, "groupMultiFlag", int(flag), "0, 1")
    sums = flag != _BEST_SUM or params["n"] > 0
    require_param(sums, "n", params["n"], "> 0 (groupMultiFlag 1)")


def _group_topk_inputs(params: Params, inputs: Descs) -> None:
    tokens, order = inputs
    require_ranks(inputs, (2, 1))
    experts, groups, n = tokens.shape[1], params["groupNum"], params["n"]
    require_param(groups <= experts, "groupNum", groups, f"1 .. {experts}")
    sums = params["groupMultiFlag"] != _BEST_SUM or n <= experts // groups
    require_param(sums, "n", n, f"1 .. {experts // groups}")
    require_param(experts % groups == 0, "groupNum", groups, f"{experts} % groupNum = 0")
    require_shape(1, order, _ORDER_LENGTH)
    require_input(experts <= _MOST_CHOICES, 0, tokens, f"[tokens, <= {_MOST_CHOICES}]")


accept(
    Acceptance(
        "GroupTopkOperation", lambda _: "GroupTopkOperation", _group_topk, _group_topk_inputs
    )
)

_GROUPS, _MOST_IN_GROUP, _MOST_COPIES = 8, 32, 128


def _fused_topk(params: Params) -> None:
    for name in ("groupNum", "groupTopk", "n", "k"):
        require_param(params[name] > 0, name, params[name], "> 0")
    groups, top, kind = params["groupNum"], params["groupTopk"], params["activationType"]
    require_param(top <= groups, "groupTopk", top, f"1 .. {groups}")
    sigmoid = ActivationType.ACTIVATION_SIGMOID
    require_param(kind == sigmoid, "activationType", int(kind), str(int(sigmoid)))


def _fused_topk_table(params: Params) -> str:
    mapping = "ExpertMapping" if params["enableExpertMapping"] else ""
    return f"FusedAddTopkDivOperation{mapping}"


def _fused_topk_inputs(params: Params, inputs: Descs) -> None:
    x = inputs[0]
    groups, k, n = params["groupNum"], params["k"], params["n"]
    require_rank(0, x, 2)
    experts = x.shape[1]
    require_input(experts % groups == 0, 0, x, f"[tokens, {groups} * e]")
    require_input(experts >= k, 0, x, f"[tokens, >= {k}]")
    require_input(experts >= groups * n, 0, x, f"[tokens, >= {groups * n}]")
    fits = groups == _GROUPS or experts <= _MOST_IN_GROUP
    require_input(fits, 0, x, f"[tokens, <= {_MOST_IN_GROUP}] (groupNum != {_GROUPS})")
    require_rank(1, inputs[1], 1)
    require_shape(1, inputs[1], experts)
    if not params["enableExpertMapping"]:
        return
    copies, mapping = inputs[2:]
    require_rank(2, copies, 1)
    require_shape(2, copies, experts)
    require_rank(3, mapping, 2)
    fits = mapping.shape[0] == experts and mapping.shape[1] <= _MOST_COPIES
    require_input(fits, 3, mapping, f"[{experts}, <= {_MOST_COPIES}]")


accept(Acceptance("FusedAddTopkDivOperation", _fused_topk_table, _fused_topk, _fused_topk_inputs))
