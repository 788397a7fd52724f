"""An operator that golden has and mine lacks is told as that."""

from __future__ import annotations

from pathlib import Path

import pytest
from left_out_steps import captured

from ait_llm import compare
from ait_llm.core.comparison import OTHERS_FIT, Comparison, Report, Side, TensorRecord, Verdict
from ait_llm.report.terminal import terminal_lines


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize(
    ("left_out", "module", "lacking"),
    [
        ("scale", "root.layers.1", "`aten.mul.Tensor`"),
        ("bias", "root.layers.1", "`aten.add.Tensor`"),
        ("residual", "root.layers.1", "`aten.add.Tensor@1`"),
        ("last residual", "root.layers.1", "`aten.add.Tensor@2`"),
        ("activation", "root.layers.1", "`aten.gelu.default`"),
        ("embedding scale", "root", "`aten.mul.Tensor`"),
    ],
)
def test_an_operator_that_mine_lacks_is_named_with_its_module(
    tmp_path: Path, left_out: str, module: str, lacking: str, modules: bool
) -> None:
    golden = captured(tmp_path / "golden", "", modules=modules)
    found = compare(golden, captured(tmp_path / "mine", left_out, modules=modules), jobs=1)
    (origin,) = found.origins
    assert (found.exit_code(), origin.kind) == (1, "code between modules")
    assert origin.evidence.startswith(f"the code of `{module}` leaves out {lacking}: ")


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize(
    ("left_out", "module", "more"),
    [
        ("scale", "root.layers.1", "`aten._softmax.default` reads what `aten.mul.Tensor` makes"),
        ("bias", "root.layers.1", "`aten.add.Tensor`"),
        ("residual", "root.layers.1", "computes `aten.add.Tensor@1` as well"),
        ("last residual", "root.layers.1", "computes `aten.add.Tensor@2` as well"),
        ("activation", "root.layers.1", "computes `aten.gelu.default` as well"),
        ("embedding scale", "root", "computes `aten.mul.Tensor` as well"),
    ],
)
def test_an_operator_that_only_mine_has_is_named_with_its_module(
    tmp_path: Path, left_out: str, module: str, more: str, modules: bool
) -> None:
    golden = captured(tmp_path / "golden", left_out, modules=modules)
    found = compare(golden, captured(tmp_path / "mine", "", modules=modules), jobs=1)
    (origin,) = found.origins
    assert (found.exit_code(), origin.kind, origin.certain) == (1, "code between modules", True)
    assert origin.evidence.startswith(f"the code of `{module}`")
    assert more in origin.evidence


def test_operators_that_mine_lacks_one_after_the_other_are_named_together(tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", "", modules=True)
    (origin,) = compare(golden, captured(tmp_path / "mine", "cap", modules=True), jobs=1).origins
    assert origin.evidence.startswith(
        "the code of `root` leaves out `aten.div.Tensor` and `aten.tanh.default` and "
        "`aten.mul.Tensor@1`: it hands on what `aten.mm.default` of `root.head` makes"
    )


def test_a_pair_that_others_fit_as_well_is_not_told_as_another_choice() -> None:
    record = TensorRecord("op", "0", "aten.mul.Tensor", "outtensor0", "out", 0, "")
    doubtful = Comparison(
        record, record, Verdict.SKIPPED, f"another {OTHERS_FIT}", comparable=False
    )
    side = Side("dump", "torch")
    found = Report(side, side, "torch-torch", (Comparison(record, record, Verdict.PASS), doubtful))
    assert (found.left_out, found.doubtful) == (0, 1)
    said = " ".join("\n".join(terminal_lines(found)).split())
    assert "1 tensor that differ, and that several of the other program may answer" in said
    assert "another choice" not in said


@pytest.mark.parametrize(("strict", "title"), [(False, "PASS"), (True, "INCOMPLETE")])
def test_what_strict_counts_as_missing_is_in_the_title(strict: bool, title: str) -> None:
    record = TensorRecord("op", "0", "aten.mul.Tensor", "outtensor0", "out", 0, "")
    alone = Comparison(record, None, Verdict.SKIPPED, "no counterpart", comparable=False)
    side = Side("dump", "torch")
    found = Report(side, side, "torch-torch", (Comparison(record, record, Verdict.PASS), alone))
    assert terminal_lines(found, strict=strict)[0].startswith(f"ait llm compare: {title}")
    assert found.exit_code(strict=strict) == (3 if strict else 0)
