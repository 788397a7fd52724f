"""Record small cases of the vendor's generator and op tests: opcheck/selftest/vendor/numbers.xz."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from vendor.cases import Case, CaseError, read_cases
from vendor.generator import Generator, NotRunError
from vendor.goldens import recorded
from vendor.op_test_cases import op_test_cases

from ait_llm.errors import OperationError
from ait_llm.opcheck.selftest.recorded import NUMBERS, Recorded, save

# Bytes of a case, and of all cases of one operator; the smallest case may have more.
SMALL, ALL, SMALLEST = 9_000, 24_000, 74_000
MOST = 12
# Shapes, and parameters, of ours for operators whose smallest cases are too large to record.
_EXPERTS = '{{"groupedMatmulType":{},"transposeB":true,"topK":2,"outDataType":-1}}'
_PACKED = '{"qSeqLen":[3,2],"maxSeqLen":8}'
SMALLER = {
    "gather_pre_rms_norm 1": ("", "16,64;16,64;16;1,64", "16,64;16,64"),
    "grouped_matmul_with_routing 1": (_EXPERTS.format(0), "8,32;4,48,32;4;16", "16,48"),
    "grouped_matmul_with_routing 2": (_EXPERTS.format(0), "8,32;4,48,32;4;16", "16,48"),
    "grouped_matmul_with_routing 3": (_EXPERTS.format(1), "16,32;4,48,32;4;16", "8,48"),
    "grouped_matmul_with_routing 4": (_EXPERTS.format(1), "16,32;4,48,32;4;16", "8,48"),
    "norm_rope_reshape 5": ("", "4,1,32;32;4,16;4,16;4,16;4;64,2,1,48", "64,2,1,48"),
    "pad 1": ("", "0,16;1,0;4,1;4,32", "4,16"),
    "pad_with_hidden_state 1": (_PACKED, "5,16", "2,8,16"),
    "paged_attention 11": (
        '{"headNum":4,"qkScale":0.2,"kvHeadNum":2}',
        "2,4,16;2,128,2,16;2,128,2,16;2,2;2",
        "2,4,16",
    ),
    "paged_cache_load 1": ("", "3,1,128,32;3,1,128,32;3,1;3;384,32;384,32", "384,32;384,32"),
    "reshape_and_cache 19": ("", "6,2,16;4,8,2,16;6", "4,8,2,16"),
    "rms_norm_backward 1": ("", "2,4,16;2,4,16;2,4,1;16", "2,4,16;16"),
    "rope_q_concat 13": ("", "2,64;2,32;2,32;2,2,48", "2,2,80"),
    "set_value 1": (
        '{"starts":[0,0,0],"ends":[2,2,8],"strides":[1,1,1]}',
        "4,3,8;2,2,8",
        "",
    ),
    "unpad_with_hidden_state 1": (_PACKED, "2,8,16", "5,16"),
}


def record(checkout: Path) -> str:
    """Write the numbers and say how many; cases in which the vendor is at fault stay out."""
    torch.set_num_threads(1)
    generator = Generator(checkout)
    kept: list[Recorded] = []
    cases = [_smaller(case) for case in read_cases(checkout)]
    for operator in sorted({case.operator for case in cases}):
        kept += _of_operator([case for case in cases if case.operator == operator], generator)
    of_tests = [(one, one.differs()) for one in op_test_cases(checkout)]
    kept += [_narrow(one) for one, said in of_tests if not said]
    save(kept)
    operators = len({one.op for one in kept})
    missing = sorted({case.operator for case in cases if case.passes} - {one.op for one in kept})
    size = NUMBERS.stat().st_size
    left = "".join(f"\n{one.op}, {one.case}: {said}" for one, said in of_tests if said)
    return f"{len(kept)} cases of {operators} operators, {size} bytes; none of {missing}{left}"


def _smaller(case: Case) -> Case:
    if case.label not in SMALLER or not case.passes:
        return case
    params, inputs, outputs = SMALLER[case.label]
    fields = {"InShape": inputs, "OutShape": outputs} | ({"OpParam": params} if params else {})
    return replace(case, number=f"{case.number}, smaller", fields=case.fields | fields)


def _of_operator(cases: list[Case], generator: Generator) -> list[Recorded]:
    """Few cases that differ in parameters and types, the smallest of each kind."""
    sizes = {id(case): _size(case) for case in cases if case.passes}
    order = sorted((case for case in cases if id(case) in sizes), key=lambda one: sizes[id(one)])
    kept: list[Recorded] = []
    kinds: set[str] = set()
    total = 0
    for case in order:
        size = sizes[id(case)]
        fits = size <= SMALL and total + size <= ALL and len(kept) < MOST
        if (kept and not fits) or size > SMALLEST:
            continue
        try:
            kind = _kind(case)
            if kind in kinds:
                continue
            made = recorded(case, generator)
            if made.differs():
                continue
        except (CaseError, NotRunError, OperationError):
            continue
        kinds.add(kind)
        kept.append(_narrow(made))
        total += size
    return kept


def _narrow(made: Recorded) -> Recorded:
    """Goldens in float64 take as much room as they are worth in float32."""
    return replace(
        made,
        golden=[one.float() if one.dtype == torch.float64 else one for one in made.golden],
    )


def _kind(case: Case) -> str:
    dtypes = [each.dtype for each in case.inputs]
    return json.dumps([case.params, dtypes], sort_keys=True)


def _size(case: Case) -> int:
    """About how many bytes its tensors have."""
    widths = {"int8": 1, "uint8": 1, "bool": 1, "float16": 2, "bf16": 2, "int64": 8, "uint64": 8}
    try:
        return sum(
            widths.get(each.dtype, 4) * torch.Size(each.shape).numel()
            for each in case.inputs + case.outputs
        )
    except CaseError:
        return SMALLEST + 1
