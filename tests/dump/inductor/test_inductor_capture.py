"""Programs compiled with Inductor: nothing changes, every kernel is on disk, faults are found."""

from __future__ import annotations

import errno
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import TensorifyScalarRestartAnalysis

from ait_llm import compare
from ait_llm.core import Verdict
from ait_llm.core.comparison import Report
from ait_llm.dump import inductor_capture
from ait_llm.dump.fx_summary import no_graphs
from ait_llm.dump.inductor import backend, instrument, recorder
from ait_llm.dump.inject.channel import read_reports, report
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dumps import open_dump
from ait_llm.dumps.operations import Operation
from ait_llm.errors import FormatError, UsageError
from tests.dump.inductor.conftest import Captured, capture, capture_golden, run, sealed
from tests.support.compiled_models import Cache, Llama, ReadLater

IDS = (torch.arange(5),)
aten = torch.ops.aten


def kernels(folder: Path) -> dict[str, Operation]:
    return {each.name: each for each in open_dump(folder).operations()}  # type: ignore[misc]


def all_passed(report: Report) -> bool:
    return report.exit_code() == 0 and report.counts[Verdict.PASS] == len(report.comparisons)


def test_the_program_returns_the_same_bits_as_without_the_capture(llama: Captured) -> None:
    assert torch.equal(llama.plain, llama.returned)


def test_the_generated_code_is_that_of_plain_inductor_with_lines_of_our_own(
    llama: Captured,
) -> None:
    plain, captured = (text.splitlines() for text in llama.programs)
    ours = [line for line in captured if "_ait_recorder" in line]
    assert len(ours) > 2 * len(kernels(llama.mine))
    rest = [line for line in captured if "_ait_recorder" not in line]
    number = "# AOT ID:"  # how many graphs the process has traced
    same = [[line for line in text if line and number not in line] for text in (rest, plain)]
    assert same[0] == same[1]


def test_a_graph_without_a_folder_is_told_and_runs_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.sin() + 1, backend=inductor_capture.capture(tmp_path))
    (tmp_path / "ait_dump" / "fx_tensors" / "worldsize1_global_rank0").write_text("in the way")
    with torch.no_grad():
        result = compiled(torch.ones(4))
    assert torch.allclose(result, torch.ones(4).sin() + 1)
    assert "of a compiled graph cannot be written" in caplog.text


def test_a_graph_whose_description_cannot_be_written_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _graph: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), str(path))

    torch._dynamo.reset()
    monkeypatch.setattr("ait_llm.dump.inductor.backend.write_graph", full)
    compiled = torch.compile(lambda x: x.sin() + 1, backend=inductor_capture.capture(tmp_path))
    with torch.no_grad():
        compiled(torch.ones(4))
    (ledger,) = (tmp_path / "ait_dump" / "ledger").glob("fx_*.jsonl")
    lost = [json.loads(line) for line in ledger.read_text().splitlines() if '"file"' in line]
    assert {Path(each["path"]).name for each in lost} == {"graph.json", "kernels.json"}


def test_compiled_and_eager_agree_and_nothing_is_left_out(llama: Captured) -> None:
    report = compare(llama.golden, llama.mine)
    assert all_passed(report)
    assert not report.origins
    # Whatever is no pair is looked at through one, by name.
    looked_at = {each.golden.op for each in report.comparisons if each.golden}
    told = " ".join(each.why for each in report.comparisons)
    assert {"silu", "mean", "rsqrt"}.isdisjoint(looked_at)
    assert "looked at through it" in told
    covered = {
        name
        for each in kernels(llama.mine).values()
        for buffer in (each.launch.outputs if each.launch else ())
        for name in buffer.covers
    }
    nodes = {each.name for each in open_dump(llama.golden).operations()}
    assert nodes == looked_at | covered


def test_roles_can_be_exchanged_and_both_sides_compiled(llama: Captured) -> None:
    one, other = compare(llama.golden, llama.mine), compare(llama.mine, llama.golden)
    assert all_passed(other)
    pairs = [
        {(each.golden.op, each.mine.op) for each in report.comparisons if each.golden and each.mine}
        for report in (one, other)
    ]
    assert pairs[1] == {(mine, golden) for golden, mine in pairs[0]}
    both = compare(llama.mine, llama.mine)
    assert both.counts[Verdict.PASS] == len(both.comparisons)
    assert both.compared == one.compared


