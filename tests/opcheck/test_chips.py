"""The chip that ran a dump: given, in the table, in the ledger, or nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from operator_dumps import OperatorDump, table_row
from torch import Tensor

from ait_llm.cli.main import ait
from ait_llm.core.comparison import Verdict
from ait_llm.errors import UsageError
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck
from ait_llm.opcheck.rerun import FunctionBackend
from ait_llm.opcheck.selftest.emulations import emulations

OP = "SelfAttentionOperation"
PARAMS = {"headNum": 1, "kvHeadNum": 1, "qkScale": 0.125, "calcType": 3}


@pytest.fixture(scope="module")
def run() -> tuple[list[Tensor], Tensor]:
    """Inputs, and what the default kernel of Ascend 910B makes of them."""
    draw = np.random.default_rng(5)
    query, key, value = (draw.standard_normal((1500, 1, 64)) for _ in range(3))
    given = [each.astype(np.float16) for each in (query * 0.1, key, value)]
    given.append(np.array([1500], np.int32))
    made = emulations[OP](given, PARAMS)
    assert made is not None
    return [torch.from_numpy(each) for each in given], torch.from_numpy(made[0])


@pytest.fixture
def dump(tmp_path: Path, run: tuple[list[Tensor], Tensor]) -> OperatorDump:
    found = OperatorDump(tmp_path / "ait_dump")
    found.add(f"0_{OP}", run[0], [run[1]], PARAMS)
    return found


def verdict(report: OpcheckReport) -> Verdict:
    (item,) = report.items
    assert "socVersion" not in item.params
    return item.verdict


def test_a_kernel_passes_for_its_chip_and_where_the_chip_is_not_known(dump: OperatorDump) -> None:
    assert verdict(opcheck(dump.root)) is Verdict.PASS
    assert verdict(opcheck(dump.root, soc="Ascend910B4")) is Verdict.PASS
    assert verdict(opcheck(dump.root, soc="Ascend310P3")) is Verdict.FAIL


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (" ", Verdict.PASS),
        ("Ascend910B", Verdict.PASS),
        ("Ascend310P", Verdict.FAIL),
        ("Ascend910B,Ascend310P", Verdict.PASS),
    ],
)
def test_the_table_may_name_the_chip(
    dump: OperatorDump, run: tuple[list[Tensor], Tensor], column: str, expected: Verdict
) -> None:
    row = table_row(f"{OP}_0", json.dumps(PARAMS), run[0], [run[1]])
    table = dump.table({**row, "SocVersion": column})
    assert verdict(opcheck(dump.root, table=table)) is expected
    assert verdict(opcheck(dump.root, table=table, soc="910b")) is Verdict.PASS


def test_the_ledger_may_name_the_chip(dump: OperatorDump) -> None:
    dump.ledger()
    (file,) = (dump.root / "ledger").iterdir()
    header, *rest = file.read_text().splitlines()
    for soc, expected in (("Ascend310P3", Verdict.FAIL), ("Ascend910B3", Verdict.PASS)):
        line = json.dumps({**json.loads(header), "soc": soc})
        file.write_text("\n".join([line, *rest]) + "\n")
        assert verdict(opcheck(dump.root)) is expected


def test_an_implementation_that_runs_it_again_gets_the_parameters_of_the_dump(
    dump: OperatorDump, run: tuple[list[Tensor], Tensor]
) -> None:
    seen = []

    def again(name: str, inputs: list[Tensor], params: dict[str, object]) -> list[Tensor]:
        seen.append(params)
        return [run[1]]

    (item,) = opcheck(dump.root, backend=FunctionBackend("again", again), soc="310p").items
    assert seen == [PARAMS]
    assert item.rerun is not None
    assert item.rerun.verdict is Verdict.FAIL


def test_the_command_takes_the_chip_and_refuses_others(dump: OperatorDump, tmp_path: Path) -> None:
    words = ["llm", "opcheck", "-i", str(dump.root), "-o", str(tmp_path), "--format", "json"]
    said = CliRunner().invoke(ait, [*words, "--soc", "Ascend310P3"])
    assert said.exit_code == 1, said.output
    said = CliRunner().invoke(ait, [*words, "--soc", "A100"])
    assert said.exit_code == 2
    with pytest.raises(UsageError, match="unknown chip 'A100'"):
        opcheck(dump.root, soc="A100")
