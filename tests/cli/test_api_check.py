"""``ait llm api-check`` and ``api-precision-compare``: real captures, wrong kernels, exit codes."""

from __future__ import annotations

import csv
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner, Result
from msprobe_samples import sample
from recorded_calls import RecordedCalls

from ait_llm.apicheck.tables import DETAIL_COLUMNS
from ait_llm.cli.main import ait


def run(*words: object) -> Result:
    return CliRunner().invoke(ait, ["llm", *map(str, words)])


def check(dump: object, out: Path, *words: object) -> Result:
    return run("api-check", "-api_info", dump, "-o", out, "--device", "cpu", *words)


def table(folder: Path, kind: str = "result", suffix: str = "") -> dict[str, dict[str, str]]:
    (path,) = folder.glob(f"accuracy_checking_{kind}_??????????????{suffix}.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["API name" if kind == "result" else "API Name"]: row for row in rows}


def statuses(folder: Path) -> dict[str, tuple[str, str]]:
    return {
        name: (row["Forward Test Success"], row["Backward Test Success"])
        for name, row in table(folder).items()
    }


def wrong_in_float32(function: Any) -> Any:
    """The function, 2 % too large where a device would compute it in float32."""

    def wrong(first: torch.Tensor, *rest: Any, **more: Any) -> Any:
        result = function(first, *rest, **more)
        return result * 1.02 if first.dtype == torch.float32 else result

    return wrong


@pytest.fixture
def wrong_rsqrt() -> Iterator[None]:
    """A kernel of rsqrt in torch itself that is wrong for float32."""
    library = torch.library.Library("aten", "IMPL")

    def rsqrt(x: torch.Tensor) -> torch.Tensor:
        return x.pow(-0.5) * (1.02 if x.dtype == torch.float32 else 1.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced is the purpose
        library.impl("rsqrt", rsqrt, "CPU")
        yield
        library._destroy()


@pytest.mark.parametrize("name", ["L1_tensor", "mix_tensor"])
def test_every_call_of_a_real_capture_passes_on_a_right_device(name: str, tmp_path: Path) -> None:
    result = check(sample(name) / "golden", tmp_path)
    assert result.exit_code == 0, result.output
    assert "49 calls on cpu (standard contract): 46 pass, 3 SKIP" in result.output
    assert "\n  Tensor.to.0 and 2 more: left out: a type conversion" in result.output
    found = table(tmp_path)
    skipped = {name for name, row in found.items() if row["Forward Test Success"] == "SKIP"}
    assert skipped == {"Tensor.to.0", "Tensor.to.1", "Tensor.to.2"}
    assert "of limited value" in found["Tensor.float.0"]["Message"]


@pytest.mark.device
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("standard", ["contract", "default", "benchmark"])
def test_every_call_of_a_real_capture_passes_on_a_gpu(standard: str, tmp_path: Path) -> None:
    words = ("-o", tmp_path, "--device", "cuda:0", "--standard", standard)
    result = run("api-check", "-api_info", sample("L1_tensor") / "golden", *words)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["zoo_tensor", "zoo_stat"])
def test_a_real_capture_of_all_kinds_of_values_is_checked(name: str, tmp_path: Path) -> None:
    result = check(sample(name) / "golden", tmp_path)
    assert result.exit_code == 3, result.output
    assert "missing mymod.custom.0: mymod.custom is not in the list" in result.output
    found = statuses(tmp_path)
    assert {name for name, (forward, _) in found.items() if forward == "SKIP"} == {
        *("Tensor.abs.0", "Tensor.to.0", "Tensor.to.1", "mymod.custom.0")
    }
    assert not [name for name, (forward, _) in found.items() if forward == "error"]
    details = table(tmp_path, "details")
    for output in ("Torch.topk.0.forward.output.1", "Tensor.__setitem__.2.forward.output.0"):
        assert details[output]["Status"] == "pass"
    assert details["Tensor.exp.0.forward.output.0"]["DEVICE Dtype"] == "torch.bfloat16"
    assert check(sample(name) / "golden", tmp_path / "b", "--allow-skip").exit_code == 0


def test_only_the_call_with_a_wrong_kernel_errs(wrong_rsqrt: None, tmp_path: Path) -> None:
    result = check(sample("L1_tensor") / "golden", tmp_path, "--jobs", 2, "-save_error_data")
    assert result.exit_code == 1, result.output
    found = {name: forward for name, (forward, _) in statuses(tmp_path).items()}
    wrong = {name for name, status in found.items() if status in ("error", "warning")}
    assert wrong == {"Torch.rsqrt.0", "Torch.rsqrt.1", "Torch.rsqrt.2"}
    detail = table(tmp_path, "details")["Torch.rsqrt.0.forward.output.0"]
    assert float(detail["相对误差平均值"]) == pytest.approx(0.02, rel=1e-4)
    assert float(detail["余弦相似度"]) == pytest.approx(1.0)
    (folder,) = tmp_path.glob("ut_error_data*")
    tensors = {path.name: torch.load(path, weights_only=True) for path in folder.iterdir()}
    assert len(tensors) == 9
    golden = tensors["Torch.rsqrt.0.forward.input.0.pt"].double().rsqrt()
    assert torch.allclose(tensors["Torch.rsqrt.0.forward.output.bench.0.pt"], golden)
    mine = tensors["Torch.rsqrt.0.forward.output.device.0.pt"]
    assert torch.allclose(mine.double(), golden * 1.02)


@pytest.mark.parametrize(
    "standard", ["contract", "default", "absolute", "ulp", "binary", "thousandth"]
)
def test_every_standard_finds_the_wrong_function_and_no_exact_one(
    standard: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x = torch.linspace(0.1, 6.0, 400)
    dump = RecordedCalls(tmp_path / "run").add("Functional.gelu.0", x).add("Functional.relu.0", x)
    monkeypatch.setattr(F, "gelu", wrong_in_float32(F.gelu))
    result = check(dump.write(), tmp_path, "--standard", standard)
    assert result.exit_code == 1
    assert statuses(tmp_path) == {
        "Functional.gelu.0": ("error", " "),
        "Functional.relu.0": ("pass", " "),
    }


def test_a_wrong_gradient_is_an_error_of_the_backward_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.factor = 1.05 if x.dtype == torch.float32 else 1.0
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            return gradients[0] * 2 * ctx.factor

    monkeypatch.setattr(torch, "relu", Wrong.apply)
    x = torch.randn(50, requires_grad=True)
    arriving = [torch.randn(50)]
    calls = RecordedCalls(tmp_path / "run").add("Torch.relu.0", x, gradients=arriving)
    calls.add("Torch.exp.0", x, gradients=arriving).add("Torch.sin.0", x)
    assert check(calls.write(), tmp_path).exit_code == 1
    assert statuses(tmp_path) == {
        "Torch.relu.0": ("pass", "error"),
        "Torch.exp.0": ("pass", "pass"),
        "Torch.sin.0": ("pass", " "),
    }
    assert "backward: " in table(tmp_path)["Torch.relu.0"]["Message"]
    assert "Torch.exp.0.backward.output.0" in table(tmp_path, "details")


def many_calls(root: Path, *, values: bool = True) -> Path:
    """Values and kinds of calls at the edges."""
    nan = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    calls = RecordedCalls(root, values=values)
    calls.add("Torch.abs.0", nan)
    calls.add("Torch.abs.1", torch.empty(0, 3))
    calls.add("Torch.add.0", torch.tensor([1, 2]), 3, alpha=2)
    calls.add("Tensor.__and__.0", torch.tensor([True, False]), torch.tensor([True, True]))
    calls.add("Tensor.add_.0", torch.ones(3), torch.ones(3))
    calls.add("Tensor.__setitem__.0", torch.zeros(2, 3), [slice(0, 1), 2], 5.0)
    calls.add("Torch.cat.0", [torch.ones(2), torch.zeros(1)], dim=0)
    calls.add("Torch.sum.0", torch.ones(2, 2), dtype=torch.float64)
    calls.add("Torch.matmul.0", torch.randn(3, 4).half(), torch.randn(4, 2).half())
    calls.add("Torch.full.0", [2], 1.5, device={"type": "torch.device", "value": "npu:3"})
    calls.add("Functional.dropout.0", torch.ones(300), 0.5)
    calls.add("Torch.split.0", torch.arange(6.0), 4)
    calls.add("Torch.linalg.norm.0", torch.ones(3))
    calls.add("Torch.solve.0", torch.eye(2), torch.ones(2, 1))  # of torch.linalg
    calls.add("Tensor.numpy.0", torch.ones(3))
    calls.add("Tensor.stride.0", torch.ones(3, 2))
    return calls.write()


@pytest.mark.parametrize("values", [True, False])
def test_calls_at_the_edges_pass(values: bool, tmp_path: Path) -> None:
    result = check(many_calls(tmp_path / "run", values=values), tmp_path)
    found = {name: forward for name, (forward, _) in statuses(tmp_path).items()}
    assert found.pop("Torch.abs.1") == "SKIP"  # it has no elements
    assert set(found.values()) == {"pass"}, result.output
    assert result.exit_code == 0
    message = table(tmp_path)["Functional.dropout.0"]["Message"]
    assert message.startswith("dropout, judged by its zeros")


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("Torch.matmul.0", [torch.ones(2), torch.ones(3)], "the golden run fails: RuntimeError"),
        ("Distributed.all_reduce.0", [torch.ones(2)], "need the other ranks"),
        ("Torch.bernoulli.0", [torch.ones(2)], "random numbers"),
        ("Torch.load.0", ["/etc/passwd"], "not in the list"),
        ("Torch.sum.0", [torch.ones(2), {}], "input.1 was not recorded"),
    ],
)
def test_what_cannot_be_checked_is_said_and_is_no_success(
    name: str, args: list[Any], reason: str, tmp_path: Path
) -> None:
    dump = RecordedCalls(tmp_path / "run").add(name, *args).add("Torch.abs.0", torch.ones(2))
    result = check(dump.write(), tmp_path)
    assert result.exit_code == 3
    assert reason in result.output
    assert statuses(tmp_path)[name] == ("SKIP", " ")
    assert statuses(tmp_path)["Torch.abs.0"] == ("pass", " ")


