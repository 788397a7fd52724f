"""The acceleration library on a CPU, with the Python interface of ``torch_atb``.

A script written for ``torch_atb`` runs here with ``import ait_llm.hostatb as torch_atb`` on CPU
tensors: the same parameter classes, operations and graph builders. Kernels are the golden operators
at a device's precision, and the runtime below is a ``libatb.so`` that a preloaded probe can watch.

Beyond ``torch_atb`` there are :func:`set_device`, :func:`inject` for faults and
:func:`report_model`, and parameter classes of operators that ``torch_atb`` lacks.
"""

import os as _os

from ait_llm.hostatb.context import current_device, set_device
from ait_llm.hostatb.graph import Builder, GraphBuilder, Node
from ait_llm.hostatb.injection import inject
from ait_llm.hostatb.native_library import home_directory
from ait_llm.hostatb.operation import Operation
from ait_llm.hostatb.params.attention import (
    FaUpdateParam,
    MlaPreprocessParam,
    MultiLatentAttentionParam,
    PagedAttentionParam,
    RazorFusionAttentionParam,
    RelayAttentionParam,
    RingMLAParam,
    RopeParam,
    RopeQConcatParam,
    SelfAttentionParam,
)
from ait_llm.hostatb.params.cache import (
    BlockCopyParam,
    KvCacheParam,
    PagedCacheLoadParam,
    ReshapeAndCacheOmniParam,
    ReshapeAndCacheParam,
    ReshapeAndCacheWithStrideParam,
)
from ait_llm.hostatb.params.collective import (
    AllGatherParam,
    AllGatherVParam,
    AllReduceParam,
    AllToAllParam,
    AllToAllVParam,
    AllToAllVV2Param,
    BroadcastParam,
    EventParam,
    RecvParam,
    ReduceScatterParam,
    ReduceScatterVParam,
    SendParam,
)
from ait_llm.hostatb.params.elementwise import (
    ActivationParam,
    CumsumParam,
    DynamicNTKParam,
    ElewiseParam,
    FillParam,
    FusedAddTopkDivParam,
    OnehotParam,
    ReduceParam,
    SoftmaxParam,
    SwigluQuantParam,
    WhereParam,
)
from ait_llm.hostatb.params.enums import (
    AclDataType,
    AclFormat,
    ActivationType,
    CommMode,
    DynamicQuantType,
    InputLayout,
    QuantType,
)
from ait_llm.hostatb.params.linear import (
    GmmDeqSwigluQuantGmmDeqParam,
    GroupedMatmulInplaceAddParam,
    GroupedMatmulWithRoutingParam,
    LinearParallelParam,
    LinearParam,
    LinearSparseParam,
    MmDeqSwigluQuantMmDeqParam,
)
from ait_llm.hostatb.params.movement import (
    AsStridedParam,
    ConcatParam,
    GatherParam,
    IndexAddParam,
    NonzeroParam,
    PadParam,
    RepeatParam,
    ScatterElementsV2Param,
    SetValueParam,
    SliceParam,
    SplitParam,
    TransdataParam,
    TransposeParam,
    UnpadParam,
)
from ait_llm.hostatb.params.norm import (
    CohereLayerNormParam,
    GatherPreRmsNormParam,
    LayerNormParam,
    LayerNormWithStrideParam,
    NormRopeReshapeParam,
    RmsNormParam,
    RmsNormWithStrideParam,
)
from ait_llm.hostatb.params.sampling import (
    GatingParam,
    GroupTopkParam,
    MultinomialParam,
    SortParam,
    TopkToppSamplingParam,
)
from ait_llm.hostatb.profile import Prof
from ait_llm.hostatb.report import ModelTopology, report_model

# torch_atb exports the members of its global enumerations as names of the module.
for _enum in (
    AclDataType,
    AclFormat,
    ActivationType,
    CommMode,
    DynamicQuantType,
    InputLayout,
    QuantType,
):
    globals().update(_enum.__members__)
ACL_DT_UNDEFINED = AclDataType.ACL_DT_UNDEFINED
ACL_FLOAT = AclDataType.ACL_FLOAT
ACL_FLOAT16 = AclDataType.ACL_FLOAT16
ACL_BF16 = AclDataType.ACL_BF16


def set_buffer_size(size: int) -> None:
    """Accepted for compatibility: the runtime allocates workspace as it needs it.

    Raises:
        ValueError: the size is negative.
    """
    if size < 0:
        raise ValueError(f"a buffer has no negative size, {size} bytes was asked for")


def get_atb_home_path() -> str:
    """The directory that serves as ``ATB_HOME_PATH``.

    Raises:
        ProbeError: the library is not built.
    """
    return _os.environ.get("ATB_HOME_PATH") or str(home_directory())


__all__ = [
    "ACL_BF16",
    "ACL_DT_UNDEFINED",
    "ACL_FLOAT",
    "ACL_FLOAT16",
    "AclDataType",
    "AclFormat",
    "ActivationParam",
    "ActivationType",
    "AllGatherParam",
    "AllGatherVParam",
    "AllReduceParam",
    "AllToAllParam",
    "AllToAllVParam",
    "AllToAllVV2Param",
    "AsStridedParam",
    "BlockCopyParam",
    "BroadcastParam",
    "Builder",
    "CohereLayerNormParam",
    "CommMode",
    "ConcatParam",
    "CumsumParam",
    "DynamicNTKParam",
    "DynamicQuantType",
    "ElewiseParam",
    "EventParam",
    "FaUpdateParam",
    "FillParam",
    "FusedAddTopkDivParam",
    "GatherParam",
    "GatherPreRmsNormParam",
    "GatingParam",
    "GmmDeqSwigluQuantGmmDeqParam",
    "GraphBuilder",
    "GroupTopkParam",
    "GroupedMatmulInplaceAddParam",
    "GroupedMatmulWithRoutingParam",
    "IndexAddParam",
    "InputLayout",
    "KvCacheParam",
    "LayerNormParam",
    "LayerNormWithStrideParam",
    "LinearParallelParam",
    "LinearParam",
    "LinearSparseParam",
    "MlaPreprocessParam",
    "MmDeqSwigluQuantMmDeqParam",
    "ModelTopology",
    "MultiLatentAttentionParam",
    "MultinomialParam",
    "Node",
    "NonzeroParam",
    "NormRopeReshapeParam",
    "OnehotParam",
    "Operation",
    "PadParam",
    "PagedAttentionParam",
    "PagedCacheLoadParam",
    "Prof",
    "QuantType",
    "RazorFusionAttentionParam",
    "RecvParam",
    "ReduceParam",
    "ReduceScatterParam",
    "ReduceScatterVParam",
    "RelayAttentionParam",
    "RepeatParam",
    "ReshapeAndCacheOmniParam",
    "ReshapeAndCacheParam",
    "ReshapeAndCacheWithStrideParam",
    "RingMLAParam",
    "RmsNormParam",
    "RmsNormWithStrideParam",
    "RopeParam",
    "RopeQConcatParam",
    "ScatterElementsV2Param",
    "SelfAttentionParam",
    "SendParam",
    "SetValueParam",
    "SliceParam",
    "SoftmaxParam",
    "SortParam",
    "SplitParam",
    "SwigluQuantParam",
    "TopkToppSamplingParam",
    "TransdataParam",
    "TransposeParam",
    "UnpadParam",
    "WhereParam",
    "current_device",
    "get_atb_home_path",
    "inject",
    "report_model",
    "set_buffer_size",
    "set_device",
]
