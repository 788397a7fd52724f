"""Parameter classes: their JSON text against recorded text, and their checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.hostatb.params import FieldTypeError, Param, Struct, UnknownFieldError, param_types
from ait_llm.hostatb.params.base import camel_case
from ait_llm.hostatb.params.collective import AllReduceParam
from ait_llm.hostatb.params.elementwise import ElewiseParam
from ait_llm.hostatb.params.json_text import dump_json
from ait_llm.hostatb.params.linear import LinearParam
from ait_llm.hostatb.params.norm import RmsNormParam

RECORDED: dict[str, dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "atb" / "op_params.json").read_text()
)
CASES = [(name, variant) for name, rows in RECORDED.items() for variant in rows]


def from_entries(param: Struct, entries: dict[str, Any]) -> None:
    """Set every field of ``param`` from printed JSON, by its JSON key."""
    moe = {"local_expert_nums": "localExpertNums", "epSize": "epSize", "tpSize": "tpSize"}
    for item in param.__dataclass_fields__.values():  # type: ignore[attr-defined]
        key = item.metadata.get("key") or camel_case(item.name)
        value = getattr(param, item.name)
        if item.name == "moe_info":
            from_entries(value, {moe[name]: entries[name] for name in moe})
        elif key in entries and isinstance(value, Struct):
            from_entries(value, entries[key])
        elif key in entries:
            setattr(param, item.name, entries[key])


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_json_equals_the_recorded_text(name: str, variant: str) -> None:
    recorded = RECORDED[name][variant]["json"]
    param = param_types.get(name)()
    if recorded == "null":
        assert not param.prints_json
        return
    from_entries(param, json.loads(recorded))
    assert param.prints_json
    assert param.to_json() == recorded


@pytest.mark.parametrize("name", [name for name in RECORDED if "default" in RECORDED[name]])
def test_defaults_equal_the_recorded_defaults(name: str) -> None:
    param = param_types.get(name)()
    assert (param.to_json() if param.prints_json else "null") == RECORDED[name]["default"]["json"]


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_operation_type_equals_the_recorded_one(name: str, variant: str) -> None:
    assert RECORDED[name][variant].get("operation") in (None, param_types.get(name).operation)


def test_unknown_field_names_the_nearest() -> None:
    param = LinearParam()
    with pytest.raises(UnknownFieldError, match="no field 'has_bais'; did you mean 'has_bias'"):
        param.has_bais = False  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="did you mean 'transpose_a'"):
        LinearParam(transposea=True)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="no field 'epsilon'"):
        _ = param.epsilon  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("has_bias", "yes", "must be True or False, got str 'yes'"),
        ("out_data_type", 99, "99 is no AclDataType; known: ACL_DT_UNDEFINED"),
        ("out_data_type", ElewiseParam.ElewiseType.ELEWISE_CAST, "must be a member of AclDataType"),
        ("matmul_type", 1.0, "must be a member of LinearParam.MatmulType"),
    ],
)
def test_wrong_value_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(FieldTypeError, match=message):
        setattr(LinearParam(), field, value)


def test_number_outside_the_c_type_is_refused() -> None:
    with pytest.raises(FieldTypeError, match=r"from 0 to 4294967295 \(uint32\), got -1"):
        param_types.get("MultinomialParam")(rand_seed=-1)
    with pytest.raises(FieldTypeError, match=r"axes\[1\] must be a whole number"):
        param_types.get("SoftmaxParam")(axes=[0, 1.5])
    with pytest.raises(FieldTypeError, match="must fit a 32-bit float"):
        RmsNormParam.NormParam(epsilon=1e300)


def test_nested_struct_is_copied_on_assignment() -> None:
    norm = RmsNormParam.NormParam(epsilon=0.5)
    param = RmsNormParam(norm_param=norm)
    norm.epsilon = 0.25
    assert param.norm_param.epsilon == 0.5
    param.norm_param.epsilon = 0.125
    assert '"epsilon":0.125' in param.to_json()


def test_unprinted_field_reaches_the_golden_operator_only() -> None:
    param = param_types.get("PagedAttentionParam")(scale_type=1)
    assert "scaleType" not in param.to_json()
    assert param.entries(printed_only=False)["scaleType"] == 1


def test_repr_is_that_of_torch_atb() -> None:
    assert repr(param_types.get("ConcatParam")(concat_dim=1)) == 'ConcatParam: {"concatDim":1}'


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float32_survives_json(value: float) -> None:
    text = param_types.get("ActivationParam")(scale=value).to_json()
    assert json.loads(text)["scale"] == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e15, "1e+15"),
        (-1.5e15, "-1.5e+15"),
        (999999999999999.0, "999999999999999.0"),
        (1e16, "1e+16"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (float("inf"), "null"),
    ],
)
def test_exponents_are_those_of_nlohmann_json(value: float, text: str) -> None:
    assert dump_json(value) == text


def test_keys_are_in_byte_order() -> None:
    assert dump_json({"b": 1, "B": [True, None], "a": "x"}) == '{"B":[true,null],"a":"x","b":1}'


def test_parameter_classes_have_a_docstring() -> None:
    assert all(param_types.get(name).__doc__ for name in param_types)
    assert all(issubclass(param_types.get(name), Param) for name in param_types)


def test_no_communicator_is_none_and_printed_as_a_number() -> None:
    param = AllReduceParam()
    assert param.hccl_comm is None
    assert json.loads(param.to_json())["hcclComm"] == 0
    param.hccl_comm = 1 << 63
    assert json.loads(param.to_json())["hcclComm"] == 1 << 63
    param.hccl_comm = 0
    assert param.hccl_comm is None
    with pytest.raises(FieldTypeError, match=r"from 0 to \d+"):
        param.hccl_comm = 1 << 64
    param.hccl_comm = 2
    param.hccl_comm = None
    assert param.to_json() == AllReduceParam(hccl_comm=None).to_json() == AllReduceParam().to_json()