def test_a_missing_tensor_file_is_said(tmp_path: Path) -> None:
    dump = RecordedCalls(tmp_path / "run").add("Torch.abs.0", torch.ones(2)).write()
    next((dump.parent / "dump_tensor_data").iterdir()).unlink()
    result = check(dump, tmp_path)
    assert result.exit_code == 3
    assert "cannot be read" in result.output


def test_a_record_cannot_reach_files_outside_of_its_dump(tmp_path: Path) -> None:
    dump = RecordedCalls(tmp_path / "run").add("Torch.abs.0", torch.ones(2)).write()
    outside = tmp_path / "outside.pt"
    torch.save(torch.ones(2), outside)
    (link,) = (dump.parent / "dump_tensor_data").iterdir()
    link.unlink()
    link.symlink_to(outside)
    result = check(dump, tmp_path / "out")
    assert result.exit_code == 3
    assert "lies outside of" in table(tmp_path / "out")["Torch.abs.0"]["Message"]


def test_the_details_have_the_columns_of_the_ecosystem(tmp_path: Path) -> None:
    assert len(DETAIL_COLUMNS) == 23
    check(many_calls(tmp_path / "run"), tmp_path)
    row = table(tmp_path, "details")["Torch.matmul.0.forward.output.0"]
    assert tuple(row) == DETAIL_COLUMNS
    assert row["Bench Dtype"] == "torch.float32"
    assert row["DEVICE Dtype"] == "torch.float16"
    assert row["Shape"] == "(3, 2)"
    assert len(row["余弦相似度"].partition(".")[2]) == 14
    assert row["ULP误差最大值"] == " "  # of another standard


