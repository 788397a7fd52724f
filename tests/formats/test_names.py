"""Format codes and names."""

import pytest

from ait_llm.formats import format_code, format_name


@pytest.mark.parametrize(("code", "name"), [(-1, "undefined"), (2, "nd"), (29, "fractal_nz")])
def test_code_and_name_belong_together(code: int, name: str) -> None:
    assert format_name(code) == name
    assert format_code(name) == code


def test_code_without_a_name() -> None:
    assert format_name(7) == "undefined(7)"


def test_acl_spelling() -> None:
    assert format_code("ACL_FORMAT_FRACTAL_NZ") == 29


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="unknown format name 'xyz'"):
        format_code("xyz")
