"""How operators are presented, against recorded calls of the real library."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import ait_llm.hostatb as torch_atb
from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.hostatb.native_types import NativeStatusError
from ait_llm.hostatb.operators import operator_specs
from ait_llm.hostatb.params import Struct, param_types
from ait_llm.hostatb.params.base import camel_case
from ait_llm.hostatb.params.json_text import dump_json
from ait_llm.hostatb.tensors import native_tensor, with_format
from ait_llm.opcheck.golden import golden_ops
from ait_llm.opcheck.golden.support import torch_dtype

DATA = Path(__file__).parents[1] / "data"
PARAMS: dict[str, Any] = json.loads((DATA / "atb" / "op_params.json").read_text())
NAMES: list[dict[str, Any]] = json.loads((DATA / "atb" / "op_ir_names.json").read_text())
F16, F32, BF16, I64 = DType.FLOAT16, DType.FLOAT32, DType.BFLOAT16, DType.INT64


# The operator table names outputs of these, which report that they have none.
NO_OUTPUT = {"BlockCopyParam", "BroadcastParam"}


@pytest.mark.parametrize("row", NAMES, ids=lambda row: f"{row['param']}-{row['variant']}")
def test_tensor_names_equal_the_recorded_ones(row: dict[str, Any]) -> None:
    recorded = json.loads(PARAMS[row["param"]][row["variant"]]["json"])
    entries = param_types.get(row["param"])().entries(printed_only=False)
    if recorded is None:  # what is not printed is told by the variant
        entries["kvCacheCfg"] = int(row["variant"] == "nonDefault")
        entries["deviceExpert"] = [0, 1] if row["variant"] == "deviceExpert" else []
    spec = operator_specs.get(row["param"].removesuffix("Param") + "Operation")
    names = spec.tensor_names({**entries, **(recorded or {})})
    outputs = () if row["param"] in NO_OUTPUT else tuple(row["outputs"])
    assert names == (tuple(row["inputs"]), outputs)


def test_only_types_without_printed_parameters_have_no_json() -> None:
    silent = {name for name in operator_specs if not operator_specs.get(name).has_param_json}
    assert silent == {
        *("BlockCopyOperation", "GatingOperation", "KvCacheOperation", "NonzeroOperation"),
        *("PadOperation", "PadWithHiddenStateOperation", "PagedCacheLoadOperation"),
        *("ReshapeAndCacheOmniOperation", "ReshapeAndCacheOperation", "RmsNormBackwardOperation"),
        *("ReshapeAndCacheWithStrideOperation", "RopeQConcatOperation", "UnpadOperation"),
        *("UnpadWithHiddenStateOperation", "WhereOperation"),
    }


def test_every_parameter_class_but_that_of_events_has_an_operation() -> None:
    missing = {name.removesuffix("Param") + "Operation" for name in param_types} - set(
        operator_specs
    )
    assert missing == {"EventOperation"}


def test_every_operator_has_a_golden_one() -> None:
    assert [name for name in operator_specs if name not in golden_ops] == []


@dataclass
class Recorded:
    """One execution of a leaf operation in a trace."""

    operation: str
    param: Any = None
    inputs: dict[int, TensorDesc] = field(default_factory=dict)
    outputs: dict[int, TensorDesc] = field(default_factory=dict)
    kernels: list[tuple[str, int]] = field(default_factory=list)
    reports: list[tuple[str, str]] = field(default_factory=list)


def recorded_operations(path: Path) -> Iterator[Recorded]:
    """Leaf operations with parameters in the first round of a trace."""
    found: dict[str, Recorded] = {}
    for line in gzip.decompress(path.read_bytes()).splitlines():
        event = json.loads(line)
        args = event.get("args", {})
        if event.get("fn") == "SaveParam":
            found[str(Path(args["filePath"]).parent)].param = json.loads(args["param"])
        elif event.get("fn") == "SaveTensor" and "Kernel/" not in args["filePath"]:
            directory, phase, name = args["filePath"].rsplit("/", 2)
            entry = found.setdefault(
                directory, Recorded(directory.rsplit("/", 1)[-1].split("_", 1)[-1])
            )
            kind, index = re.fullmatch(r"(in|out)tensor(\d+).*\.bin", name).groups()  # type: ignore[union-attr]
            shape = tuple(int(size) for size in args["dims"].split(","))
            desc = TensorDesc(DType.from_code(int(args["dtype"])), shape, int(args["format"]))
            if phase == "before":
                (entry.inputs if kind == "in" else entry.outputs)[int(index)] = desc
        elif event.get("fn") == "SaveTiling":
            directory, kernel, _ = args["filePath"].rsplit("/", 2)
            entry = found.setdefault(
                directory, Recorded(directory.rsplit("/", 1)[-1].split("_", 1)[-1])
            )
            entry.kernels.append((kernel.split("_", 1)[1], args["tilingBufferSize"]))
        elif event.get("fn") == "ReportKernelIOTensor":
            directory = args["inTensors"][0]["filePath"].rsplit("/", 2)[0]
            found[directory].reports.append((args["opName"], args["opParam"]))
    return (entry for entry in found.values() if entry.param and entry.kernels)


TRACES = ("trace-02-graph3-all", "trace-07-model-2steps-all", "trace-08h-multi-kernel-and-misc-ops")


@pytest.mark.parametrize("trace", TRACES)
def test_kernels_equal_the_recorded_ones(trace: str) -> None:
    operations = list(recorded_operations(DATA / "atb-trace" / f"{trace}.jsonl.gz"))
    assert len(operations) >= 3
    for recorded in operations:
        descs = [
            [part[index] for index in sorted(part)] for part in (recorded.inputs, recorded.outputs)
        ]
        plan = operator_specs.get(recorded.operation).plan(recorded.param, *descs)
        assert [(k.name, k.tiling_size) for k in plan.kernels] == recorded.kernels
        assert [(k.mki_op, k.mki_param) for k in plan.kernels] == recorded.reports


def plan_of(param: Any, inputs: list[TensorDesc], outputs: list[TensorDesc]) -> Any:
    spec = operator_specs.get(param.operation)
    return spec.plan(param.entries(printed_only=False), inputs, outputs)


def test_bias_is_added_by_a_second_kernel_over_a_workspace() -> None:
    x, weight, bias = (TensorDesc(BF16, shape) for shape in ((4, 8), (16, 8), (16,)))
    out = TensorDesc(BF16, (4, 16))
    plan = plan_of(torch_atb.LinearParam(), [x, weight, bias], [out])
    assert [kernel.name for kernel in plan.kernels] == ["PpMatMulBf16Kernel", "AddBF16Kernel"]
    assert (plan.kernels[0].inputs, plan.kernels[0].outputs) == ((0, 1), (4,))
    assert (plan.kernels[1].inputs, plan.kernels[1].outputs) == ((4, 2), (3,))
    assert plan.workspace == (out,)


def test_float32_bias_needs_no_second_kernel() -> None:
    x, weight, bias = TensorDesc(F16, (4, 8)), TensorDesc(F16, (16, 8)), TensorDesc(F32, (16,))
    plan = plan_of(torch_atb.LinearParam(), [x, weight, bias], [TensorDesc(F16, (4, 16))])
    assert [kernel.name for kernel in plan.kernels] == ["PpMatmulWithBiasKernel"]
    assert json.loads(plan.kernels[0].mki_param)["withBias"] is True


@pytest.mark.parametrize(
    ("x", "weight", "transpose_a", "transpose_b", "expected"),
    [
        ((4, 8), (16, 8), False, True, [4, 8, 16]),
        ((8, 4), (8, 16), True, False, [4, 8, 16]),
        ((2, 4, 8), (16, 8), False, True, [8, 8, 16]),
        ((2, 4, 8), (2, 8, 16), False, False, [4, 8, 16]),
        ((2, 4, 8), (1, 8, 16), False, False, [8, 8, 16]),
    ],
)
def test_original_shape_merges_leading_axes(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    transpose_a: bool,
    transpose_b: bool,
    expected: list[int],
) -> None:
    param = torch_atb.LinearParam(transpose_a=transpose_a, transpose_b=transpose_b, has_bias=False)
    plan = plan_of(param, [TensorDesc(F16, x), TensorDesc(F16, weight)], [TensorDesc(F16, x)])
    assert json.loads(plan.kernels[0].mki_param)["oriShape"] == expected


def test_nz_weight_selects_its_own_kernel() -> None:
    weight = TensorDesc(F16, (1, 2, 16, 16), FORMAT_FRACTAL_NZ)
    param = torch_atb.LinearParam(has_bias=False)
    plan = plan_of(param, [TensorDesc(F16, (4, 32)), weight], [TensorDesc(F16, (4, 16))])
    assert plan.kernels[0].name == "PpMatMulF16OptKernel"


def test_element_type_names_the_kernel() -> None:
    names = []
    for dtype in (F16, BF16, F32, I64):
        desc = TensorDesc(dtype, (4,))
        add = torch_atb.ElewiseParam(elewise_type=torch_atb.ElewiseParam.ElewiseType.ELEWISE_ADD)
        names.append(plan_of(add, [desc, desc], [desc]).kernels[0].name)
    assert names == ["AddF16Kernel", "AddBF16Kernel", "AddF32Kernel", "AddI64Kernel"]


def test_exact_gelu_is_another_kernel_than_the_tanh_form() -> None:
    desc = TensorDesc(F32, (4,))
    kinds = torch_atb.ActivationParam.GeLUMode
    names = [
        plan_of(torch_atb.ActivationParam(activation_type=2, gelu_mode=mode), [desc], [desc])
        .kernels[0]
        .name
        for mode in (kinds.TANH_MODE, kinds.NONE_MODE)
    ]
    assert names == ["GeluApproxF32Kernel", "GeluF32Kernel"]


def test_caches_are_outputs_in_place() -> None:
    spec = operator_specs.get("ReshapeAndCacheOperation")
    both, one = ({"kvCacheCfg": cfg, "compressType": 0} for cfg in (0, 1))
    assert spec.output_aliases(both) == (2, 3)
    assert spec.output_aliases(one) == (1,)
    assert spec.tensor_names(both)[0][2:4] == ("keyCache", "valueCache")


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ({"elewiseType": 99}, "has no elewiseType 99; known: 1 ELEWISE_CAST"),
        ({"elewiseType": 0}, "has no elewiseType 0"),
    ],
)
def test_unknown_elewise_type_lists_the_known_ones(param: dict[str, int], message: str) -> None:
    with pytest.raises(OperationError, match=message):
        operator_specs.get("ElewiseOperation").tensor_names(param)


def test_mki_parameters_are_compact_json_with_sorted_keys() -> None:
    desc = TensorDesc(F16, (2, 4))
    for param, inputs in (
        (torch_atb.SoftmaxParam(axes=[-1]), 1),
        (torch_atb.RopeParam(), 5),
        (torch_atb.ConcatParam(), 2),
    ):
        text = plan_of(param, [desc] * inputs, [desc]).kernels[0].mki_param
        assert text == dump_json(json.loads(text))


def from_entries(param: Any, entries: dict[str, Any]) -> Any:
    """Set the fields of a parameter object from printed JSON."""
    for item in param.__dataclass_fields__.values():
        key = item.metadata.get("key") or camel_case(item.name)
        value = getattr(param, item.name)
        if isinstance(value, Struct):
            from_entries(value, entries.get(key, {}))
        elif key in entries:
            setattr(param, item.name, entries[key])
    return param


SHAPES: list[dict[str, Any]] = json.loads((DATA / "atb-trace" / "op-infershape.json").read_text())
# The library does not print these parameters of the recorded calls, in their order.
UNPRINTED: dict[str, list[dict[str, Any]]] = {
    "GatingOperation": [
        {},
        {"topkExpertNum": 2, "cumSumNum": 8},
        {"topkExpertNum": 2, "cumSumNum": 8, "deviceExpert": [0, 1]},
    ],
    "PadWithHiddenStateOperation": [{"qSeqLen": [16], "maxSeqLen": 32}],
    "UnpadWithHiddenStateOperation": [{"qSeqLen": [16], "maxSeqLen": 32}],
}


def entries_of(row: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a recorded call."""
    printed = json.loads(row["param"] or "null")
    if printed is not None:
        return dict(printed)
    if row["op"] in UNPRINTED:
        calls = [other for other in SHAPES if other["op"] == row["op"]]
        return UNPRINTED[row["op"]][calls.index(row)]
    single = len(row["in"]) == (5 if "Stride" in row["op"] else 3)
    return {"kvCacheCfg": int(single and "ReshapeAndCache" in row["op"])}