def test_an_interrupted_check_is_continued(tmp_path: Path) -> None:
    dump = many_calls(tmp_path / "run")
    check(dump, tmp_path / "whole")
    check(dump, tmp_path / "part")
    (result_file,) = (tmp_path / "part").glob("*result*")
    (details_file,) = (tmp_path / "part").glob("*details*")
    whole = {path.name[20:27]: path.read_text() for path in (tmp_path / "whole").glob("*.csv")}
    lines = result_file.read_text().splitlines(keepends=True)
    result_file.write_text("".join(lines[:5]) + lines[5][:9])  # killed while writing a line
    lines = details_file.read_text().splitlines(keepends=True)
    details_file.write_text("".join(lines[:7]))  # one row is of a call without a result
    result = run("api-check", "-api_info", dump, "-d", "cpu", "-csv_path", result_file)
    assert result.exit_code == 0, result.output
    assert {path.name[20:27] for path in (tmp_path / "part").iterdir()} == set(whole)
    assert table(tmp_path / "part") == table(tmp_path / "whole")
    assert list(table(tmp_path / "part", "details")) == list(table(tmp_path / "whole", "details"))


def test_a_table_of_another_dump_is_not_continued(tmp_path: Path) -> None:
    check(RecordedCalls(tmp_path / "a").add("Torch.abs.0", torch.ones(2)).write(), tmp_path)
    other = RecordedCalls(tmp_path / "b").add("Torch.exp.0", torch.ones(2)).write()
    (path,) = tmp_path.glob("*result*")
    before = path.read_text()
    result = run("api-check", "-api_info", other, "-d", "cpu", "-csv_path", path)
    assert result.exit_code == 2
    assert "a table of the same dump" in result.output
    assert path.read_text() == before
    result = run("api-check", "-api_info", other, "-d", "cpu", "-csv_path", other)
    assert result.exit_code == 2
    assert "no table of an earlier check" in result.output


