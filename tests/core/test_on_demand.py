"""Names that packages load when they are first used."""

from __future__ import annotations

from importlib import import_module

import pytest

import ait_llm


@pytest.mark.parametrize("package", ["compare", "dumps", "topology"])
def test_each_public_name_of_a_package_can_be_loaded(package: str) -> None:
    module = import_module(f"ait_llm.{package}")
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not module


def test_each_public_name_of_the_root_can_be_loaded() -> None:
    assert {"compare", "open_dump", "register_hook"} <= ait_llm._EXPORTS.keys()
    assert all(callable(getattr(ait_llm, name)) for name in ait_llm._EXPORTS)


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        import_module("ait_llm.dumps").Nothing  # noqa: B018  asking is the test
