"""Operators of a dump against golden: what passes, what fails, what was not looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from operator_dumps import LINEAR, OperatorDump, table_row
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.core.comparison import Verdict
from ait_llm.core.ids import OpId
from ait_llm.errors import FormatError, UnknownNameError, UsageError
from ait_llm.formats import write_tensor
from ait_llm.formats.layout import nd_to_nz
from ait_llm.opcheck.golden import GoldenOp, Result, golden_ops
from ait_llm.opcheck.outcome import Checked, OpcheckReport
from ait_llm.opcheck.pipeline import opcheck
from ait_llm.opcheck.selection import Wanted

ADD = {"elewiseType": 8}


@pytest.fixture
def dump(tmp_path: Path) -> OperatorDump:
    return OperatorDump(tmp_path / "ait_dump")


def product(rows: int = 32, columns: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """x [rows, 16], weight [columns, 16] and their product, positive so that nothing cancels."""
    draw = torch.Generator().manual_seed(1)
    x = torch.rand(rows, 16, generator=draw).half() + 0.5
    weight = torch.rand(columns, 16, generator=draw).half() + 0.5
    return x, weight, (x.double() @ weight.double().T).half()


def only(report: OpcheckReport) -> Checked:
    assert len(report.items) == 1, report.items
    return report.items[0]


def verdicts(report: OpcheckReport) -> dict[str, str]:
    return {item.title: item.verdict.value for item in report.items}


def test_a_right_output_passes_with_the_manuals_numbers(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_Layer/1_LinearOperation", [x, weight], [right], LINEAR)
    report = opcheck(dump.root, metrics=("abs", "cos_sim", "kl"), standard="classic")
    item = only(report)
    assert report.exit_code() == 0
    assert (item.op_id, item.op_type, item.output) == ("0_1", "LinearOperation", "outtensor0")
    assert item.limit == "99.9%(error<0.001)"
    assert item.rate == item.abs_rate == 100
    assert item.max_relative is not None
    assert item.max_relative < 1e-3
    assert item.cosine == pytest.approx(1, abs=1e-6)
    assert item.kl == pytest.approx(0, abs=1e-3)


def test_one_per_cent_too_much_fails_at_the_first_element(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight], [right * 1.01], LINEAR)
    report = opcheck(dump.root, standard="classic")
    item = only(report)
    assert report.exit_code() == 1
    assert item.rate == 0
    assert item.first_bad == (0, 0)
    assert item.golden_value == float(right[0, 0])
    assert item.mine_value == float((right * 1.01)[0, 0])
    assert "must; first at [0, 0]: golden" in item.reason


def test_a_graph_is_not_checked_itself(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_Layer", [x], [right])
    dump.add("0_Layer/0_LinearOperation", [x, weight], [right], LINEAR)
    assert verdicts(opcheck(dump.root)) == {"LinearOperation_0_0 outtensor0": "PASS"}


def test_only_selected_operators_are_checked(dump: OperatorDump) -> None:
    x, weight, right = product()
    for path in ("0_Layer/0_LinearOperation", "0_Layer/10_LinearOperation", "1_LinearOperation"):
        dump.add(path, [x, weight], [right], LINEAR)
    dump.add("0_Layer/2_ElewiseOperation", [x, x], [x + x], ADD)
    by_id = opcheck(dump.root, wanted=Wanted((OpId.parse("0"),)))
    assert {item.op_id for item in by_id.items} == {"0_0", "0_10", "0_2"}
    by_name = opcheck(dump.root, wanted=Wanted((OpId.parse("0"),), ("LINEAR",)))
    assert {item.op_id for item in by_name.items} == {"0_0", "0_10"}
    with pytest.raises(UsageError, match="no operator to check"):
        opcheck(dump.root, wanted=Wanted((), ("softmax",)))


def test_a_type_without_golden_is_skipped(dump: OperatorDump) -> None:
    x, _, right = product()
    dump.add("0_SecretOperation", [x], [right], {})
    report = opcheck(dump.root)
    assert only(report).reason == "there is no golden SecretOperation"
    assert report.exit_code() == 3
    assert report.exit_code(allow_skip=True) == 3  # a check of nothing still counts


def test_a_truncated_tensor_is_an_error_that_names_the_file(dump: OperatorDump) -> None:
    x, weight, right = product()
    folder = dump.add("0_LinearOperation", [x, weight], [right], LINEAR)
    file = folder / "after" / "outtensor0.bin"
    file.write_bytes(file.read_bytes()[:-100])
    item = only(opcheck(dump.root))
    assert item.verdict is Verdict.ERROR
    assert "outtensor0.bin" in item.reason


def test_inputs_that_golden_refuses_are_an_error(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight[:, :7].contiguous()], [right], LINEAR)
    item = only(opcheck(dump.root))
    assert item.verdict is Verdict.ERROR
    assert item.reason


def test_tensors_of_another_shape_or_type_fail(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight], [right[:-1].contiguous()], LINEAR)
    dump.add("1_LinearOperation", [x, weight], [right.float()], LINEAR)
    shape, dtype = opcheck(dump.root).items
    assert (shape.verdict, dtype.verdict) == (Verdict.FAIL, Verdict.FAIL)
    assert shape.reason == "its shape is [31, 64], golden's is [32, 64]"
    assert dtype.reason == "its data type is float32, golden's is float16"


def test_an_output_without_a_file_is_skipped(dump: OperatorDump) -> None:
    x, weight, _ = product()
    dump.add("0_LinearOperation", [x, weight], [], LINEAR)
    item = only(opcheck(dump.root))
    assert (item.verdict, item.reason) == (Verdict.SKIPPED, "it was not saved")


def test_what_was_only_saved_before_is_skipped(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight], [right], LINEAR, phase="before")
    item = only(opcheck(dump.root))
    assert item.verdict is Verdict.SKIPPED
    assert "-time 2" in item.reason


def _index_add() -> tuple[list[Tensor], Tensor]:
    x, _, _ = product(4, 8)
    inputs = [x, torch.tensor([2], dtype=torch.int32), x[:1], torch.ones(1).half()]
    after = x.clone()
    after[2] += x[0]
    return inputs, after


def test_an_operator_in_place_needs_its_inputs_before(dump: OperatorDump) -> None:
    inputs, after = _index_add()
    dump.add("0_IndexAddOperation", [after, *inputs[1:]], [after], {"indexType": 1, "axis": 0})
    item = only(opcheck(dump.root))
    assert item.verdict is Verdict.SKIPPED
    assert "works in place" in item.reason
    assert "-time 2" in item.reason


def test_an_operator_in_place_is_checked_from_its_inputs_before(dump: OperatorDump) -> None:
    inputs, after = _index_add()
    params = {"indexType": 1, "axis": 0}
    args: Any = ([after, *inputs[1:]], [after], params)
    dump.add("0_IndexAddOperation", *args, inputs_before=inputs)
    dump.add("1_IndexAddOperation", [inputs[0], *inputs[1:]], [inputs[0]], params,
             inputs_before=inputs)  # fmt: skip
    assert [item.verdict for item in opcheck(dump.root).items] == [Verdict.PASS, Verdict.FAIL]


def test_a_graph_that_writes_into_an_input_makes_any_operator_one_in_place(
    dump: OperatorDump,
) -> None:
    x, _, _ = product()
    dump.add("0_Layer/0_ElewiseOperation", [x + x, x], [x + x], ADD)
    node = {"opName": "ElewiseOperation_0_0", "opType": "ElewiseOperation", "param": ADD}
    dump.layer("Layer_0", [{**node, "inTensors": ["a", "b"], "outTensors": ["a"]}])
    assert "works in place" in only(opcheck(dump.root)).reason


def _cache(written: float = 1.0) -> tuple[list[Tensor], list[Tensor]]:
    """Key and value of two tokens, their caches after the write, slots; and the outputs."""
    keys = torch.full((2, 1, 16), 1.0).half()
    cache = torch.zeros(1, 4, 1, 16).half()
    cache[0, 1:3] = written
    slots = torch.tensor([1, 2], dtype=torch.int32)
    return [keys, keys, cache, cache, slots], [cache, cache]


def test_a_cache_write_is_checked_after_the_fact_and_says_what_is_not(dump: OperatorDump) -> None:
    params = {"compressType": 0, "kvCacheCfg": 0}
    dump.add("0_ReshapeAndCacheOperation", *_cache(), params)
    dump.add("1_ReshapeAndCacheOperation", *_cache(2.0), params)
    items = opcheck(dump.root).items
    assert [item.verdict.value for item in items] == ["PASS", "PASS", "FAIL", "FAIL"]
    assert "must leave as it was is not checked" in items[0].note


def test_an_overwritten_input_without_an_output_is_compared(dump: OperatorDump) -> None:
    before = torch.zeros(4, 4).half()
    source = torch.ones(2, 4).half()
    right, wrong = before.clone(), before.clone()
    right[1:3] = 1
    wrong[0:2] = 1
    params = {"starts": [1, 0], "ends": [3, 4], "strides": [1, 1]}
    for path, after in (("0_SetValueOperation", right), ("1_SetValueOperation", wrong)):
        dump.add(path, [after, source], [], params, inputs_before=[before, source])
    assert verdicts(opcheck(dump.root)) == {
        "SetValueOperation_0 intensor0": "PASS",
        "SetValueOperation_1 intensor0": "FAIL",
    }


def test_parameters_that_are_never_printed_are_tried(dump: OperatorDump) -> None:
    x = torch.linspace(-3, 3, 500).half().reshape(5, 100)
    params = {"activationType": 2, "dim": -1, "scale": 1.0}
    exact = torch.nn.functional.gelu(x.double()).half()
    fast = torch.nn.functional.gelu(x.double(), approximate="tanh").half()
    for path, y in (("0", exact), ("1", fast), ("2", exact + 0.5)):
        dump.add(f"{path}_ActivationOperation", [x], [y], params)
    by_erf, by_tanh, wrong = opcheck(dump.root).items
    assert by_erf.verdict is Verdict.PASS
    assert "geluMode" in by_erf.note
    assert (by_tanh.verdict, by_tanh.note) == (Verdict.PASS, "")
    assert wrong.verdict is Verdict.FAIL


def test_another_order_of_equal_values_is_legal(dump: OperatorDump) -> None:
    x = torch.tensor([[3.0, 3.0, 1.0]]).half()
    values = torch.tensor([[3.0, 3.0]]).half()
    for path, picked in (("0", [[1, 0]]), ("1", [[1, 2]])):
        places = torch.tensor(picked, dtype=torch.int32)
        dump.add(f"{path}_SortOperation", [x], [values, places], {"num": [2]})
    first, second = opcheck(dump.root).items[1], opcheck(dump.root).items[3]
    assert first.verdict is Verdict.PASS
    assert "another legal result" in first.note
    assert second.verdict is Verdict.FAIL


def _lost(path: str, **more: Any) -> dict[str, Any]:
    numbers = "_".join(part.partition("_")[0] for part in path.split("/"))
    line = {"kind": "op", "op": numbers, "type": path.split("/")[-1].partition("_")[2]}
    place = {"path": f"0_4242/0/{path}", "phase": "after", "step": 0}
    return {**line, **place, "state": "saved", "tensors": 3, "bytes": 1} | more


def test_what_the_ledger_says_is_lost_is_not_checked(dump: OperatorDump) -> None:
    x, weight, right = product()
    for path in ("0_LinearOperation", "1_LinearOperation"):
        dump.add(path, [x, weight], [right], LINEAR)
    (dump.tensors / "1_LinearOperation" / "after" / "intensor1.bin").unlink()
    gone = {"state": "dropped", "tensors": 0, "lost": 3, "reason": "the disk is full"}
    dump.ledger(
        _lost("0_LinearOperation"), _lost("1_LinearOperation"), _lost("2_LinearOperation", **gone)
    )
    report = opcheck(dump.root)
    assert [item.verdict.value for item in report.items] == ["PASS", "SKIPPED", "SKIPPED"]
    assert "missing" in report.items[1].reason
    assert "the disk is full" in report.items[2].reason
    assert report.exit_code() == 3
    assert report.exit_code(allow_skip=True) == 0


def test_a_capture_that_was_cut_off_is_incomplete(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight], [right], LINEAR)
    dump.ledger(_lost("0_LinearOperation"), sealed=False)
    report = opcheck(dump.root)
    assert only(report).verdict is Verdict.PASS
    assert "did not finish its capture" in report.problems[0].text
    assert (report.verdict, report.exit_code()) == (Verdict.SKIPPED, 3)


def test_the_table_selects_operators_and_gives_parameters(dump: OperatorDump) -> None:
    x, weight, right = product()
    for path in ("0_LinearOperation", "1_LinearOperation"):
        dump.add(path, [x, weight], [right])
    text = '{"hasBias":false,"transposeB":true}'
    table = dump.table(table_row("LinearOperation_0", text, [x, weight], [right]))
    report = opcheck(dump.tensors, table=table)
    assert verdicts(report) == {"LinearOperation_0 outtensor0": "PASS"}
    assert only(report).params == text


def test_tensors_that_only_the_table_knows_are_not_checked(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight], [right])
    row = table_row("LinearOperation_0", "{}", [x, weight, right], [right])
    there = table_row("LinearOperation_5", "{}", [x], [right])
    first, second = opcheck(dump.root, table=dump.table(row, there)).items
    assert (first.verdict, second.verdict) == (Verdict.SKIPPED, Verdict.SKIPPED)
    assert first.reason == "intensor2 (float16[32, 64] in the table) is not in the dump"
    assert "line 3 of the table names it" in second.reason


def test_a_table_that_was_cut_off_is_incomplete(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight], [right], LINEAR)
    table = dump.table(table_row("LinearOperation_0", "{}", [x, weight], [right]))
    table.write_text(table.read_text() + "2|LinearOperation_1")
    report = opcheck(dump.root, table=table)
    assert only(report).verdict is Verdict.PASS
    assert "the last line was cut off" in report.problems[0].text
    assert report.exit_code() == 3


def test_a_table_of_another_kind_or_run_is_told(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight], [right])
    kernels = dump.table(table_row("MatMulOperation", "{}", [x], [right]))
    with pytest.raises(FormatError, match="names no operation"):
        opcheck(dump.root, table=kernels)
    other = dump.table(table_row("RopeOperation_0", "{}", [x], [right]))
    assert "of another run" in only(opcheck(dump.root, table=other)).reason


def test_parameters_come_from_the_graph_where_nothing_else_has_them(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_Layer/0_LinearOperation", [x, weight], [right])
    node = {"opName": "LinearOperation_0_0", "opType": "LinearOperation", "param": LINEAR}
    dump.layer("Layer_0", [{**node, "inTensors": ["a", "b"], "outTensors": ["c"]}])
    item = only(opcheck(dump.root))
    assert item.verdict is Verdict.PASS
    assert "transposeB" in item.params


def _all_reduce(root: Path, ranks: int) -> Tensor:
    tensors = [torch.full((2, 3), float(rank + 1)).half() for rank in range(2)]
    total = tensors[0] + tensors[1]
    for rank in range(ranks):
        params = {"rank": rank, "rankSize": 2, "allReduceType": "sum"}
        dump = OperatorDump(root, process=f"{rank}_{100 + rank}")
        dump.add("0_AllReduceOperation", [tensors[rank]], [total], params)
    return total


def test_a_collective_is_checked_with_the_dumps_of_all_ranks(tmp_path: Path) -> None:
    root = tmp_path / "ait_dump"
    _all_reduce(root, 2)
    assert opcheck(root).counts[Verdict.PASS] == 2
    one = opcheck(root / "tensors" / "1_101" / "0")  # the other rank's dump lies beside it
    assert only(one).verdict is Verdict.PASS
    OperatorDump(root, process="1_101").add(
        "0_AllReduceOperation",
        [torch.zeros(2, 3).half()],
        [torch.full((2, 3), 3.0).half()],
        {"rank": 1, "rankSize": 2, "allReduceType": "sum"},
    )
    assert opcheck(root).counts[Verdict.FAIL] == 2


def test_a_collective_without_a_rank_is_skipped_and_the_rank_named(tmp_path: Path) -> None:
    _all_reduce(tmp_path / "ait_dump", 1)
    item = only(opcheck(tmp_path / "ait_dump"))
    assert item.verdict is Verdict.SKIPPED
    assert "none of rank 1" in item.reason


def test_two_dumps_of_one_rank_are_not_mixed(tmp_path: Path) -> None:
    root = tmp_path / "ait_dump"
    _all_reduce(root, 2)
    params = {"rank": 1, "rankSize": 2, "allReduceType": "sum"}
    tensor = torch.full((2, 3), 2.0).half()
    again = OperatorDump(root, process="1_999")
    again.add("0_AllReduceOperation", [tensor], [tensor], params)
    items = opcheck(root).items
    assert {item.verdict for item in items} == {Verdict.SKIPPED}
    assert "are both rank 1 of the group" in items[0].reason


def test_results_do_not_depend_on_the_number_of_threads(dump: OperatorDump) -> None:
    x, weight, right = product()
    for number in range(12):
        dump.add(f"{number}_LinearOperation", [x, weight], [right * (1 + number % 3)], LINEAR)
    one, four = opcheck(dump.root, jobs=1), opcheck(dump.root, jobs=4)
    assert one.items == four.items
    assert [item.op_id for item in one.items] == [str(number) for number in range(12)]


def test_failures_are_handed_out_with_their_tensors(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight], [right], LINEAR)
    dump.add("1_LinearOperation", [x, weight], [right * 2], LINEAR)
    seen: list[tuple[str, Tensor]] = []
    keep: Callable[..., None] = lambda target, inputs, judged: seen.append(  # noqa: E731
        (target.op_id, judged.output.mine)
    )
    opcheck(dump.root, on_failure=keep)
    assert [op_id for op_id, _ in seen] == ["1"]
    assert torch.equal(seen[0][1], right * 2)


def test_a_repro_that_cannot_be_written_is_told_and_no_verdict(dump: OperatorDump) -> None:
    x, weight, right = product()
    dump.add("0_LinearOperation", [x, weight], [right * 2], LINEAR)

    def full(*_: Any) -> None:
        raise UsageError("the disk is full")

    with pytest.raises(UsageError, match="the disk is full"):
        opcheck(dump.root, on_failure=full)


def test_unknown_names_are_told_before_anything_is_computed(dump: OperatorDump) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'classic'"):
        opcheck(dump.root, standard="clasic")
    with pytest.raises(UsageError, match="known: abs, cos_sim, kl"):
        opcheck(dump.root, metrics=("cosine",))


def test_a_dump_of_modules_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "torch_dump" / "0_1" / "0" / "root.fc"
    folder.mkdir(parents=True)
    torch.save(torch.ones(2), folder / "output.pth")
    with pytest.raises((UsageError, FormatError)):
        opcheck(tmp_path)


def test_memory_of_another_input_in_place_is_no_cache_write(dump: OperatorDump) -> None:
    inputs, outputs = _cache()
    dump.add("0_Layer/0_ReshapeAndCacheOperation", inputs, outputs, {})
    node = {"opName": "ReshapeAndCacheOperation_0_0", "opType": "ReshapeAndCacheOperation"}
    names = {"inTensors": ["k", "v", "kc", "vc", "slots"], "param": None}
    dump.layer("Layer_0", [{**node, **names, "outTensors": ["kc", "vc"]}])
    assert {item.verdict for item in opcheck(dump.root).items} == {Verdict.PASS}
    dump.layer("Layer_0", [{**node, **names, "outTensors": ["k", "vc"]}])
    assert "works in place" in only(opcheck(dump.root)).reason


def test_a_graph_without_its_operators_is_not_checked(dump: OperatorDump) -> None:
    x, _, right = product()
    dump.add("0_Layer", [x], [right])
    node = {"opName": "LinearOperation_0_0", "opType": "LinearOperation", "param": LINEAR}
    dump.layer("Layer_0", [{**node, "inTensors": ["a", "b"], "outTensors": ["c"]}])
    item = only(opcheck(dump.root))
    assert item.verdict is Verdict.SKIPPED
    assert "-child true" in item.reason


def test_an_empty_output_that_is_only_described_passes(
    dump: OperatorDump, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = GoldenOp(
        "NoneOperation",
        lambda inputs, params, arithmetic: Result((torch.empty(0, 3).half(),)),
        lambda descs, params: (TensorDesc(DType.FLOAT16, (0, 3)),),
    )
    monkeypatch.setitem(golden_ops._entries, "NoneOperation", none)
    for path, shape in (("0_NoneOperation", (0, 3)), ("1_NoneOperation", (2, 3))):
        folder = dump.add(path, [torch.ones(2, 3)], [])
        file = folder / "after" / "outtensor0.bin"
        write_tensor(file, None, TensorDesc(DType.FLOAT16, shape))
    empty, described = opcheck(dump.root).items
    assert empty.verdict is Verdict.PASS
    assert described.verdict is Verdict.SKIPPED
    assert "was only described" in described.reason


def test_a_weight_cast_to_blocks_in_place_is_read_as_its_matrix(dump: OperatorDump) -> None:
    x, weight, right = product()
    folder = dump.add("0_LinearOperation", [x, None], [right], LINEAR)
    blocks = nd_to_nz(weight.numpy(), 16)
    file = folder / "after" / "intensor1.bin"
    write_tensor(file, blocks.reshape(64, 16), TensorDesc(DType.FLOAT16, (64, 16), 29))
    assert only(opcheck(dump.root)).verdict is Verdict.PASS
