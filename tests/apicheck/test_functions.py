"""Names in a dump become functions only if they are listed, and what these do to arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ait_llm.dumps.api_names import ApiName
from ait_llm.errors import UsageError
from ait_llm.opcheck.api.functions import Functions, drops, is_conversion, is_in_place
from ait_llm.opcheck.api.unchecked import UncheckableError


def find(name: str, extra: Path | None = None) -> object:
    return Functions(extra).find(ApiName(name, 0, "forward"))[0]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("Functional.gelu", torch.nn.functional.gelu),
        ("Torch.matmul", torch.matmul),
        ("Torch.matrix_norm", torch.linalg.matrix_norm),
        ("Tensor.__add__", torch.Tensor.__add__),
        ("VF.lstm", torch._VF.lstm),
        ("Aten.add.Tensor", torch.ops.aten.add.Tensor),
    ],
)
def test_a_listed_name_is_found_where_its_prefix_says(name: str, function: object) -> None:
    assert find(name) == function


def test_operators_of_old_torch_are_found_under_their_present_names() -> None:
    apis = Functions()
    (divide,) = apis.find(ApiName("Tensor.__div__", 0, "forward"))
    (as_flag,) = apis.find(ApiName("Tensor.__nonzero__", 0, "forward"))
    assert float(divide(torch.tensor(3.0), 2)) == 1.5
    assert as_flag(torch.tensor(True)) is True


def test_functions_of_the_same_name_are_all_found_the_plain_one_first() -> None:
    assert Functions().find(ApiName("Torch.norm", 0, "forward")) == [torch.norm, torch.linalg.norm]


@pytest.mark.parametrize(
    "name",
    [
        *("Torch.load", "Torch.save", "Torch.from_file", "Torch.os.system", "Torch.__class__"),
        *("Tensor.__reduce_ex__", "Functional.warnings", "Aten.from_file", "os.system", "Torch"),
        *("builtins.exec", "Aten.__class__"),
    ],
)
def test_what_is_not_listed_is_never_called(name: str) -> None:
    with pytest.raises(UncheckableError, match="not in the list"):
        find(name)


def test_functions_of_other_packages_say_what_is_missing() -> None:
    with pytest.raises(UncheckableError, match="torch_npu is not installed"):
        find("NPU.npu_rms_norm")
    with pytest.raises(UncheckableError, match="need the other ranks"):
        find("Distributed.all_reduce")


@pytest.mark.parametrize("name", ["Tensor.to", "Torch.empty", "Tensor.new_empty"])
def test_what_computes_nothing_is_left_out_by_rule(name: str) -> None:
    with pytest.raises(UncheckableError, match=r"^left out: "):
        find(name)


def test_functions_of_the_users_own_are_called_if_their_list_names_them(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("colorsys: [rgb_to_hsv]\nno_such_package_here: [f]\n")
    import colorsys

    assert find("colorsys.rgb_to_hsv", path) is colorsys.rgb_to_hsv
    with pytest.raises(UncheckableError, match="not in the list"):
        find("colorsys.hsv_to_rgb", path)
    with pytest.raises(UsageError, match="cannot be imported"):
        find("no_such_package_here.f", path)


def test_functions_that_write_to_their_first_argument_are_known() -> None:
    assert all(map(is_in_place, ("add_", "__iadd__", "__setitem__", "relu_", "__ixor__")))
    assert not any(map(is_in_place, ("add", "__add__", "__invert__", "__getitem__")))


def test_conversions_are_known() -> None:
    assert all(map(is_conversion, ("float", "half", "bfloat16", "type_as", "int", "double")))
    assert not is_conversion("floor")


def test_a_dropout_drops_unless_it_is_told_not_to() -> None:
    assert drops("dropout", [None], {})
    assert drops("dropout", [None, 0.1, True], {})
    assert not drops("dropout", [None, 0.1, False], {})
    assert not drops("dropout", [None], {"p": 0.0})
    assert not drops("dropout", [None], {"training": False})
    assert not drops("alpha_dropout", [None, 0.5], {})  # its training is False by default
    assert not drops("add", [1, 2], {})


@pytest.mark.parametrize(
    ("api", "args", "kwargs"),
    [
        ("bernoulli", [None], {}),
        ("rrelu", [None, 0.1, 0.3, True], {}),
        ("scaled_dot_product_attention", [None, None, None, None, 0.1], {}),
        ("scaled_dot_product_attention", [None, None, None], {"dropout_p": 0.1}),
        ("npu_fusion_attention", [], {"keep_prob": 0.9}),
        ("multi_head_attention_forward", [None] * 10 + [0.1], {}),
        ("lstm", [None, [], [], True, 2, 0.1, True, False, True], {}),
        ("gru", [None, None, None, [], True, 2, 0.1, True, False], {}),  # packed
    ],
)
def test_other_random_functions_cannot_be_checked(
    api: str, args: list[object], kwargs: dict[str, object]
) -> None:
    with pytest.raises(UncheckableError, match="random"):
        drops(api, args, kwargs)
    assert not drops("scaled_dot_product_attention", [None, None, None], {"dropout_p": 0.0})
    assert not drops("multi_head_attention_forward", [None] * 10 + [0.1], {"training": False})
    assert not drops("lstm", [None, [], [], True, 1, 0.1, True, False, True], {})  # one layer
    assert not drops("lstm", [None, [], [], True, 2, 0.1, False, False, True], {})
