"""Names of fused operators are cut into the names of the graph's operators."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.program.ge.names import Part, Tiler, escape, is_inserted


def parts(name: str, *known: str, others: tuple[str, ...] = ()) -> list[list[str]]:
    return [[part.name for part in each] for each in Tiler(known, others).readings(name)]


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("MulsCast_10", ("Mul", "Muls", "Cast_1", "Cast_10"), ["Muls", "Cast_10"]),
        ("SwishMul_8Cast_17", ("Swish", "Mul", "Mul_8", "Cast_17"), ["Swish", "Mul_8", "Cast_17"]),
        ("Mul_3trans_Cast_10", ("Mul_3",), ["Mul_3", "trans_Cast_10"]),
        ("Add_1Add_11", ("Add", "Add_1", "Add_11"), ["Add_1", "Add_11"]),
    ],
)
def test_the_longest_parts_that_cover_the_whole_name(
    name: str, known: tuple[str, ...], expected: list[str]
) -> None:
    assert parts(name, *known)[0] == expected


def test_a_name_of_the_graph_is_not_cut() -> None:
    assert parts("MulCast", "Mul", "Cast", "MulCast") == [["MulCast"]]


def test_every_way_to_read_an_ambiguous_name_is_told() -> None:
    assert parts("A_1B_2", "A_1", "B_2", "A_", "1B_2") == [["A_1", "B_2"], ["A_", "1B_2"]]


def test_an_unknown_name_has_no_reading() -> None:
    assert parts("Mul_3Foo", "Mul_3", "Add") == []


def test_an_inserted_operator_is_marked() -> None:
    [reading] = Tiler(["Mul_3"]).readings("Mul_3trans_Cast_10")
    assert reading == (Part("Mul_3"), Part("trans_Cast_10", inserted=True))


def test_what_other_files_are_called_is_known_but_not_the_name_itself() -> None:
    assert parts("Mul_3Odd", "Mul_3", others=("Odd", "Mul_3Odd")) == [["Mul_3", "Odd"]]


def test_readings_of_the_graph_come_before_those_with_inserted_operators() -> None:
    assert parts("AbCd", "A", "bCd", others=("Ab", "Cd"))[0] == ["A", "bCd"]


def test_separators_become_underscores() -> None:
    assert escape("model/layers.0 add\\x") == "model_layers_0_add_x"


@pytest.mark.parametrize(("name", "inserted"), [("trans_TransData_14", True), ("Cast_1", False)])
def test_names_of_inserted_operators(name: str, inserted: bool) -> None:
    assert is_inserted(name) is inserted


def test_a_name_of_many_dead_ends_is_decided_at_once() -> None:
    # a, aa, aaa, ... tile any row of a's, but nothing tiles the end: exponential without a memory
    known = ["a" * length for length in range(1, 9)]
    assert parts("a" * 400 + "b", *known) == []


def test_readings_are_limited() -> None:
    assert len(parts("a" * 60, "a", "aa")) == 8


_TYPES = st.sampled_from(["Mul", "Muls", "Cast", "Add", "Swish", "Sub", "S", "Ad", "d"])
_NAMES = st.lists(
    st.builds(lambda kind, k: f"{kind}_{k}" if k else kind, _TYPES, st.integers(0, 120)),
    min_size=1,
    max_size=30,
    unique=True,
)


@given(_NAMES, st.data())
def test_every_reading_joins_to_the_name_and_the_true_one_is_among_the_first(
    known: list[str], data: st.DataObject
) -> None:
    chain = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    name = "".join(chain)
    readings = parts(name, *known)
    assert all("".join(each) == name for each in readings)
    if name in known:
        assert readings == [[name]]
    else:
        assert chain in readings or len(readings) == 8
