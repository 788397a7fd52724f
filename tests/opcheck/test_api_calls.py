"""Calls of an API dump, each computed again in float64 from its recorded arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.nn import functional

from ait_llm.cli.main import ait
from ait_llm.core.comparison import Verdict
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.opcheck.api.functions import Functions
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck


def program(dtype: torch.dtype) -> None:
    """Calls of many kinds: products, in place, orders, containers, draws, conversions."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(4, 6, 8, generator=draw).to(dtype)
    weight, bias = (torch.randn(*s, generator=draw).to(dtype) for s in ((12, 8), (12,)))
    x = functional.linear(x, weight, bias)
    x = functional.layer_norm(x, (12,))
    scores = torch.matmul(x, x.transpose(-2, -1)) / 4
    chances = functional.softmax(scores, dim=-1, dtype=torch.float32).to(dtype)
    x = torch.cat([chances @ x, x], dim=-1) + 0.5
    x.add_(1.0)
    values, _ = torch.topk(x, 3, dim=1)
    x = functional.gelu(values * 2.0, approximate="tanh")
    functional.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=False)
    functional.dropout(x, 0.5, training=True)
    torch.einsum("abc,dbc->ad", x, x)


def capture(folder: Path, dtype: torch.dtype) -> Path:
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(dump_path=str(folder), task="tensor", level="L1")
    debugger.start(nn.Identity())
    try:
        with torch.no_grad():
            program(dtype)
    finally:
        debugger.stop()
        debugger.step()
        PrecisionDebugger._reset()
    (found,) = folder.glob("**/dump.json")
    return found


def change_output(dump: Path, call: str, change: Callable[[Tensor], Tensor]) -> None:
    (path,) = (dump.parent / "dump_tensor_data").glob(f"{call}.forward.output.0.*")
    values = torch.load(path, weights_only=True)
    path.unlink()
    torch.save(change(values), path)


def failed(report: OpcheckReport) -> list[str]:
    return [item.op_id for item in report.items if item.verdict is Verdict.FAIL]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_calls_of_a_healthy_run_are_right_and_a_wrong_one_is_named(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    dump = capture(tmp_path / "dump", dtype)
    words = ["llm", "opcheck", "-i", str(dump), "-o", str(tmp_path), "--json"]
    result = CliRunner().invoke(ait, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["standard"] == "contract"
    report = opcheck(dump)
    checked = {item.op_type for item in report.items}
    assert checked >= {"linear", "layer_norm", "matmul", "softmax", "topk", "add_", "gelu"}
    assert "draw random numbers" in report.unchecked
    change_output(dump, "Functional.linear.0", lambda values: values * 1.01)
    assert failed(opcheck(dump)) == ["Functional.linear.0.forward@0"]
    assert CliRunner().invoke(ait, [*words, "-opname", "softmax"]).exit_code == 0
    assert CliRunner().invoke(ait, words).exit_code == 1


@pytest.mark.parametrize(
    ("call", "change"),
    [
        ("Functional.softmax.0", lambda values: values.roll(1, -1)),
        ("Functional.gelu.0", lambda values: values * 1.01),
        ("Torch.topk.0", lambda values: values + 0.25),
        ("Tensor.add_.0", lambda values: values + 0.25),
    ],
)
def test_a_wrong_call_is_the_only_one_named(
    call: str,
    change: Callable[[Tensor], Tensor],
    tmp_path: Path,
) -> None:
    dump = capture(tmp_path, torch.bfloat16)
    change_output(dump, call, change)
    assert failed(opcheck(dump)) == [f"{call}.forward@0"]


def test_a_function_that_is_in_no_list_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = capture(tmp_path, torch.float32)
    text = dump.read_text().replace("Functional.gelu.0", "Torch.save.0")
    dump.write_text(text)
    monkeypatch.setattr(torch, "save", lambda *_: pytest.fail("it was called"))
    report = opcheck(dump)
    assert any("save" in reason for reason in report.unchecked)
    assert failed(report) == []


def test_no_listed_function_writes_or_reads_files() -> None:
    listed = {name for names in Functions()._apis.values() for name in names}
    assert listed.isdisjoint({"save", "load", "from_file", "set_", "hub", "compile"})


def test_no_memory_is_reserved_for_sizes_that_a_record_invents(
    tmp_path: Path,
) -> None:
    dump = capture(tmp_path, torch.float32)
    record = json.loads(dump.read_text())
    name = "Functional.layer_norm.0.forward"
    record["data"]["Torch.full.0.forward"] = {
        "input_args": [[{"type": "int", "value": 1 << 40}], {"type": "int", "value": 1}],
        "input_kwargs": {},
        "output": record["data"][name]["output"],
    }
    dump.write_text(json.dumps(record))
    items = [item for item in opcheck(dump).items if item.op_type == "full"]
    assert [item.verdict for item in items] == [Verdict.SKIPPED]
    assert "1099511627776 elements" in items[0].reason
