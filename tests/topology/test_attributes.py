from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.topology.attributes import POINTER_MARK, Attribute, flatten_param


def leaves(value: Any, name: str = "") -> dict[str, Any]:
    """An independent flattening by recursion."""
    if isinstance(value, dict) and value:
        found: dict[str, Any] = {}
        for key, inner in value.items():
            found.update(leaves(inner, f"{name}.{key}" if name else key))
        return found
    return {name: value}


def restored(value: Attribute, like: Any) -> Any:
    """The JSON value that an attribute stands for, given the kind it had."""
    if isinstance(like, str) or not isinstance(value, str):
        return value
    return json.loads(value)


def test_every_leaf_of_every_recorded_parameter_is_recoverable(data: Path) -> None:
    recorded = json.loads((data / "op-params.json").read_text())
    params = [param for variants in recorded.values() for param in variants.values()]
    assert len(params) == 223
    pointers = 0
    for param in params:
        attributes = flatten_param(param)
        expected = leaves(param) if param else {}
        assert attributes.keys() == expected.keys()
        for name, value in expected.items():
            if attributes[name] == POINTER_MARK:
                pointers += 1
            else:
                assert restored(attributes[name], value) == value, name
    assert pointers == 1


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        (False, 0),
        (True, 1),
        (0, 0),
        (0.0, 0.0),
        ("", ""),
        (None, "null"),
        (2147483647, 2147483647),
        (2**63, "9223372036854775808"),
        (1e300, "1e+300"),
        ([], "[]"),
        ({}, "{}"),
        ([1, 2], [1, 2]),
        ([0.5], [0.5]),
        (["a", "b"], ["a", "b"]),
        ([1, 0.5], "[1,0.5]"),
        ([True], "[true]"),
        ([{"a": 1}], '[{"a":1}]'),
        ("BNSD", "BNSD"),
    ],
)
def test_each_kind_of_value_has_one_attribute_form(value: Any, attribute: Attribute) -> None:
    result = flatten_param({"x": value})["x"]
    assert result == attribute
    assert type(result) is type(attribute)


def test_objects_become_dotted_names_at_any_depth() -> None:
    assert flatten_param({"a": {"b": {"c": {"d": 1}}}, "e": 2}) == {"a.b.c.d": 1, "e": 2}


def test_not_a_number_stays_a_float() -> None:
    value = flatten_param({"x": math.nan})["x"]
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize("param", [None, "", {}])
def test_absent_parameters_give_no_attributes(param: Any) -> None:
    assert flatten_param(param) == {}


@pytest.mark.parametrize(("param", "value"), [("text", "text"), ([1], [1]), (3, 3)])
def test_a_parameter_that_is_no_object_is_called_param(param: Any, value: Attribute) -> None:
    assert flatten_param(param) == {"param": value}


def test_names_that_clash_after_flattening_stay_apart() -> None:
    assert flatten_param({"a.b": 1, "a": {"b": 2}, "": 3}) == {"a.b": 1, "a.b__2": 2, "_": 3}


def test_addresses_are_the_same_in_every_run() -> None:
    assert flatten_param({"hcclComm": 123456789, "x": {"event": 5}}) == {
        "hcclComm": POINTER_MARK,
        "x.event": POINTER_MARK,
    }
    assert flatten_param({"hcclComm": 0}) == {"hcclComm": 0}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_any_json_value_gives_one_typed_attribute_per_leaf(param: Any) -> None:
    def count(value: Any) -> int:
        if isinstance(value, dict) and value:
            return sum(map(count, value.values()))
        return 1

    attributes = flatten_param(param)
    assert len(attributes) == (0 if param in (None, "", {}) else count(param))
    for name, value in attributes.items():
        assert name
        items = value if isinstance(value, list) else [value]
        assert items
        assert len({type(item) for item in items}) == 1
        assert type(items[0]) in (int, float, str)
