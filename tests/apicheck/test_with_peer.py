"""msprobe's own judge on the same outputs, and its comparison of two devices on our tables."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from judged_outputs import outputs_for_msprobe
from recorded_calls import RecordedCalls

from ait_llm.apicheck import CheckOptions, check_apis, compare_precision
from ait_llm.apicheck.judging import Judge

PEER = os.environ.get("AIT_LLM_PEER_PYTHON", "")
pytestmark = pytest.mark.skipif(not PEER, reason="AIT_LLM_PEER_PYTHON is not set")

# Our metric, msprobe's name of it, and how far both may lie apart: it computes bfloat16 in float32,
# and adds something to its mean square.
METRICS = {
    "cosine": ("cosine_sim", 1e-6),
    "max_absolute": ("max_abs_err", 1e-5),
    "hundredth": ("rel_err_hundredth", 0.02),
    "small_share": ("small_value_err_ratio", 1e-9),
    "max_relative": ("max_rel_error", 1e-5),
    "mean_relative": ("mean_rel_error", 1e-5),
    "rmse": ("rmse", 1e-4),
}
PROGRAM = """
import json, sys, torch
from msprobe.pytorch.api_accuracy_checker.compare.compare import Comparator
from msprobe.pytorch.api_accuracy_checker.compare.compare_column import CompareColumn
folder, names = sys.argv[1], sys.argv[2].split(",")
judge = Comparator(folder + "/r.csv", folder + "/d.csv", False, config=None)
found = []
for golden, mine in torch.load(folder + "/pairs.pt"):
    status, column, _ = judge._compare_core("add", golden, mine, False)
    values = {name: getattr(column, name) for name in names}
    numbers = {n: float(v) for n, v in values.items() if not isinstance(v, str)}
    found.append([status, numbers])
json.dump(found, open(folder + "/found.json", "w"))
"""


def test_msprobe_judges_the_same_outputs_alike(tmp_path: Path) -> None:
    outputs = outputs_for_msprobe()
    torch.save([(golden, mine) for _, golden, mine in outputs], tmp_path / "pairs.pt")
    names = ",".join(theirs for theirs, _ in METRICS.values())
    subprocess.run([PEER, "-c", PROGRAM, str(tmp_path), names], check=True, capture_output=True)
    found = json.loads((tmp_path / "found.json").read_text())
    for (dtype, golden, mine), (status, numbers) in zip(outputs, found, strict=True):
        (ours,) = Judge("default").outputs("add", golden, mine)
        assert ours.status == status
        for metric, (name, tolerance) in METRICS.items():
            if name in numbers:
                wanted = pytest.approx(numbers[name], rel=tolerance, abs=1e-15)
                assert getattr(ours.metrics, metric) == wanted, (dtype, metric)


def test_msprobe_compares_our_tables_of_two_devices_as_we_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.linspace(-6, 6, 500)
    calls = RecordedCalls(tmp_path / "run")
    calls.add("Functional.gelu.0", x.half()).add("Functional.gelu.1", x.bfloat16())
    calls.add("Functional.gelu.2", x).add("Torch.exp.0", x, gradients=[x]).add(
        "Torch.abs.0", x.int()
    )
    calls.add("Functional.softmax.0", x.half(), dim=0).add("Torch.matmul.0", x.half(), x.half())
    dump = calls.write()
    gpu = check_apis([dump], tmp_path / "gpu", CheckOptions(device="cpu"))
    gelu, exp = F.gelu, torch.exp

    def worse_gelu(values: torch.Tensor) -> torch.Tensor:
        return gelu(values) * (1 + (2.0**-9 if values.dtype == torch.float16 else 0.0))

    monkeypatch.setattr(F, "gelu", worse_gelu)
    monkeypatch.setattr(
        torch, "exp", lambda x: exp(x) * (1.001 if x.dtype == torch.float32 else 1.0)
    )
    npu = check_apis([dump], tmp_path / "npu", CheckOptions(device="cpu"))
    tables = [each.checked[0].files[1] for each in (npu, gpu)]
    ours = compare_precision(*tables, tmp_path / "ours")
    command = [str(Path(PEER).parent / "msprobe"), "api_precision_compare", "-o"]
    command += [str(tmp_path / "theirs"), "-npu", str(tables[0]), "-gpu", str(tables[1])]
    subprocess.run(command, check=True, capture_output=True)
    for kind, ours_path in zip(("result", "details"), ours.files, strict=True):
        (theirs_path,) = (tmp_path / "theirs").glob(f"*{kind}*.csv")
        mine, theirs = _rows(ours_path), _rows(theirs_path)
        assert [*mine[0]] == [*theirs[0]]
        for row, expected in zip(mine, theirs, strict=True):
            for column, value in expected.items():
                if column != "Message":
                    assert _same(row[column], value), (row, expected, column)
    assert {name for name, forward, _, _ in ours.results if forward == "error"}


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_every_call_of_a_training_step_that_msprobe_captured_passes(
    task: str, tmp_path: Path
) -> None:
    settings = {"task": task, "dump_path": str(tmp_path / "dump"), "rank": [], "step": []}
    more = {"list": [], "scope": [], "data_mode": ["all"], "summary_mode": "statistics"}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**settings, "level": "mix", "risk_level": "ALL", task: more}))
    program = Path(__file__).parents[1] / "support" / "api_program.py"
    command = [PEER, str(program), "msprobe", str(config)]
    subprocess.run(command, check=True, capture_output=True)
    outcome = check_apis([tmp_path / "dump"], tmp_path, CheckOptions(device="cpu"))
    assert outcome.exit_code() == 0
    results = list(outcome.results)
    assert {each.forward for each in results} == {"pass"}
    assert sum(len(each.gradients) for each in results) > 50


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def _same(mine: str, theirs: str) -> bool:
    try:
        return math.isclose(float(mine), float(theirs), rel_tol=1e-6, abs_tol=1e-9)
    except ValueError:
        return mine.strip() == theirs.strip()
