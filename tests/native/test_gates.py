"""The answers of every gate, against the tables of the protocol."""

from __future__ import annotations

import pytest
from native_host import Host, call

pytestmark = pytest.mark.native

ANY = "AnyOperation"
# types, ids, operation names, child, [(ids, type, answer)]
NEED = [
    ("tensor", None, None, 1, [("0", "DecoderLayer", 1)]),
    ("model|layer", None, None, 1, [("0", "DecoderLayer", 0)]),
    ("tensor|model", None, None, 0, [("3_1_0", "LinearOperation", 1)]),
    ("stats", None, None, 0, [("3_1_0", "LinearOperation", 1)]),
    ("tensor2", None, None, 1, [("0", ANY, 0)]),
    ("tensor", "2", None, 1, [("2", ANY, 1), ("2_0", ANY, 1), ("2_0_5_1", ANY, 1)]),
    ("tensor", "2", None, 1, [("20", ANY, 0), ("12", ANY, 0), ("1_2", ANY, 0)]),
    ("tensor", "2", None, 0, [("2", ANY, 1), ("2_0", ANY, 0)]),
    (
        "tensor",
        "3_1",
        None,
        1,
        [("3", ANY, 0), ("3_1", ANY, 1), ("3_1_0", ANY, 1), ("3_10", ANY, 0)],
    ),
    ("tensor", "3_1", None, 0, [("3_1", ANY, 1), ("3_1_0", ANY, 0)]),
    ("tensor", "2,3_1", None, 1, [("2_7", ANY, 1), ("3_0", ANY, 0)]),
    ("tensor", "2, 3_1", None, 1, [("3_1", ANY, 1)]),
    ("tensor", None, "self", 1, [("5", "SelfAttentionOperation", 1), ("5", "LinearOperation", 0)]),
    ("tensor", None, "Self", 1, [("5", "SelfAttentionOperation", 1)]),
    ("tensor", None, "attention", 1, [("5", "SelfAttentionOperation", 0)]),
    ("tensor", None, "linear,self", 1, [("5_1", "LinearOperation", 1)]),
    ("tensor", None, "decoder", 1, [("0", "DecoderLayer", 1), ("0_0", "LinearOperation", 0)]),
    (
        "tensor",
        "7",
        "linear",
        1,
        [
            ("0_1", "LinearOperation", 1),
            ("7_1", "ElewiseOperation", 1),
            ("0_1", "ElewiseOperation", 0),
        ],
    ),
    ("tensor", "2,", None, 1, [("3", ANY, 0)]),
    ("tensor", ",2", None, 1, [("0", ANY, 0), ("2", ANY, 1)]),
    ("tensor", "", None, 1, [("0", ANY, 1)]),
    ("tensor", None, ",linear", 1, [("0", "ElewiseOperation", 0)]),
]


@pytest.mark.parametrize(("types", "ids", "names", "child", "questions"), NEED)
def test_operations_are_selected_by_ids_and_names(
    host: Host,
    types: str,
    ids: str | None,
    names: str | None,
    child: int,
    questions: list[tuple[str, str, int]],
) -> None:
    run = host.script(
        *(call("need", ids_asked, op_type) for ids_asked, op_type, _ in questions),
        ATB_DUMP_TYPE=types,
        ATB_SAVE_TENSOR_IDS=ids,
        ATB_SAVE_TENSOR_RUNNER=names,
        ATB_SAVE_CHILD=str(child),
    )
    assert run.answers == [answer == 1 for _, _, answer in questions]


RANGES = [
    ("0,0", {0: 1, 1: 0}),
    ("1,3", {0: 0, 1: 1, 3: 1, 4: 0}),
    ("3,5,7,7", {5: 1, 6: 0, 7: 1}),
    ("0,0,2,2,4,4", {2: 1, 3: 0}),
    ("5", {5: 0}),
    ("1,3,5", {2: 1, 5: 0}),
    ("5,3", {4: 0}),
    (None, {0: 0}),
    ("", {0: 0}),
    ("all", {0: 1, 10**18: 1}),
    ("4294967296,4294967297", {0: 0, 4294967297: 1}),
    ("x,3,4,5", {2: 0, 4: 1}),
]


@pytest.mark.parametrize(("given", "answers"), RANGES)
def test_steps_are_selected_by_pairs(
    host: Host, given: str | None, answers: dict[int, int]
) -> None:
    run = host.script(*(call("range", n) for n in answers), ATB_SAVE_TENSOR_RANGE=given)
    assert run.answers == [answer == 1 for answer in answers.values()]


@pytest.mark.parametrize("given", ["1,3,5", "x,3"])
def test_a_range_that_is_not_made_of_pairs_is_said(host1: Host, given: str) -> None:
    run = host1.script(call("range", 1), ATB_SAVE_TENSOR_RANGE=given)
    assert run.stderr.count("[warning]") == 1


@pytest.mark.parametrize(
    ("time", "before", "after"), [("0", 1, 0), ("1", 0, 1), ("2", 1, 1), (None, 0, 1)]
)
def test_time_opens_the_phases(host: Host, time: str | None, before: int, after: int) -> None:
    run = host.script(call("before"), call("after"), ATB_SAVE_TENSOR_TIME=time)
    assert run.answers == [before == 1, after == 1]


