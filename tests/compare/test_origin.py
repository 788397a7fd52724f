"""Where the error started, on chains of products made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from memory_runs import ArraySource, operation
from numpy.typing import NDArray

from ait_llm.compare.origin import find_origins
from ait_llm.compare.origin_findings import Findings, apply_findings
from ait_llm.core import OpId
from ait_llm.core.comparison import Comparison, TensorRecord, Verdict
from ait_llm.dumps import AtbDump
from ait_llm.dumps.model import Operation
from ait_llm.errors import FormatError, MissingDependencyError
from ait_llm.judge import recomputed
from ait_llm.match.model import Match, Source, record_of
from ait_llm.program.one_pass import Pass
from ait_llm.topology import Graph, Node

Array = NDArray[Any]
LINEAR = {"transposeB": True, "hasBias": False}
LENGTH = 5
LIMIT = 5e-3


def _weight(place: int) -> Array:
    return (np.random.default_rng(place).normal(size=(64, 64)) / 8).astype(np.float16)


def _product(x: Array, place: int) -> Array:
    return (x.astype(np.float64) @ _weight(place).astype(np.float64).T).astype(np.float16)


def scaled(factor: float) -> Callable[[Array], Array]:
    """A fault that makes a result too large."""
    return lambda out: (out * np.float16(factor)).astype(np.float16)


@dataclass
class Chain:
    """Products one after the other, on my side and rightly.

    Attributes:
        run: mine.
        right: outputs without fault, by place.
    """

    run: Pass
    right: list[Array]

    def compare(
        self, places: Sequence[int], errors: Mapping[int, float] | None = None
    ) -> list[Comparison]:
        """Comparisons of the outputs at some places, with their own errors unless given."""
        found = []
        for place in places:
            made = self.run.operations[place]
            error = _distance(self.right[place], made.outputs[0].nd())
            if errors is not None and place in errors:
                error = errors[place]
            found.append(_comparison(made, "out", 0, error))
        return found


def _distance(golden: Array, mine: Array) -> float:
    g, m = golden.astype(np.float64), mine.astype(np.float64)
    finite = np.isfinite(m)
    return float(np.linalg.norm((m - g)[finite]) / np.linalg.norm(g))


def _comparison(made: Operation, role: str, index: int, error: float, **more: Any) -> Comparison:
    tensor = (made.inputs if role == "in" else made.outputs)[index]
    mine = record_of(made, tensor, 0)
    golden = replace(mine, op=f"golden.{made.name}")
    verdict = Verdict.PASS if error <= LIMIT else Verdict.FAIL
    values = {"relative_euclidean_distance": error}
    limits = {"relative_euclidean_distance": LIMIT, "max_element_error": 10 * LIMIT}
    needed = {"relative_euclidean_distance": error, "max_element_error": error}
    return Comparison(golden, mine, verdict, values=values, tolerance=limits, needed=needed, **more)


def _chain(
    faults: Mapping[int, Callable[[Array], Array]] | None = None,
    types: Mapping[int, str] | None = None,
    step: int = 0,
    x: Array | None = None,
) -> Chain:
    start = np.random.default_rng(99 + step).normal(size=(8, 64)).astype(np.float16)
    golden, mine = start, start if x is None else x
    operations, right = [], []
    for place in range(LENGTH):
        golden = _product(golden, place)
        out = (faults or {}).get(place, lambda out: out)(_product(mine, place))
        kind = (types or {}).get(place, "LinearOperation")
        operations.append(
            operation(kind, (place,), [mine, _weight(place)], [out], params=LINEAR, step=step)
        )
        right.append(golden)
        mine = out
    return Chain(Pass("atb", 0, 1, step, operations, traits=AtbDump.traits), right)


def _find(chain: Chain, comparisons: Sequence[Comparison], **more: Any) -> Findings:
    return find_origins(comparisons, [chain.run], **more)


def test_nobody_is_blamed_where_nothing_is_wrong() -> None:
    chain = _chain()
    for deep in (False, True):
        findings = _find(chain, chain.compare(range(LENGTH)), deep=deep)
        assert (findings.origins, findings.failures, findings.problems) == ((), {}, ())


@pytest.mark.parametrize("place", range(LENGTH))
def test_an_operation_whose_outputs_alone_fail_is_the_origin(place: int) -> None:
    chain = _chain({place: scaled(1.1)})
    (origin,) = _find(chain, chain.compare(range(LENGTH))).origins
    assert (origin.op, origin.certain) == (f"LinearOperation_{place}", True)
    assert origin.golden_op == f"golden.LinearOperation_{place}"
    assert origin.index == place
    assert origin.introduced == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_operations_that_were_not_compared_are_told_apart_by_recomputing_them(place: int) -> None:
    chain = _chain({place: scaled(1.1)})
    (origin,) = _find(chain, chain.compare([0, 4])).origins
    assert (origin.op_id, origin.certain) == (str(place), True)
    assert "first seen in outtensor0 of LinearOperation_4 (0.1 relative error)" in origin.evidence
    assert "3 other candidates recomputed and right" in origin.evidence


def test_the_first_of_two_wrong_operations_is_the_origin() -> None:
    chain = _chain({1: scaled(1.1), 3: scaled(1.1)})
    (origin,) = _find(chain, chain.compare([0, 4])).origins
    assert origin.op_id == "1"


def test_the_only_operation_that_cannot_be_recomputed_is_left_over() -> None:
    chain = _chain({2: scaled(1.1)}, {2: "NobodysOperation"})
    (origin,) = _find(chain, chain.compare([0, 4])).origins
    assert (origin.op_id, origin.certain) == ("2", True)
    assert "3 operations before it were recomputed and are right" in origin.evidence
    assert "there is no golden NobodysOperation" in origin.evidence


def test_operations_that_cannot_be_told_apart_are_all_listed() -> None:
    chain = _chain({2: scaled(1.1)}, {2: "NobodysOperation", 3: "NobodysOperation"})
    (origin,) = _find(chain, chain.compare([0, 4])).origins
    assert (origin.op_id, origin.certain) == ("2", False)
    assert origin.candidates == ("NobodysOperation_3",)


def test_compared_inputs_and_outputs_suffice_without_recomputing() -> None:
    chain = _chain({2: scaled(1.1)}, dict.fromkeys(range(LENGTH), "NobodysOperation"))
    (origin,) = _find(chain, chain.compare(range(LENGTH))).origins
    assert (origin.op_id, origin.certain) == ("2", True)
    assert "its compared input agrees" in origin.evidence


def test_without_torch_comparisons_alone_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: str, purpose: str) -> None:
        raise MissingDependencyError(f"{purpose} needs {module}")

    monkeypatch.setattr(recomputed, "import_optional", refuse)
    chain = _chain({2: scaled(1.1)})
    (origin,) = _find(chain, chain.compare(range(LENGTH))).origins
    assert (origin.op_id, origin.certain) == ("2", True)
    (origin,) = _find(chain, chain.compare([0, 4])).origins
    assert (origin.op_id, origin.certain) == ("1", False)
    assert origin.candidates == tuple(f"LinearOperation_{place}" for place in (2, 3, 4))
    assert "recomputing an operation needs torch" in origin.evidence


@pytest.mark.parametrize("kind", ["LinearOperation", "NobodysOperation"])
def test_an_error_that_grew_with_what_came_in_is_no_failure(kind: str) -> None:
    chain = _chain(types={3: kind, 4: kind})
    grown = {0: 0.002, 1: 0.003, 2: 0.004, 3: 0.0051, 4: 0.006}
    comparisons = chain.compare(range(LENGTH), grown)
    findings = _find(chain, comparisons)
    assert findings.origins == ()
    applied = apply_findings(comparisons, findings)
    assert [each.verdict for each in applied] == [Verdict.PASS] * LENGTH
    assert "no more than its inputs explain, which are 0.004 off" in applied[3].reason


def test_an_error_that_doubles_and_more_in_an_unknown_operation_is_a_failure() -> None:
    chain = _chain(types={3: "NobodysOperation"})
    comparisons = chain.compare(range(LENGTH), {2: 0.004, 3: 0.0081, 4: 0.0081})
    findings = _find(chain, comparisons)
    assert [origin.op_id for origin in findings.origins] == ["3"]
    assert findings.explained == {}


def test_what_came_in_explains_four_times_the_limit_at_most() -> None:
    chain = _chain(types=dict.fromkeys((1, 2, 3), "NobodysOperation"))
    comparisons = chain.compare(range(LENGTH - 1), {0: 0.004, 1: 0.0078, 2: 0.015, 3: 0.021})
    findings = _find(chain, comparisons)
    assert [origin.op_id for origin in findings.origins] == ["3"]
    assert set(findings.explained) == {1, 2}


def test_a_small_error_behind_exact_values_is_looked_at() -> None:
    chain = _chain({2: scaled(1.0008)})
    comparisons = chain.compare(range(LENGTH))
    assert 0 < comparisons[2].values["relative_euclidean_distance"] < 2 * 2**-11
    (origin,) = _find(chain, comparisons).origins
    assert (origin.op_id, origin.certain) == ("2", True)
    assert "within the tolerance" in origin.evidence


def test_an_operation_that_computes_rightly_with_other_parameters_is_named() -> None:
    chain = _chain()
    jump = {0: 0.0002, 1: 0.0003, 2: 0.5, 3: 0.5, 4: 0.5}
    (origin,) = _find(chain, chain.compare(range(LENGTH), jump)).origins
    assert (origin.op_id, origin.certain) == ("2", True)
    assert "these are not those of golden" in origin.evidence
    assert origin.inherited is None


def test_a_wrong_operation_before_tensors_that_still_pass_is_found() -> None:
    chain = _chain({1: scaled(1.004)})
    errors = {2: 0.0044, 3: 0.0048, 4: 0.0051}
    (origin,) = _find(chain, chain.compare(range(LENGTH), errors)).origins
    assert origin.op_id == "1"
    assert origin.certain


def test_a_wrong_operation_within_the_tolerance_fails_where_the_error_jumps() -> None:
    chain = _chain({2: scaled(1.004)})
    comparisons = chain.compare(range(LENGTH))
    assert {item.verdict for item in comparisons} == {Verdict.PASS}
    findings = _find(chain, comparisons)
    assert [origin.op_id for origin in findings.origins] == ["2"]
    applied = apply_findings(comparisons, findings)
    assert [item.verdict for item in applied].count(Verdict.FAIL) == 1
    assert applied[2].verdict is Verdict.FAIL
    assert "within the tolerance" in applied[2].reason
    assert applied[2].introduced == pytest.approx(0.004, rel=0.1)


def test_a_golden_operator_that_disagrees_with_both_sides_is_not_believed() -> None:
    # Both libraries do more than the parameters say; the fault is elsewhere.
    chain = _chain({1: scaled(1.5), 3: scaled(1.1)})
    for place in range(1, LENGTH):
        chain.right[place] = scaled(1.5)(chain.right[place])
    (origin,) = _find(chain, chain.compare(range(LENGTH))).origins
    assert origin.op_id == "3"


def test_only_recomputing_everything_shows_sums_in_16_bits() -> None:
    chain = _chain()
    made = chain.run.operations[2]
    x, weight = (tensor.nd().astype(np.float64) for tensor in made.inputs)
    total = np.zeros((8, 64), np.float16)
    for start in range(0, 64, 16):
        part = slice(start, start + 16)
        total = (total + x[:, part] @ weight[:, part].T).astype(np.float16)
    faulty = _chain({2: lambda out: total})
    comparisons = faulty.compare(range(LENGTH))
    assert _find(faulty, comparisons).origins == ()
    (origin,) = _find(faulty, comparisons, deep=True).origins
    assert (origin.op_id, origin.certain) == ("2", True)
    assert "is off by 0.00032 where rounding permits 0.00023" in origin.evidence


def test_a_wrong_operation_that_was_not_compared_fails_where_it_is_seen_first() -> None:
    chain = _chain({2: scaled(1.001)})
    comparisons = chain.compare([0, 3, 4])
    findings = _find(chain, comparisons, deep=True)
    assert [origin.op_id for origin in findings.origins] == ["2"]
    applied = apply_findings(comparisons, findings)
    assert [item.verdict for item in applied] == [Verdict.PASS, Verdict.FAIL, Verdict.PASS]
    assert applied[1].reason.startswith("LinearOperation_2: from its own inputs recomputed")


def test_an_infinity_starts_where_inputs_are_finite() -> None:
    def spoil(out: Array) -> Array:
        spoilt = out.copy()
        spoilt[3, 4] = np.inf
        return spoilt

    with np.errstate(invalid="ignore"):
        chain = _chain({1: spoil})
        comparisons = [
            replace(item, verdict=Verdict.FAIL) if place >= 1 else item
            for place, item in enumerate(chain.compare(range(LENGTH)))
        ]
    (origin,) = _find(chain, comparisons).origins
    assert origin.op_id == "1"
    assert "[3, 4] is inf and should be" in origin.evidence
    assert origin.introduced is None  # an infinite error is no number for a report


@pytest.mark.parametrize(("index", "what"), [(0, "inputs"), (1, "weights")])
def test_inputs_that_differ_already_are_the_origin(index: int, what: str) -> None:
    chain = _chain()
    first = chain.run.operations[0]
    if what == "weights":
        named = replace(first.inputs[1], ir_name="weight")
        first = replace(first, tensors=(first.inputs[0], named, *first.outputs))
        chain.run = replace(chain.run, operations=[first, *chain.run.operations[1:]])
    values = {"worst": (0, 3), "worst_values": (1.0, 2.0)}
    given = _comparison(first, "in", index, 0.5, **values)
    outputs = chain.compare(range(LENGTH), dict.fromkeys(range(LENGTH), 0.5))
    (origin,) = _find(chain, [given, *outputs]).origins
    assert origin.op_id == "0"
    assert origin.certain
    assert f"{what} differ already" in origin.evidence
    assert "[0, 3] is 2 instead of 1" in origin.evidence


def _two_steps(*chains: Chain) -> Findings:
    comparisons = [item for chain in chains for item in chain.compare(range(LENGTH))]
    return find_origins(comparisons, [chain.run for chain in chains])


def test_what_follows_from_an_earlier_step_is_no_origin() -> None:
    spoilt = np.random.default_rng(5).normal(size=(8, 64)).astype(np.float16)
    findings = _two_steps(_chain({2: scaled(1.1)}), _chain(step=1, x=spoilt))
    assert [(origin.op_id, origin.step) for origin in findings.origins] == [("2", 0)]


def test_an_operation_that_is_wrong_again_is_named_again() -> None:
    findings = _two_steps(_chain({2: scaled(1.1)}), _chain({2: scaled(1.1)}, step=1))
    assert [(origin.op_id, origin.step) for origin in findings.origins] == [("2", 0), ("2", 1)]


def test_tensors_that_were_not_compared_say_nothing() -> None:
    chain = _chain({2: scaled(1.1)})
    comparisons = chain.compare(range(LENGTH))
    unread = replace(comparisons[2], verdict=Verdict.ERROR, reason="damaged", values={})
    skipped = Comparison(None, comparisons[1].mine, Verdict.SKIPPED, "no counterpart")
    (origin,) = _find(chain, [comparisons[0], skipped, unread, *comparisons[3:]]).origins
    assert origin.op_id == "2"


def test_inherited_and_introduced_error_are_told_for_a_matched_output() -> None:
    chain = _chain({2: scaled(1.02)})
    comparisons = chain.compare(range(LENGTH))
    made = chain.run.operations[2]
    assert comparisons[2].mine is not None
    assert comparisons[2].golden is not None
    golden = replace(made.outputs[0], source=ArraySource(chain.right[2]))
    match = Match(
        Source(made, golden, 2),
        Source(made, made.outputs[0], 2),
        "by_name",
        1.0,
        "",
    )
    findings = _find(chain, comparisons, matches={2: match})
    share = findings.shares[2]
    assert share.introduced == pytest.approx(0.02, rel=0.05)
    assert share.inherited is not None
    assert share.inherited < 1e-3


def _with_cache(fault: float) -> tuple[Pass, list[Comparison]]:
    """A cache write that was only saved after it ran, compared with a cache that is right."""
    draw = np.random.default_rng(0)
    key, value = (draw.normal(size=(3, 2, 8)).astype(np.float16) for _ in range(2))
    caches = [np.zeros((2, 16, 2, 8), np.float16) for _ in range(2)]
    slots = np.array([1, 17, 4], np.int32)
    for cache, new in zip(caches, (key, value), strict=True):
        cache.reshape(32, 2, 8)[slots] = new * np.float16(fault)
    made = operation("ReshapeAndCacheOperation", (0,), [key, value, *caches, slots], caches)
    names = ("key", "value", "k_cache", "v_cache", "slots")
    node = Node(made.name, made.type, OpId((0,)), {}, names, ("k_cache", "v_cache"))
    run = Pass(
        "atb", 0, 1, 0, [made], graphs={made.name: Graph("layer", node)}, traits=AtbDump.traits
    )
    comparisons = [
        *(_comparison(made, "in", index, 0.0) for index in (0, 1)),
        *(_comparison(made, "in", index, fault - 1) for index in (2, 3)),
        *(_comparison(made, "out", index, fault - 1) for index in (0, 1)),
    ]
    return run, comparisons


def test_a_cache_that_was_saved_after_the_write_is_no_input() -> None:
    run, comparisons = _with_cache(1.5)
    (origin,) = find_origins(comparisons, [run]).origins
    assert origin.op == "ReshapeAndCacheOperation_0"
    assert "differ already" not in origin.evidence
    assert "from its own inputs recomputed" in origin.evidence


class _Damaged(Mapping[str, Graph]):
    def __getitem__(self, name: str) -> Graph:
        raise FormatError(f"layer/1/{name}.json", "is not JSON")

    def __iter__(self) -> Iterator[str]:
        return iter(["Layer_0"])

    def __len__(self) -> int:
        return 1


def test_a_damaged_topology_is_told_and_costs_the_origin_only() -> None:
    chain = _chain({2: scaled(1.1)})
    chain.run = replace(chain.run, graphs=_Damaged())
    findings = _find(chain, chain.compare(range(LENGTH)))
    assert findings.origins == ()
    assert "layer/1/Layer_0.json" in findings.problems[0]


def test_each_step_whose_origin_is_unknown_is_told() -> None:
    chains = [_chain({2: scaled(1.1)}, step=step) for step in (0, 1)]
    comparisons = [each for chain in chains for each in chain.compare(range(LENGTH))]
    runs = [replace(chain.run, graphs=_Damaged()) for chain in chains]
    told = find_origins(comparisons, runs).problems
    assert [text[:6] for text in told] == ["step 0", "step 1"]


def test_operations_that_deep_cannot_recompute_are_told_with_their_reasons() -> None:
    chain = _chain(types={2: "NobodysOperation"})
    comparisons = chain.compare(range(LENGTH))
    assert _find(chain, comparisons).problems == ()
    (told,) = _find(chain, comparisons, deep=True).problems
    assert f"1 of {LENGTH} operations" in told
    assert "there is no golden NobodysOperation" in told


def test_deep_without_torch_says_that_nothing_was_recomputed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(module: str, purpose: str) -> None:
        raise MissingDependencyError(f"{purpose} needs {module}")

    monkeypatch.setattr(recomputed, "import_optional", refuse)
    chain = _chain()
    (told,) = _find(chain, chain.compare(range(LENGTH)), deep=True).problems
    assert f"{LENGTH} of {LENGTH} operations" in told


def test_comparisons_of_nothing_of_mine_are_left_out() -> None:
    chain = _chain()
    stranger = TensorRecord("other", "", "", "outtensor0", "out", 0, "", device=3, pid=4)
    extra = Comparison(stranger, stranger, Verdict.FAIL)
    alone = Comparison(stranger, None, Verdict.SKIPPED, "no counterpart")
    assert _find(chain, [extra, alone, *chain.compare(range(LENGTH))]) == Findings()


def _decode(fault: float, *, named: bool) -> tuple[list[Pass], list[Comparison]]:
    """A step that writes a cache, wrongly scaled, and one that writes to it again and reads it."""
    draw = np.random.default_rng(0)
    caches = [np.zeros((2, 16, 2, 8), np.float16) for _ in range(2)]
    runs = []
    names = ("key", "value", "k_cache", "v_cache", "slots")
    for step, (slots, factor) in enumerate((([0, 1, 2], fault), ([3, 4, 5], 1.0))):
        new = [draw.normal(size=(3, 2, 8)).astype(np.float16) for _ in range(2)]
        caches = [cache.copy() for cache in caches]
        for cache, values in zip(caches, new, strict=True):
            cache.reshape(32, 2, 8)[slots] = values * np.float16(factor)
        inputs = [*new, *caches, np.array(slots, np.int32)]
        write = operation("ReshapeAndCacheOperation", (step, 0), inputs, caches, step=step)
        read = operation(
            "GatherOperation",
            (step, 1),
            [caches[0], np.array([0], np.int64)],
            [caches[0][:1].copy()],
            params={"axis": 0},
            step=step,
        )
        node = Node(write.name, write.type, OpId((step, 0)), {}, names, names[2:4])
        graphs = {write.name: Graph("layer", node)} if named else {}
        runs.append(Pass("atb", 0, 1, step, [write, read], graphs=graphs, traits=AtbDump.traits))
    made = runs[1].operations[1]
    return runs, [_comparison(made, "out", 0, 0.3)]


@pytest.mark.parametrize("named", [True, False])
def test_what_an_earlier_step_left_in_a_cache_is_found_there(named: bool) -> None:
    runs, comparisons = _decode(1.5, named=named)
    (origin,) = find_origins([*comparisons, *_of_first(runs)], runs).origins
    assert (origin.op, origin.step) == ("ReshapeAndCacheOperation_0_0", 0)
    assert "of step 1 (0.3 relative error), which reads it from a cache" in origin.evidence


def test_an_earlier_origin_that_a_later_step_shows_comes_first() -> None:
    runs, comparisons = _decode(1.5, named=True)
    late, _ = _decode(1.5, named=True)
    third = Pass(
        "atb",
        0,
        1,
        2,
        [replace(each, step=2) for each in late[1].operations],
        traits=AtbDump.traits,
    )
    wrong = runs[1].operations[0]
    cache = wrong.outputs[0].nd().copy()
    cache.reshape(32, 2, 8)[4] += 1
    spoilt = [replace(wrong.outputs[0], source=ArraySource(cache)), wrong.outputs[1]]
    read = runs[1].operations[1]
    again = replace(
        read,
        tensors=(
            replace(read.inputs[0], source=ArraySource(cache)),
            read.inputs[1],
            replace(read.outputs[0], source=ArraySource(cache[:1].copy())),
        ),
    )
    second = replace(runs[1], operations=[replace(wrong, tensors=(*wrong.inputs, *spoilt)), again])
    shown = _comparison(third.operations[1], "out", 0, 0.3)
    findings = find_origins([*comparisons, *_of_first(runs), shown], [runs[0], second, third])
    assert [origin.op for origin in findings.origins] == [
        "ReshapeAndCacheOperation_0_0",
        "ReshapeAndCacheOperation_1_0",
    ]


@pytest.mark.parametrize("named", [True, False])
def test_a_cache_of_steps_that_were_not_captured_may_have_been_wrong_before(named: bool) -> None:
    runs, comparisons = _decode(1.5, named=named)
    (origin,) = find_origins(comparisons, runs[1:]).origins
    assert not origin.certain
    assert "or a cache was wrong before this step" in origin.evidence


def _of_first(runs: Sequence[Pass]) -> list[Comparison]:
    """A comparison that passes in the first step, so that the step belongs to the report."""
    return [_comparison(runs[0].operations[0], "in", 0, 0.0)]
