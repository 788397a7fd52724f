"""Every golden operator in a capsule: the same numbers where this package is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from capsules import run_alone, unpacked

from ait_llm.capsule.archive import write_capsule
from ait_llm.capsule.case import Call, Case, Origin
from ait_llm.capsule.tolerance import tolerance_of
from ait_llm.judge.standards import standards
from ait_llm.opcheck.golden import DEVICE, golden_ops
from ait_llm.opcheck.selftest.cases import Built, Draw
from ait_llm.opcheck.selftest.runner import cases


def the_case(op: str, built: Built) -> Case:
    """The first result of a self-test case, as a device computes it."""
    golden = golden_ops.get(op)
    result = built.compute(golden, DEVICE)
    is_input = not result.outputs
    index = min(result.updated_inputs) if is_input else 0
    ranks = built.ranks or [(built.inputs, built.params)]
    return Case(
        op,
        {"type": op, "id": "0"},
        golden,
        [Call(inputs, params) for inputs, params in ranks],
        built.rank,
        "intensor" if is_input else "outtensor",
        index,
        is_input,
        (result.updated_inputs if is_input else result.outputs)[index],
    )


def spoiled(tensor: torch.Tensor) -> torch.Tensor:
    """The largest element with another sign; the first one inverted where there is no sign."""
    wrong = tensor.clone(memory_format=torch.contiguous_format)
    flat = wrong.view(-1)
    if tensor.is_floating_point():
        place = int(flat.float().nan_to_num(0, 0, 0).abs().argmax())
        flat[place] = -flat[place]
    else:
        flat.view(torch.uint8)[0] ^= 0x40
    return wrong


def write(case: Case, path: Path) -> str:
    """Write a capsule; what opcheck's contract says of the case."""
    output = case.evaluated()
    tolerance = tolerance_of(output)
    found = tolerance.judge(output)
    judged = standards.get("contract")(output)
    assert judged.passed == (not found.check), (judged, found)
    write_capsule(path, Origin(case), output, tolerance, {"verdict": "", "reason": ""}, None)
    return "right" if judged.passed else "wrong"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, str]]:
    """How the capsules of each operator end: one with the right output and one with a wrong one."""
    folder = tmp_path_factory.mktemp("operators")
    commands: dict[str, Path] = {}
    first = {case.op: case for case in reversed(cases)}
    for op, case in sorted(first.items()):
        right = the_case(op, case.build(Draw(case.dtypes[0], 7)))
        if not right.dumped.numel() or right.golden.accepts is not None:
            continue
        for dumped in (right.dumped, spoiled(right.dumped)):
            path = folder / f"{op}_{len(commands)}.zip"
            said = write(right.with_call(right.call, dumped), path)
            commands[f"{op} {said}"] = unpacked(path)
    codes = run_alone([[script] for script in commands.values()])
    return dict(zip(commands, codes, strict=True))


def test_every_operator_with_a_self_test_passes_and_fails_alone_as_opcheck_says(
    ended: dict[str, tuple[object, str]],
) -> None:
    expected = {name: 0 if name.endswith("right") else 1 for name in ended}
    assert {name: code for name, (code, _) in ended.items()} == expected
    assert len(ended) > 120
