"""Ledgers: what they say, what may be wrong with them, and what follows for the dump."""

from typing import Any

import pytest
from dump_builder import HEADER, SEAL, DumpBuilder, entry
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm import open_dump
from ait_llm.core import OpId
from ait_llm.dumps import Process, read_ledger
from ait_llm.errors import FormatError

LINEAR = "0_4242/0/0_Layer/0_LinearOperation"


def process(builder: DumpBuilder) -> Process:
    (found,) = open_dump(builder.root).processes
    return found


def test_literal_lines_of_the_contract(builder: DumpBuilder) -> None:
    path = builder.ledger(
        '{"kind":"header","schema":1,"producer":"atb_probe","version":"0.1.0","abi":1,'
        '"device":"0","pid":4242,"host":"node7","time":"2026-11-21T11:00:00Z"}\n',
        '{"kind":"op","op":"0_1_0","type":"LinearOperation",'
        '"path":"0_4242/0/0_DecoderLayer/1_Mlp/0_LinearOperation","phase":"after","step":0,'
        '"state":"saved","tensors":3,"bytes":24}\n',
        '{"kind":"seal","time":"2026-11-21T11:00:05Z","end":"exit","operations":1,"saved":1,'
        '"described":0,"empty":0,"failed":0,"dropped":0,"tensors":3,"files":4,"bytes":24,'
        '"rows":{"op":4,"kernel":4,"cpu_profiling":1}}\n',
    )
    ledger = read_ledger(path)
    assert ledger.header["host"] == "node7"
    assert ledger.seal is not None
    assert ledger.seal.end == "exit"
    assert ledger.seal.totals["files"] == 4
    assert ledger.counts == {"saved": 1}
    assert not ledger.torn
    (found,) = ledger.entries()
    assert found == ledger.last
    assert (found.op_id, found.type, found.phase) == (OpId((0, 1, 0)), "LinearOperation", "after")
    assert (found.tensors, found.bytes, found.lost, found.reason) == (3, 24, 0, "")


def test_sealed_process(builder: DumpBuilder) -> None:
    builder.operation("0_Layer/0_LinearOperation")
    builder.ledger(HEADER, entry(LINEAR), SEAL)
    found = process(builder)
    assert found.sealed
    assert (found.state, found.end) == ("sealed", "exit")
    assert found.losses == ()
    assert found.problem is None
    assert found.header["producer"] == "atb_probe"


def test_killed_process_tells_its_last_operation(builder: DumpBuilder) -> None:
    builder.operation("0_Layer/0_LinearOperation")
    builder.ledger(HEADER, entry(LINEAR))
    found = process(builder)
    assert not found.sealed
    assert (found.state, found.end) == ("unfinished", None)
    assert found.last_operation is not None
    assert str(found.last_operation.op_id) == "0_0"
    assert found.problem == (
        "process 4242 on device 0: it did not finish its capture; "
        "its last operation was LinearOperation 0_0 at step 0"
    )


@pytest.mark.parametrize(
    ("end", "number"), [("signal 9", 9), ("signal 6", 6), ("signal 15", None), ("signal x", None)]
)
def test_a_killed_program_is_a_problem_and_a_stopped_one_is_none(
    builder: DumpBuilder, end: str, number: int | None
) -> None:
    builder.operation("0_Layer/0_LinearOperation")
    builder.ledger(HEADER, entry(LINEAR), {**SEAL, "end": end})
    assert process(builder).sealed
    assert process(builder).problem == (
        None
        if number is None
        else f"process 4242 on device 0: it was killed by signal {number}, so what it had not "
        "come to is missing"
    )


def test_operations_that_only_the_seal_counts_as_given_up(builder: DumpBuilder) -> None:
    builder.operation("0_Layer/0_LinearOperation")
    given_up = entry(LINEAR.replace("0_Lin", "1_Lin"), state="dropped")
    builder.ledger(HEADER, entry(LINEAR), given_up, {**SEAL, "dropped": 8})
    problem = process(builder).problem
    assert problem is not None
    assert "the capture gave up 7 operations" in problem


def test_killed_process_without_an_operation(builder: DumpBuilder) -> None:
    builder.ledger(HEADER)
    assert process(builder).problem == (
        "process 4242 on device 0: it did not finish its capture; it recorded no operation"
    )


@pytest.mark.parametrize("torn", ['{"kind":"op","op":"0_1', "\0\0\0", '{"kind":"seal","end":"ex'])
def test_torn_last_line_is_left_out(builder: DumpBuilder, torn: str) -> None:
    ledger = read_ledger(builder.ledger(HEADER, entry(LINEAR), torn))
    assert ledger.torn
    assert ledger.seal is None
    assert ledger.counts == {"saved": 1}
    assert len(list(ledger.entries())) == 1


