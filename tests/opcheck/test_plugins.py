"""Golden operators that other packages bring along."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ait_llm.errors import UsageError
from ait_llm.opcheck import check
from ait_llm.opcheck.golden import golden_ops
from ait_llm.opcheck.plugins import load_entry_points

MODULE = """
from ait_llm.opcheck import Result, golden_op

@golden_op("company::negate", infer_shape=lambda descs, params: (descs[0],))
def negate(inputs, params, arithmetic):
    return Result((-inputs[0],))
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, and the state before and after."""
    folder = tmp_path / "company_golden-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: company-golden\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[ait_llm.golden]\ncompany = company_golden\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_entry_points.cache_clear()
    yield tmp_path
    golden_ops._entries.pop("company::negate", None)
    sys.modules.pop("company_golden", None)
    load_entry_points.cache_clear()


def test_an_installed_package_registers_its_operators(site: Path) -> None:
    (site / "company_golden.py").write_text(MODULE)
    x = torch.ones(3)
    assert check("company::negate", [x], outputs=-x)
    assert not check("company::negate", [x], outputs=x)


def test_a_package_that_cannot_be_loaded_is_named(site: Path) -> None:
    (site / "company_golden.py").write_text("raise RuntimeError('its licence has expired')\n")
    with pytest.raises(UsageError, match=r"'company' \(company_golden\) cannot be loaded.*licence"):
        check("LinearOperation", [torch.ones(3)], outputs=torch.ones(3))
