"""Operators that move, select, fill, sample or normalise, and those of the training library."""

from __future__ import annotations

from ait_llm.hostatb.operators.generic import Names, add, listed
from ait_llm.hostatb.operators.launch import Param


def _fill_names(param: Param) -> Names:
    return (("x", "y") if param["withMask"] else ()), ("output",)


def _index_add_names(param: Param) -> Names:
    last = "alpha" if int(param["indexType"]) == 1 else "validIndices"
    return ("var", "indices", "updates", last), ("output",)


def _fused_topk_names(param: Param) -> Names:
    mapping = ("mapping_num", "mapping_table") if param["enableExpertMapping"] else ()
    return ("x", "add_num", *mapping), ("y", "indices")


_LASER = (
    "query key value{} pseShift dropMask paddingMask attenMask{} prefix actualSeqQLen "
    "actualSeqKVLen"
)

add("AsStridedOperation", listed("x", "output"))
add("CohereLayerNormOperation", listed("x weight", "out"))
add("CumsumOperation", listed("x", "output"))
add("DynamicNTKOperation", listed("positionIds InvFreqIn seqlens", "sin cos"))
add("FastSoftMaxGradOperation", listed("x1 x2", "output"))
add("FastSoftMaxOperation", listed("x", "output"))
add("FillOperation", _fill_names)
add("FusedAddTopkDivOperation", _fused_topk_names)
add("GatherPreRmsNormOperation", listed("x res_in indices gamma", "y resOut"))
add("GenAttentionMaskOperation", listed("x", "output"))
add("GroupTopkOperation", listed("token idxArr", "output"), aliases=lambda _: (0,))
add("IndexAddOperation", _index_add_names, aliases=lambda _: (0,))
add("LayerNormWithStrideOperation", listed("x1 x2 x3 x4 x5", "y"))
add("MultinomialOperation", listed("x", "output"))
add("NonzeroOperation", listed("x1", "output1 output2"))
add("OnehotOperation", listed("x one zero", "output"))
add("PadOperation", listed("x1 x2 x3 x4", "output"))
add("PadWithHiddenStateOperation", listed("x", "output"))
add("RepeatOperation", listed("x", "output"))
add("RmsNormBackwardOperation", listed("dy x rstd gamma", "dx dgamma"))
add("RmsNormWithStrideOperation", listed("x1 x2 strides offset", "output"))
add("RopeGradOperation", listed("x1 x2 x3 x4", "output1 output2"))
add("RopeQConcatOperation", listed("input1 cos sin concat", "ropeconcat"))
add(
    "ScatterElementsV2Operation",
    listed("input_tensor indice_tensor update_tensor", ""),
    updated=(0,),
)
add("SetValueOperation", listed("x1 x2", ""), updated=(0,))
add("StridedBatchMatmulOperation", listed("x y", "output"))
add("SwigluQuantOperation", listed("x1", "output1 output2"))
add("TransdataOperation", listed("x", "output"))
add("UnpadOperation", listed("x1 x2 x3 x4", "output1 output2 output3"))
add("UnpadWithHiddenStateOperation", listed("x", "output"))
add("WhereOperation", listed("x1 x2 x3", "output1"))
add(
    "LaserAttentionOperation",
    listed(_LASER.format("", ""), "softmaxMax softmaxSum softmaxOut attentionOut"),
)
add(
    "LaserAttentionGradOperation",
    listed(
        _LASER.format(" attentionOutGrad", " softmaxMax softmaxSum softmaxIn attentionIn"),
        "queryGrad keyGrad valueGrad dpse",
    ),
)