def test_a_kernel_tells_the_nodes_it_fused_and_the_type_says_so(llama: Captured) -> None:
    found = kernels(llama.mine)
    kernel = next(each for each in found.values() if "silu" in each.type)
    assert kernel.name.startswith("cpp_fused_mul_silu")
    assert kernel.type == "silu+mul"
    assert {"silu"} <= set(kernel.parts)
    assert kernel.launch is not None
    assert {"neg", "exp", "add", "div"} <= {
        each.rstrip("_0123456789") for each in kernel.launch.fused
    }
    (product,) = kernel.outputs
    gate, up = (tensor.numpy().astype(np.float64) for tensor in kernel.inputs)
    assert np.allclose(product.numpy().reshape(gate.shape), gate / (1 + np.exp(-gate)) * up)


def test_what_a_kernel_reads_is_the_file_of_what_another_stored(llama: Captured) -> None:
    found = kernels(llama.mine)
    stored = {each.path.stat().st_ino for op in found.values() for each in op.outputs}
    reads = [(op.launch, each) for op in found.values() for each in op.inputs]
    for launch, each in reads:
        assert launch is not None
        is_outside = launch.inputs[each.argument].buffer.startswith("arg")
        assert (each.path.stat().st_ino in stored) is not is_outside
        assert each.path.stat().st_mode & 0o777 == 0o640
    assert len(reads) > 10


def failing(fault: Any, folder: Path, llama: Captured) -> Report:
    target, table, broken = fault
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(table, target, broken)
        capture(Llama, IDS, folder)
    return compare(llama.golden, folder)


def test_a_broken_decomposition_is_the_origin(llama: Captured, tmp_path: Path) -> None:
    from torch._inductor.decomposition import select_decomp_table

    broken = (aten.silu.default, select_decomp_table(), lambda x: x * torch.sigmoid(1.05 * x))
    report = failing(broken, tmp_path, llama)
    assert report.exit_code() == 1
    origin = report.origins[0]
    assert "silu" in origin.parts
    assert origin.op.startswith("cpp_fused_mul_silu")
    assert origin.golden_op.startswith("mul")
    assert origin.certain
    assert origin.evidence.startswith("from its own inputs recomputed")
    failed = [each.mine.op for each in report.with_verdict(Verdict.FAIL) if each.mine]
    assert failed[0] == origin.op


def test_a_broken_lowering_is_the_origin(llama: Captured, tmp_path: Path) -> None:
    from torch._inductor.lowering import lowerings

    right, times = lowerings[aten.cos.default], lowerings[aten.mul.Tensor]
    broken = (aten.cos.default, lowerings, lambda x: times(right(x), 1.01))
    report = failing(broken, tmp_path, llama)
    assert report.exit_code() == 1
    origin = report.origins[0]
    assert {"cos", "sin"} <= set(origin.parts)
    assert "silu" not in origin.parts
    assert re.search("inputs? agree", origin.evidence)


def test_a_tensor_of_the_program_that_is_written_in_place_is_compared(tmp_path: Path) -> None:
    inputs = (torch.randn(2, 8), torch.tensor([1, 3]))
    plain = run(Cache, inputs, calls=2)
    mine = capture(Cache, inputs, tmp_path / "mine", calls=2)
    capture_golden(Cache, inputs, tmp_path / "golden", calls=2)
    assert torch.equal(plain, mine)
    report = compare(tmp_path / "golden", tmp_path / "mine")
    assert all_passed(report)
    compared = [
        each
        for each in report.comparisons
        if each.golden and each.golden.op == "index_copy" and each.record.role == "out"
    ]
    assert {each.record.graph_step for each in compared} == {0, 1}
    assert {each.record.shape for each in compared} == {(6, 8)}


def test_what_is_read_after_a_write_in_place_is_not_the_argument_before_it(
    tmp_path: Path,
) -> None:
    inputs = (torch.randn(2, 8), torch.tensor([1, 3]))
    capture(ReadLater, inputs, tmp_path / "mine")
    capture_golden(ReadLater, inputs, tmp_path / "golden")
    report = compare(tmp_path / "golden", tmp_path / "mine")
    assert all_passed(report)
    found = kernels(tmp_path / "mine")
    (late,) = (op for op in found.values() if op.launch and "mul" in op.launch.fused)
    assert late.launch is not None
    read = {each.value.node: each for each in late.launch.inputs if each.value}
    assert set(read) == {"mm", "index_copy"}
    cache = read["index_copy"]
    assert cache.value is not None
    assert cache.value.role == "out"
    # Before the write it is zero; what is read is the file of what was written.
    written = {each.path.stat().st_ino for op in found.values() for each in op.outputs}
    (file,) = (each for each in late.inputs if late.launch.inputs[each.argument] == cache)
    assert file.numpy().any()
    assert file.path.stat().st_ino in written