def test_results_do_not_depend_on_the_number_of_jobs(tmp_path: Path) -> None:
    dump = many_calls(tmp_path / "run")
    threads = torch.get_num_threads()
    for jobs in (1, 4):
        check(dump, tmp_path / str(jobs), "--jobs", jobs)
        assert torch.get_num_threads() == threads
    assert table(tmp_path / "1", "details") == table(tmp_path / "4", "details")
    assert list(table(tmp_path / "1")) == list(table(tmp_path / "4"))


def test_each_rank_has_its_tables(tmp_path: Path) -> None:
    for rank in (0, 1):
        calls = RecordedCalls(tmp_path / "run", rank=rank)
        calls.add("Torch.abs.0", torch.full((2,), float(rank))).write()
    result = check(tmp_path / "run", tmp_path / "out")
    assert result.exit_code == 0, result.output
    for rank in (0, 1):
        assert list(table(tmp_path / "out", suffix=f"_rank{rank}")) == ["Torch.abs.0"]
    two = run(
        *("api-check", "-d", "cpu", "-o", tmp_path / "two", "-api_info"),
        *(tmp_path / "run" / "step0" / f"rank{rank}" / "dump.json" for rank in (0, 1)),
    )
    assert two.exit_code == 0, two.output
    assert len(list((tmp_path / "two").iterdir())) == 4


def test_lists_of_the_configuration_select_functions(tmp_path: Path) -> None:
    dump = many_calls(tmp_path / "run")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"acc_check": {"white_list": ["add", "Torch.abs"]}}))
    assert check(dump, tmp_path / "a", "-config", config).exit_code == 0
    passed = {n for n, (forward, _) in statuses(tmp_path / "a").items() if forward == "pass"}
    assert passed == {"Torch.add.0", "Torch.abs.0"}
    config.write_text(json.dumps({"run_ut": {"black_list": ["add"]}}))
    check(dump, tmp_path / "b", "-config", config)
    assert "black list" in table(tmp_path / "b")["Torch.add.0"]["Message"]
    config.write_text(json.dumps({"task": "statistics"}))
    assert check(dump, tmp_path / "c", "-config", config).exit_code == 2


def test_repeated_calls_are_left_out_on_request(tmp_path: Path) -> None:
    calls = RecordedCalls(tmp_path / "run")
    for number in range(3):
        calls.add(f"Torch.abs.{number}", torch.randn(2))
    calls.add("Torch.abs.3", torch.randn(3)).add("Torch.exp.0", torch.randn(2))
    result = check(calls.write(), tmp_path, "-f")
    assert list(table(tmp_path)) == ["Torch.abs.0", "Torch.abs.3", "Torch.exp.0"]
    assert "2 repeated calls left out" in result.output