def test_torn_header_is_an_unfinished_process(builder: DumpBuilder) -> None:
    builder.ledger('{"kind":"head')
    assert process(builder).state == "unfinished"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "is an empty ledger"),
        ((entry(LINEAR), SEAL), "its first line is not a header"),
        ((HEADER, "{broken}\n", SEAL), "line 2 is damaged"),
        ((HEADER, "[1]\n", SEAL), "line 2 is damaged"),
        ((HEADER, "[" * 10000 + "\n", SEAL), "line 2 is damaged"),
        (({**HEADER, "schema": 2}, SEAL), "has schema 2, this version reads 1"),
        (({**HEADER, "schema": "1"}, SEAL), "line 1 has no count 'schema'"),
        ((HEADER, entry(LINEAR, state="gone"), SEAL), "line 2 has the unknown state 'gone'"),
        ((HEADER, entry(LINEAR) | {"op": "x"}, SEAL), "line 2: operation id 'x'"),
        ((HEADER, entry(LINEAR) | {"step": -1}, SEAL), "line 2 has no count 'step'"),
        ((HEADER, entry(LINEAR) | {"step": True}, SEAL), "line 2 has no count 'step'"),
        ((HEADER, entry(LINEAR) | {"path": None}, SEAL), "line 2 has no text 'path'"),
        ((HEADER, {"kind": "seal"}), "line 2 has no text 'end'"),
        ((HEADER, "x" * (2 << 20), SEAL), "line 2 is longer than"),
    ],
)
def test_damage_is_told_with_its_line(
    builder: DumpBuilder, lines: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        read_ledger(builder.ledger(*lines))


def test_lines_of_later_versions_are_skipped(builder: DumpBuilder) -> None:
    ledger = read_ledger(builder.ledger(HEADER, {"kind": "note"}, entry(LINEAR), SEAL))
    assert ledger.seal is not None
    assert len(list(ledger.entries())) == 1


def test_other_incidents_are_told(builder: DumpBuilder) -> None:
    builder.ledger(
        HEADER,
        {"kind": "removed", "time": "2026-11-21T11:00:00Z"},
        {"kind": "file", "path": "layer/4242/A_0.json", "state": "failed", "reason": "full"},
        {"kind": "lost", "lines": 7},
        SEAL,
    )
    found = process(builder)
    assert found.ledger is not None
    assert found.ledger.incidents == (
        "the output directory was removed while capturing; what it held is lost",
        "layer/4242/A_0.json could not be written: full",
        "7 lines of the ledger were lost",
    )
    assert found.problem == (
        "process 4242 on device 0: the output directory was removed while capturing; "
        "what it held is lost; and 2 more of that"
    )


def test_saved_part_of_a_failed_operation_is_expected(builder: DumpBuilder) -> None:
    builder.ledger(HEADER, entry(LINEAR, state="failed", tensors=1, lost=1, reason="full"), SEAL)
    found = [(loss.state, loss.tensors) for loss in process(builder).losses]
    assert found == [("failed", 1), ("missing", 1)]


def test_process_that_replaced_itself_continues_its_ledger(builder: DumpBuilder) -> None:
    exec_seal = {**SEAL, "end": "exec"}
    ledger = read_ledger(builder.ledger(HEADER, entry(LINEAR), exec_seal, HEADER, SEAL))
    assert ledger.seal is not None
    assert ledger.seal.end == "exit"
    unsealed = read_ledger(builder.ledger(HEADER, entry(LINEAR), HEADER, SEAL))
    assert unsealed.seal is None


def test_operation_after_the_seal_reopens_the_ledger(builder: DumpBuilder) -> None:
    assert read_ledger(builder.ledger(HEADER, SEAL, entry(LINEAR))).seal is None


def test_losses_that_the_capture_noticed(builder: DumpBuilder) -> None:
    builder.operation("0_Layer/0_LinearOperation", after=("intensor0",))
    builder.ledger(
        HEADER,
        entry(LINEAR, state="failed", tensors=1, lost=2, errno=28, reason="No space left"),
        entry("0_4242/0/1_Layer", state="dropped", tensors=0, reason="gave up"),
        SEAL,
    )
    first, second = process(builder).losses
    assert (first.state, first.op, first.tensors) == ("failed", "0_0", 2)
    assert first.reason == "No space left"
    assert (second.state, second.type, second.reason) == ("dropped", "Layer", "gave up")
    assert process(builder).problem == (
        "process 4242 on device 0: lost 2 tensors of 2 operations (such as LinearOperation 0_0 at "
        "step 0)"
    )


def test_files_that_vanished_after_the_capture(builder: DumpBuilder) -> None:
    folder = builder.operation("0_Layer/0_LinearOperation")
    builder.ledger(HEADER, entry(LINEAR), entry("0_4242/7/1_Gone"), SEAL)
    (folder / "after" / "intensor0.bin").unlink()
    first, second = process(builder).losses
    assert (first.state, first.type, first.tensors) == ("missing", "LinearOperation", 1)
    assert first.reason == "the ledger says 2 files, the folder has 1"
    assert (second.type, second.step, second.tensors) == ("Gone", 7, 2)


def test_operation_repeated_at_the_same_step_is_expected_once(builder: DumpBuilder) -> None:
    builder.operation("0_Layer/0_LinearOperation")
    builder.ledger(HEADER, entry(LINEAR), entry(LINEAR), SEAL)
    assert process(builder).losses == ()


def test_losses_of_the_part_that_was_opened(builder: DumpBuilder) -> None:
    for step in (0, 1):
        builder.operation("0_Layer", step=step)
    builder.ledger(
        HEADER, entry("0_4242/0/1_A"), entry("0_4242/1/1_B"), entry("0_4242/1/0_Layer/1_C"), SEAL
    )
    (found,) = open_dump(builder.root / "tensors/0_4242/1").processes
    assert [loss.type for loss in found.losses] == ["B", "C"]
    (found,) = open_dump(builder.root / "tensors/0_4242/1/0_Layer").processes
    assert [loss.type for loss in found.losses] == ["C"]


def test_path_in_a_ledger_is_never_followed(builder: DumpBuilder) -> None:
    builder.operation("0_Layer/0_LinearOperation")
    builder.ledger(HEADER, entry(LINEAR) | {"path": "../../../../etc"}, SEAL)
    (loss,) = process(builder).losses
    assert loss.state == "missing"


def test_process_that_left_only_a_ledger(builder: DumpBuilder) -> None:
    builder.ledger(HEADER, SEAL, process="3_77")
    found = process(builder)
    assert (found.device, found.pid, found.steps, found.sealed) == (3, 77, (), True)


def test_ledger_of_a_process_that_drives_two_devices(builder: DumpBuilder) -> None:
    for device in (0, 1):
        builder.operation("0_Layer/0_LinearOperation", process=f"{device}_4242")
    builder.ledger(
        HEADER,
        entry(LINEAR),
        entry(LINEAR.replace("0_4242", "1_4242"), tensors=3),
        entry(LINEAR.replace("0_4242", "2_4242")),
    )
    first, second = open_dump(builder.root).processes
    assert [(first.device, first.state), (second.device, second.state)] == [
        (0, "unfinished"),
        (1, "unfinished"),
    ]
    assert [loss.tensors for loss in first.losses] == [2]  # of device 2, of which nothing is left
    assert [loss.tensors for loss in second.losses] == [1]


def test_ledger_named_before_the_device_was_known(builder: DumpBuilder) -> None:
    builder.operation("0_Layer/0_LinearOperation")
    builder.ledger(HEADER, entry(LINEAR), SEAL, process="-1_4242")
    found = process(builder)
    assert (found.device, found.state, found.problem) == (0, "sealed", None)


def test_processes_of_containers_share_a_process_id(builder: DumpBuilder) -> None:
    for device in (0, 1, 2):
        builder.operation("0_Layer/0_LinearOperation", process=f"{device}_1")
    for device in (0, 1):
        path = LINEAR.replace("0_4242", f"{device}_1")
        builder.ledger(HEADER, entry(path), *[SEAL] * device, process=f"{device}_1")
    found = open_dump(builder.root).processes
    assert [each.state for each in found] == ["unfinished", "sealed", "unknown"]
    assert [each.losses for each in found] == [(), (), ()]


def test_top_level_operations_come_in_the_order_of_the_ledger(builder: DumpBuilder) -> None:
    builder.operation("0_Prefill", step=0)
    builder.operation("0_Prefill", step=1)
    builder.operation("0_Prefill/0_LinearOperation", step=0)
    builder.operation("1_Decode", step=0)
    builder.operation("2_Unknown", step=0)
    builder.ledger(
        HEADER,
        entry("0_4242/0/0_Prefill/0_LinearOperation"),
        entry("0_4242/0/0_Prefill"),
        entry("0_4242/1/0_Prefill"),
        entry("0_4242/0/1_Decode"),
        SEAL,
    )
    found = [(each.step, str(each.op_id)) for each in open_dump(builder.root).operations()]
    assert found == [(0, "0"), (0, "0_0"), (1, "0"), (0, "1"), (0, "2")]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_gives_a_format_error_or_a_ledger(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    builder = DumpBuilder(tmp_path_factory.getbasetemp() / "damaged")
    path = builder.ledger(HEADER, entry(LINEAR), SEAL)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        ledger = read_ledger(path)
    except FormatError:
        return
    assert len(list(ledger.entries())) == sum(ledger.counts.values()) <= 1
