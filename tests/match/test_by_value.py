"""The last resort: values."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_runs import array_tensor, operation, run

from ait_llm.match.by_value import fingerprint
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.views import apply

OPTIONS = MatchOptions(by_value=True)
GENERATOR = np.random.default_rng(0)


def _array(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def _by_value(golden: list[np.ndarray], mine: list[np.ndarray]) -> list[Match]:
    """Outputs of operations of unrelated types on both sides."""
    rows = [
        run("atb", [operation(f"{side}{i}", (i,), [], [a]) for i, a in enumerate(arrays)])
        for side, arrays in (("Golden", golden), ("My", mine))
    ]
    found = match_runs(rows[0], rows[1], OPTIONS)
    return [each for each in found if isinstance(each, Match)]


@settings(max_examples=20)
@given(st.permutations([0, 1, 2]), st.integers(0, 9))
def test_a_fingerprint_does_not_depend_on_order_and_layout(axes: list[int], seed: int) -> None:
    array = np.random.default_rng(seed).standard_normal((3, 4, 5))
    turned = np.ascontiguousarray(array.transpose(axes))
    prints = [fingerprint(array_tensor("out", 0, each)) for each in (array, turned)]
    assert prints[0] is not None
    assert prints[1] is not None
    np.testing.assert_allclose(prints[0], prints[1], rtol=1e-12)


def test_constant_and_not_finite_tensors_have_no_fingerprint() -> None:
    assert fingerprint(array_tensor("out", 0, np.ones((8, 8)))) is None
    assert fingerprint(array_tensor("out", 0, np.full((8, 8), np.nan))) is None


def test_a_transposed_rounded_tensor_is_found_with_its_view() -> None:
    wanted, other = _array(8, 16), _array(8, 16)
    (match,) = _by_value([other, wanted], [wanted.T.astype(np.float16)])
    assert (match.golden.record.op, match.rule, match.confidence) == ("Golden1_1", "by_value", 0.5)
    np.testing.assert_allclose(
        apply(match.mine.tensor.nd(), match.mine.views), wanted, rtol=1e-3, atol=1e-3
    )


def test_a_value_with_two_near_candidates_is_not_paired() -> None:
    wanted = _array(8, 16)
    assert _by_value([wanted, wanted * 1.001], [wanted * 1.0005]) == []


def test_a_wrong_value_is_not_paired() -> None:
    wanted = _array(8, 16)
    assert _by_value([wanted], [wanted * 1.2]) == []


def test_the_same_elements_in_an_order_that_no_layout_explains_are_not_paired() -> None:
    wanted = _array(8, 16)
    shuffled = GENERATOR.permutation(wanted.reshape(-1)).reshape(8, 16)
    assert _by_value([wanted], [shuffled]) == []


def test_what_a_structural_matcher_paired_stays_paired() -> None:
    """My first output is wrong and looks like another golden one; the places decide."""
    first, second = _array(8, 16), _array(8, 16)
    golden = run("atb", [operation("A", (0,), [], [first]), operation("B", (1,), [], [second])])
    mine = run("atb", [operation("A", (0,), [], [second]), operation("B", (1,), [], [second])])
    found = match_runs(golden, mine, OPTIONS)
    pairs = {(m.golden.record.op, m.mine.record.op, m.rule) for m in found if isinstance(m, Match)}
    assert pairs == {("A_0", "A_0", "programs"), ("B_1", "B_1", "programs")}


def test_without_the_option_values_are_not_looked_at() -> None:
    wanted = _array(8, 16)
    golden = run("atb", [operation("A", (0,), [], [wanted])])
    mine = run("atb", [operation("B", (0,), [], [wanted])])
    found = match_runs(golden, mine, MatchOptions())
    assert all(isinstance(each, Unmatched) for each in found)