@pytest.mark.parametrize("time", ["0", "1", "2"])
@pytest.mark.parametrize("part", ["0", "1", "2"])
def test_time_and_part_decide_which_files_are_written(host1: Host, time: str, part: str) -> None:
    run = host1.trace(
        "generation=91",
        ATB_SAVE_TENSOR_TIME=time,
        ATB_SAVE_TENSOR_PART=part,
        ATB_SAVE_TENSOR_IDS="0_2",
        ATB_SAVE_CHILD="0",
    )
    phases = {"0": ["before"], "1": ["after"], "2": ["before", "after"]}[time]
    inputs = ["intensor0_x", "intensor1_y"]
    files = {"0": inputs, "1": ["outtensor0_output"], "2": [*inputs, "outtensor0_output"]}[part]
    found = [f"{path.parent.name}/{path.stem}" for path in run.bins()]
    assert sorted(found) == sorted(f"{phase}/{file}" for phase in phases for file in files)


def test_inputs_before_and_outputs_after_can_be_asked_for(host1: Host) -> None:
    run = host1.trace(
        ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER="1", ATB_SAVE_TENSOR_IDS="0_2", ATB_SAVE_CHILD="0"
    )
    found = [f"{path.parent.name}/{path.stem}" for path in run.bins()]
    assert sorted(found) == ["after/outtensor0", "before/intensor0", "before/intensor1"]


GATES = ["desc", "data", "isop", "iskernel", "isstatistic", "isgraph", "isparam"]


@pytest.mark.parametrize(
    ("types", "open_gates"),
    [
        ("tensor", {"desc", "data", "isparam"}),
        ("stats", {"desc", "data", "isparam"}),
        ("op", {"desc", "isop", "isparam"}),
        ("kernel", {"desc", "iskernel", "isparam"}),
        ("cpu_profiling", {"isstatistic", "isparam"}),
        ("layer", {"isgraph", "isparam"}),
        ("model", {"isgraph", "isparam"}),
        ("layer|model", {"isgraph", "isparam"}),
        ("onnx", {"isparam"}),
        ("", {"isparam"}),
    ],
)
def test_types_open_their_reports(host: Host, types: str, open_gates: set[str]) -> None:
    run = host.script(*GATES, ATB_DUMP_TYPE=types)
    assert {gate for gate, answer in zip(GATES, run.answers, strict=True) if answer} == open_gates


@pytest.mark.parametrize(("value", "answer"), [("1", True), ("2", False), (None, False)])
def test_data_are_announced_only_when_they_are_saved(
    host: Host, value: str | None, answer: bool
) -> None:
    assert host.script("data", ATB_SAVE_TENSOR=value).answers == [answer]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ATB_SAVE_TENSOR": "1", "ATB_DUMP_TYPE": None}, "ATB_DUMP_TYPE is not; set"),
        ({"ATB_DUMP_TYPE": "tensr"}, "ATB_DUMP_TYPE='tensr' names no type"),
        ({"ATB_SAVE_TENSOR": "1", "ATB_SAVE_TENSOR_RANGE": None}, "so that no tensor is saved"),
    ],
)
def test_variables_set_by_hand_that_select_nothing_are_told(
    host: Host, settings: dict[str, str | None], said: str
) -> None:
    assert said in host.script("data", **settings).stderr


@pytest.mark.parametrize(("value", "answer"), [("1", True), ("0", False), (None, False)])
def test_tiling_is_saved_on_request(host: Host, value: str | None, answer: bool) -> None:
    assert host.script("istiling", ATB_SAVE_TILING=value).answers == [answer]


@pytest.mark.parametrize(
    ("value", "check"), [("1", 1), ("123", 1), ("231", 1), ("23", 0), ("", 0), (None, 0)]
)
def test_overflow_is_checked_when_its_code_is_given(
    host: Host, value: str | None, check: int
) -> None:
    run = host.script("isoverflow", ATB_DUMP_TYPE=None, ATB_CHECK_TYPE=value)
    assert run.answers == [check == 1]


@pytest.mark.parametrize(
    ("value", "stop"), [("1", 1), ("0", 0), ("2", 0), ("11", 0), ("", 0), (None, 0)]
)
def test_only_a_plain_1_stops_at_an_overflow(host: Host, value: str | None, stop: int) -> None:
    run = host.script("isstop", ATB_DUMP_TYPE=None, ATB_CHECK_TYPE="1", ATB_EXIT=value)
    assert run.answers == [stop == 1]


@pytest.mark.parametrize(
    ("device", "path", "answer"),
    [
        ("0", "0_4242/0/0_Op", 1),
        ("1", "0_4242/0/0_Op", 0),
        (None, "0_4242/0/0_Op", 1),
        ("1", "10_4242/0/0_Op", 0),
        ("0,1", "1_4242/0/0_Op", 1),
        ("0", "-1_4242/0/0_Op", 0),
        ("-1", "-1_4242/0/0_Op", 1),
    ],
)
def test_devices_are_told_apart_by_the_path(
    host: Host, device: str | None, path: str, answer: int
) -> None:
    assert host.script(call("dir", path), ATB_DEVICE_ID=device).answers == [answer == 1]


def test_each_model_is_asked_for_once(host: Host) -> None:
    run = host.script(
        call("ismodel", "A"),
        call("model", "A", '{"modelName":"A","nodes":[]}'),
        call("ismodel", "A"),
        call("ismodel", "B"),
        ATB_DUMP_TYPE="model",
    )
    assert run.answers == [True, False, True]