def described_as(tensors: list[dict[str, Any]]) -> list[TensorDesc]:
    return [
        TensorDesc(DType.from_code(each["dtype"]), tuple(each["shape"]), each["format"])
        for each in tensors
    ]


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("row", SHAPES, ids=lambda row: f"{row['op']}-{row['in']}"[:60])
def test_operation_infers_the_recorded_shapes(row: dict[str, Any]) -> None:
    param = param_types.get(row["paramType"].removeprefix("train::"))()
    operation = torch_atb.Operation(from_entries(param, entries_of(row)))
    inputs = described_as(row["in"])
    if row["status"] == 0:
        assert operation._native.infer_shape(inputs) == described_as(row["out"])
        return
    with pytest.raises(NativeStatusError) as caught:
        operation._native.infer_shape(inputs)
    assert caught.value.status == row["status"]


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_operators_without_outputs_overwrite_their_inputs() -> None:
    cache, fresh = torch.zeros(1, 2, 4, 32, dtype=torch.float16), torch.ones(3, 32).half()
    numbers = [torch.tensor(values, dtype=torch.int32) for values in ([0], [2, 3], [1, 2])]
    operation = torch_atb.Operation(torch_atb.KvCacheParam())
    assert operation.forward([fresh, numbers[0], cache, *numbers[1:]]) == []
    assert cache[0, :, :, 0].tolist() == [[0, 1, 0, 0], [0, 1, 1, 0]]

    blocks = torch.arange(4.0).half().reshape(4, 1, 1, 1).repeat(1, 16, 1, 16)
    copies = [torch.tensor(values, dtype=torch.int32) for values in ([3], [0, 1], [2])]
    torch_atb.Operation(torch_atb.BlockCopyParam()).forward([blocks, blocks.clone(), *copies])
    assert blocks[:, 0, 0, 0].tolist() == [3, 3, 2, 3]


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_an_output_in_an_inputs_memory_is_that_input() -> None:
    updated = torch.zeros(4, 2).bfloat16()
    inputs = [updated, torch.tensor([1, 1], dtype=torch.int32), torch.ones(2, 2).bfloat16()]
    param = torch_atb.IndexAddParam(index_type=torch_atb.IndexAddParam.IndexType.INDEX_ADD)
    outputs = torch_atb.Operation(param).forward([*inputs, torch.ones(1).bfloat16()])
    assert outputs[0] is updated
    assert updated[:, 0].tolist() == [0, 2, 0, 0]


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_a_collective_runs_in_a_group_of_one_and_fails_in_a_larger_one() -> None:
    x = torch.randn(2, 4).half()
    alone = torch_atb.AllGatherParam(rank_size=1, hccl_comm=None)
    assert torch.equal(torch_atb.Operation(alone).forward([x])[0], x.unsqueeze(0))
    with pytest.raises(OperationError, match="tensors of all 2 ranks"):
        torch_atb.Operation(torch_atb.AllGatherParam(rank_size=2)).forward([x])


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_unprinted_parameters_reach_the_golden_operator() -> None:
    topk = torch.tensor([1, 0, 1, 1], dtype=torch.int32)
    param = torch_atb.GatingParam(topk_expert_num=2, cum_sum_num=2, cum_sum_int64=True)
    token, sums, original = torch_atb.Operation(param).forward(
        [topk, torch.arange(4, dtype=torch.int32)]
    )
    assert (token.tolist(), sums.tolist(), original.tolist()) == (
        [0, 0, 1, 1],
        [1, 4],
        [1, 0, 2, 3],
    )
    assert sums.dtype == torch.int64


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_a_generic_kernel_is_named_after_its_operation() -> None:
    desc = TensorDesc(F16, (2, 4))
    plan = plan_of(torch_atb.CumsumParam(axes=[1]), [desc], [desc])
    assert [(k.name, k.mki_op, k.golden) for k in plan.kernels] == [
        ("CumsumKernel", "CumsumOperation", "CumsumOperation")
    ]
    assert json.loads(plan.kernels[0].mki_param) == {
        "axes": [1],
        "exclusive": False,
        "reverse": False,
    }