class Narrow(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.nn.functional.gelu(x).topk(2, -1)
        return values.softmax(-1), places


class Checked(nn.Module):
    """Checks what it is given: an assertion that the compiler evaluates inside of a kernel."""

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.one_hot(ids, 16).float() * 2


def test_a_condition_that_a_kernel_checks_without_storing_it_is_no_value(tmp_path: Path) -> None:
    capture(Checked, IDS, tmp_path / "mine")
    capture_golden(Checked, IDS, tmp_path / "golden")
    report = compare(tmp_path / "golden", tmp_path / "mine")
    assert report.counts[Verdict.FAIL] == 0
    assert report.origins == ()


def test_bf16_values_and_several_results_have_their_types(tmp_path: Path) -> None:
    inputs = (torch.randn(3, 16, dtype=torch.bfloat16),)
    capture(Narrow, inputs, tmp_path / "mine")
    capture_golden(Narrow, inputs, tmp_path / "golden")
    report = compare(tmp_path / "golden", tmp_path / "mine")
    assert all_passed(report)
    topk = next(each for each in kernels(tmp_path / "mine").values() if each.type == "topk")
    assert [tensor.dtype.label for tensor in topk.outputs] == ["bf16", "int64"]


def test_steps_are_selected_and_counted(tmp_path: Path) -> None:
    inputs = (torch.ones(4),)
    capturing = inductor_capture.capture(tmp_path, steps=[1], tensor_part=1)
    run(lambda: nn.Softplus(), inputs, capturing, calls=3)
    operations = list(sealed(tmp_path).operations())
    assert {each.step for each in operations} == {1}
    assert not any(each.inputs for each in operations)
    expected = np.log1p(np.exp(np.ones(4)))
    assert np.allclose(operations[-1].outputs[0].numpy(), expected)


def test_training_records_the_forward_graph_and_says_that_the_backward_one_is_missing(
    tmp_path: Path,
) -> None:
    def train(capturing: Any) -> Tensor:
        x = torch.ones(4, requires_grad=True)
        run(lambda: nn.Softplus(), (x,), capturing, grad=True).sum().backward()
        assert x.grad is not None
        return x.grad

    from ait_llm.dump import fx_backend

    mine = train(inductor_capture.capture(tmp_path / "mine"))
    golden = train(fx_backend.capture(tmp_path / "golden"))
    for name in ("mine", "golden"):
        sealed(tmp_path / name)
    assert torch.allclose(mine, golden)
    report = compare(tmp_path / "golden", tmp_path / "mine")
    assert report.counts[Verdict.FAIL] == 0
    assert report.counts[Verdict.PASS] >= 1
    assert report.exit_code() == 3
    assert any("no counterpart on my side" in each.text for each in report.problems)


def test_a_folder_that_vanishes_costs_the_files_and_not_the_program(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(nn.Softplus(), backend=inductor_capture.capture(tmp_path))
    with torch.no_grad():
        first = compiled(torch.ones(4))
        graph = next((tmp_path / "ait_dump" / "fx_tensors").glob("*/graph_1"))
        graph.rename(graph.with_name("away"))
        graph.write_text("in the way")
        assert torch.equal(compiled(torch.ones(4)), first)
    torch._dynamo.reset()
    ledger = next((tmp_path / "ait_dump" / "ledger").iterdir())
    states = [json.loads(line).get("state") for line in ledger.read_text().splitlines()]
    assert "failed" in states


def test_an_error_of_the_recorder_is_told_and_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(value: Any) -> Any:
        raise LookupError("no such thing")

    monkeypatch.setattr(recorder, "as_array", fail)
    result = capture(lambda: nn.Softplus(), (torch.ones(4),), tmp_path)
    assert torch.allclose(result, nn.functional.softplus(torch.ones(4)))
    assert "incomplete: LookupError" in caplog.text
    (process,) = open_dump(tmp_path).processes
    assert process.losses[0].op == "graph_1"
    assert "no such thing" in process.losses[0].reason


@pytest.mark.parametrize("step", ["read_wrapper", "_eager_graph", "map_values"])
def test_a_program_that_cannot_be_watched_is_compiled_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    def fail(*_: Any) -> Any:
        raise LookupError("no such thing")

    place = instrument if step == "read_wrapper" else backend
    monkeypatch.setattr(place, step, fail)
    result = capture(lambda: nn.Softplus(), (torch.ones(4),), tmp_path)
    assert torch.allclose(result, nn.functional.softplus(torch.ones(4)))
    assert "LookupError: no such thing" in caplog.text
    (ledger,) = (tmp_path / "ait_dump" / "ledger").iterdir()
    assert "no such thing" in ledger.read_text()


def test_a_new_analysis_that_dynamo_asks_for_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trace = backend._eager_graph
    asked: list[bool] = []

    def trace_again(*arguments: Any) -> Any:
        if not asked:
            asked.append(True)
            raise TensorifyScalarRestartAnalysis
        return trace(*arguments)

    monkeypatch.setattr(backend, "_eager_graph", trace_again)
    capture(lambda: nn.Softplus(), (torch.ones(4),), tmp_path)
    assert asked
    assert not [each for each in caplog.records if each.name.startswith("ait_llm")]
    (kernel,) = kernels(tmp_path).values()
    assert kernel.parts == ("softplus",)


def test_a_golden_dump_without_a_node_leaves_the_kernel_without_a_partner(
    llama: Captured, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(llama.golden, tmp_path / "golden")
    for path in (tmp_path / "golden").rglob("silu-*"):
        path.unlink()
    mine = kernels(llama.mine)
    stored = next(each for each in mine.values() if each.type == "silu+mul").launch
    assert stored is not None
    node = stored.outputs[0].value
    assert node is not None
    for path in (tmp_path / "golden").rglob(f"{node.node}-*"):
        path.unlink()
    report = compare(tmp_path / "golden", llama.mine)
    skipped = [each for each in report.with_verdict(Verdict.SKIPPED) if each.mine]
    assert [each.reason for each in skipped] == [
        f"the golden dump has no output 0 of node {node.node}"
    ]
    assert report.exit_code() == 3


@pytest.mark.parametrize("seed", range(4))
def test_a_golden_dump_without_some_nodes_makes_no_wrong_pair(
    llama: Captured, tmp_path: Path, seed: int
) -> None:
    import shutil

    shutil.copytree(llama.golden, tmp_path / "golden")
    for path in sorted((tmp_path / "golden").rglob("*.npy")):
        node, _, rest = path.name.partition("-")
        target = ".".join(rest.split(".")[:3])
        unit = target if seed % 2 else node
        if random.Random(f"{seed} {unit}").random() < 0.5:
            path.unlink()
    report = compare(tmp_path / "golden", llama.mine)
    assert report.counts[Verdict.FAIL] == 0
    assert report.counts[Verdict.PASS] > 5
    assert not report.origins


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"schema": 1}',
        '{"schema": 1, "launches": [{"name": 3}]}',
        '{"schema": 1, "launches": 7}',
        '{"schema": 2, "launches": []}',
        "[" * 100_000,
    ],
)
def test_a_damaged_table_is_named(llama: Captured, tmp_path: Path, text: str) -> None:
    import shutil

    shutil.copytree(llama.mine, tmp_path / "mine")
    table = next((tmp_path / "mine").rglob("kernels.json"))
    table.write_text(text)
    with pytest.raises(FormatError, match=r"kernels\.json"):
        list(open_dump(tmp_path / "mine").operations())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"dump_path": 3}, "is not a path"),
        ({"tensor_part": 3}, "tensor_part 3"),
        ({"steps": [-1]}, "steps"),
    ],
)
def test_unusable_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        inductor_capture.capture(**{"dump_path": tmp_path, **arguments})