def test_functions_of_the_users_own_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def scale(x, by=1.0):\n    return x * by\n"
    (tmp_path / "own_kernels_for_a_test.py").write_text(source)
    (tmp_path / "own.yaml").write_text("own_kernels_for_a_test:\n  - scale\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    calls = RecordedCalls(tmp_path / "run")
    dump = calls.add("own_kernels_for_a_test.scale.0", torch.ones(2), by=3.0).write()
    assert check(dump, tmp_path / "a").exit_code == 3
    assert check(dump, tmp_path / "b", "--api-list", tmp_path / "own.yaml").exit_code == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--standard", "benchmark"], "nothing of the CPU itself"),
        (["--device", "tpu:0"], "write it like"),
        (["--device", "npu:0"], "torch_npu"),
        (["-j"], "is for NPUs"),
        (["--standard", "no_such"], "is not one of"),
    ],
)
def test_what_cannot_be_used_here_is_refused(words: list[str], reason: str, tmp_path: Path) -> None:
    dump = RecordedCalls(tmp_path / "run").add("Torch.abs.0", torch.ones(2)).write()
    result = run("api-check", "-api_info", dump, "-o", tmp_path, "-d", "cpu", *words)
    if words[0] == "--device":
        result = run("api-check", "-api_info", dump, "-o", tmp_path, *words)
    assert result.exit_code == 2
    assert reason in result.output


def test_a_dump_that_breaks_off_is_checked_and_said(tmp_path: Path) -> None:
    calls = RecordedCalls(tmp_path / "run").add("Torch.abs.0", torch.ones(2))
    dump = calls.add("Torch.exp.0", torch.ones(2)).write()
    text = dump.read_text()
    dump.write_text(text[: text.index("Torch.exp.0") + 40])
    result = check(dump, tmp_path)
    assert result.exit_code == 3
    assert "breaks off" in result.output
    assert statuses(tmp_path) == {"Torch.abs.0": ("pass", " ")}


def test_a_dump_of_modules_is_refused(tmp_path: Path) -> None:
    result = check(sample("L0_stat") / "golden", tmp_path)
    assert result.exit_code == 2
    assert "Capture again with level L1 or mix" in result.output


def test_the_result_is_there_for_machines(tmp_path: Path) -> None:
    dump = RecordedCalls(tmp_path / "run").add("Torch.abs.0", torch.ones(2)).write()
    result = check(dump, tmp_path, "--json")
    found = json.loads(result.stdout)
    assert found["counts"] == {"pass": 1}
    assert (found["exit_code"], found["device"], found["errors"]) == (0, "cpu", [])
    assert all(Path(path).is_file() for path in found["files"])


def test_two_devices_are_compared_by_their_details(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x = torch.linspace(0.1, 6.0, 400)
    calls = RecordedCalls(tmp_path / "run").add("Functional.gelu.0", x).add("Functional.relu.0", x)
    dump = calls.write()
    check(dump, tmp_path / "gpu")
    monkeypatch.setattr(F, "gelu", wrong_in_float32(F.gelu))
    check(dump, tmp_path / "npu")
    sides = [next((tmp_path / side).glob("*details*")) for side in ("npu", "gpu")]
    words = ("api-precision-compare", "-npu", sides[0], "-gpu", sides[1], "-o", tmp_path)
    result = run(*words)
    assert result.exit_code == 1, result.output
    assert "Functional.gelu.0.forward.output.0: rmse is" in result.output
    assert "1 error, 1 pass" in result.output or "1 pass, 1 error" in result.output
    assert len(list(tmp_path.glob("api_precision_compare_*.csv"))) == 2
    same = run(*words[:1], "-npu", sides[1], "-gpu", sides[1], "-o", tmp_path, "--json")
    assert same.exit_code == 0
    assert json.loads(same.stdout)["counts"] == {"pass": 2}