def is_refused_at_setup(row: dict[str, Any], outputs: list[TensorDesc]) -> bool:
    """The library infers scalars and halves of odd lengths, and takes neither as an output."""
    odd = row["op"] == "ActivationOperation" and row["in"][0]["shape"][-1] % 2 == 1
    return odd or any(not desc.shape for desc in outputs)


RUNNABLE = [
    row for row in SHAPES if row["status"] == 0 and 'rankSize":2' not in (row["param"] or "")
]


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("row", RUNNABLE, ids=lambda row: f"{row['op']}-{row['in']}"[:60])
def test_recorded_calls_run_on_zeros(row: dict[str, Any]) -> None:
    param = param_types.get(row["paramType"].removeprefix("train::"))()
    inputs = [
        with_format(torch.zeros(desc.shape, dtype=torch_dtype(desc.dtype)), desc.format)
        for desc in described_as(row["in"])
    ]
    if row["op"] == "DynamicNTKOperation":
        inputs[2][0] = len(inputs[0])  # lengths must add up to the tokens
    operation = torch_atb.Operation(from_entries(param, entries_of(row)))
    outputs = described_as(row["out"])
    if is_refused_at_setup(row, outputs):
        with pytest.raises(OperationError) as caught:
            operation.forward(inputs)
        assert "Setup of" in str(caught.value.__cause__)
        assert "INVALID_TENSOR_DIM" in str(caught.value.__cause__)
        return
    assert [native_tensor(output).desc for output in operation.forward(inputs)] == outputs


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_blocked_outputs_serve_as_blocked_inputs() -> None:
    x, weight = torch.randn(4, 32).half(), torch.randn(48, 32).half()
    kind = torch_atb.TransdataParam.TransdataType.ND_TO_FRACTAL_NZ
    blocked = torch_atb.Operation(torch_atb.TransdataParam(transdata_type=kind)).forward([weight])[
        0
    ]
    assert native_tensor(blocked).desc.format == FORMAT_FRACTAL_NZ
    linear = torch_atb.LinearParam(has_bias=False)
    found = torch_atb.Operation(linear).forward([x, blocked])[0]
    assert torch.equal(found, torch_atb.Operation(linear).forward([x, weight])[0])