def test_a_version_of_torch_without_the_places_we_watch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.graph import GraphLowering

    from ait_llm.dump.inductor.backend import check_torch

    check_torch()
    monkeypatch.delattr(GraphLowering, "codegen")
    with pytest.raises(UsageError, match="cannot be watched"):
        check_torch()


def test_a_program_runs_as_it_is_with_a_torch_that_cannot_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise UsageError("Inductor of torch 2.1 cannot be watched")

    monkeypatch.setattr(backend, "check_torch", refuse)
    torch._dynamo.reset()
    model, x = nn.Linear(4, 4).eval(), torch.ones(2, 4)
    with torch.no_grad():
        compiled = torch.compile(model, backend=inductor_capture.capture(tmp_path))
        torch.testing.assert_close(compiled(x), model(x))
    assert "nothing is captured: Inductor of torch 2.1" in caplog.text


def test_a_summary_names_the_reason_for_which_a_capture_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise UsageError("Inductor of torch 2.1 cannot be watched")

    channel = tmp_path / "channel"
    channel.mkdir()
    monkeypatch.setenv("AIT_TORCH_CHANNEL", str(channel))
    monkeypatch.setattr(backend, "check_torch", refuse)
    torch._dynamo.reset()
    report("graph", nodes=3)  # as the injected capture does before it compiles
    with torch.no_grad():
        made = inductor_capture.capture(tmp_path / "mine")
        torch.compile(nn.Linear(4, 4).eval(), backend=made)(torch.ones(2, 4))
    settings = TorchSettings(tmp_path / "mine", types=("inductor",))
    (sentence,) = no_graphs(settings, 0, list(read_reports(channel)), [])
    assert sentence in caplog.messages
    assert sentence == "nothing is captured: Inductor of torch 2.1 cannot be watched"
