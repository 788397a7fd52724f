"""What code hands to a module, where one side shows modules and the other the operators as well.

Values of one capture have no operator that makes them, and those of the other no module that is
handed them. So an operator can have inputs that agree, with golden values which its counterpart
never reads: then the code around hands it something else. Names of operators say within which
module they ran, and so which values enter it; the numbers prove that they are not the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from ait_llm.compare.origin_code_words import by_code_up_to, by_handed, by_handing_on
from ait_llm.compare.origin_finding import OWN_CODE, Finding, Telling
from ait_llm.compare.origin_run import RunStructure, path_of
from ait_llm.compare.origin_words import first_that_fails
from ait_llm.core.comparison import Comparison
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.judge.tolerance import tolerance_for
from ait_llm.program.describe import dtype_of, is_float, size_of
from ait_llm.program.flow import Value
from ait_llm.program.roles import is_operator

_MOST = 1 << 24  # elements that are looked at
_FAR = 2.0  # of the limit, so that another rounding is not taken for another value


@dataclass(frozen=True, slots=True)
class _Handed:
    """Another value than golden's that enters a module.

    Attributes:
        value: mine.
        instead: golden's.
        distance: between the two, as a relative Euclidean distance.
    """

    value: Value
    instead: Value
    distance: float


class Handing:
    """Looks at what code hands on, where the two captures show programs at other levels.

    Args:
        tell: makes findings about my run.
        golden: the golden run, if known.
    """

    def __init__(self, tell: Telling, golden: RunStructure | None) -> None:
        self._tell, self._values, self._golden = tell, tell.values, golden
        self._comparisons: Sequence[Comparison] = tell.comparisons
        runs = (self._values,) if golden is None else (self._values, golden)
        self._is_mixed = len({_has_operators(run) for run in runs}) > 1

    def instead_of(self, found: Finding | None, failed: int) -> Finding | None:
        """The finding, or the code that hands another value to what is found, or makes it.

        Args:
            found: an origin in my run.
            failed: number of the value that fails first.
        """
        if found is None or found.guilty is not None or not self._is_mixed:
            return found
        if found.origin.kind not in ("", OWN_CODE):
            return found
        path = path_of(self._values.run.operations[found.op])
        handed = self._handed(path)
        if handed is not None:
            return self._by_handing(found.op, path, handed, failed)
        return self._by_handing_on(found, failed) or self._by_code(found, path, failed)

    def _handed(self, path: str) -> _Handed | None:
        """What enters my module and is not what enters golden's of its name."""
        golden = self._golden
        assert golden is not None
        mine, theirs = _entering(self._values, path), _entering(golden, path)
        agreeing = {number: self._agrees_with(number) for number in mine}
        taken = set().union(*agreeing.values())
        free = [value for number, value in theirs.items() if number not in taken]
        for number, value in mine.items():
            if not agreeing[number] or agreeing[number] & theirs.keys():
                continue
            tensor = value.uses[0].tensor
            others = [each for each in free if size_of(each.uses[0].tensor) == size_of(tensor)]
            far = _distance(others[0].uses[0].tensor, tensor) if len(others) == 1 else None
            if far is not None:
                return _Handed(value, others[0], far)
        return None

    def _agrees_with(self, number: int) -> set[int]:
        """Golden values with which a value of mine agrees; none if it does not."""
        known, golden = self._values.evidence.get(number), self._golden
        if known is None or not known.is_right or golden is None:
            return set()
        values = (golden.value_at(self._comparisons[index].golden) for index in known.passed)
        return {value.number for value in values if value is not None}

    def _by_handing(self, op: int, path: str, handed: _Handed, failed: int) -> Finding:
        maker = self._values.producer(handed.value.number)
        code = self._code_between(path, maker, handed.instead)
        text = by_handed(self._values, code, op, maker, path, handed.distance)
        return self._stated(code, op if maker is None else maker, text, failed)

    def _stated(self, code: str, op: int, text: str, failed: int) -> Finding:
        """A finding about the code of a module, or an operation where mine shows no such module."""
        module = _modules(self._values).get(code)
        text = f"{text}; {first_that_fails(self._values, failed)}"
        index = self._values.first_failed(failed)
        return self._tell.stated(op if module is None else module, text, OWN_CODE, index)

    def _code_between(self, path: str, maker: int | None, instead: Value) -> str:
        """The module whose code hands on what is read: it is around both that make it."""
        golden = self._golden
        assert golden is not None
        right = golden.producer(instead.number)
        if maker is not None and right is not None:
            ends = self._values.run.operations[maker], golden.run.operations[right]
            paths = [path_of(each).split(".") for each in ends]
            common = takewhile(lambda pair: pair[0] == pair[1], zip(*paths, strict=False))
            return ".".join(name for name, _ in common) or self._around(path)
        around = self._around(path)
        while around != path and instead.number in _entering(golden, around):
            path, around = around, self._around(around)  # it only hands on what it is handed
        return around

    def _around(self, path: str) -> str:
        """The next module around one that either capture shows."""
        known = {each.name for each in self._values.run.operations}
        if self._golden is not None:
            known |= {each.name for each in self._golden.run.operations}
        around = path.rpartition(".")[0]
        while around.rpartition(".")[0] and around not in known:
            around = around.rpartition(".")[0]
        return around or path

    def _by_handing_on(self, found: Finding, failed: int) -> Finding | None:
        """The code of a module that hands a value on as it is, and golden's does not."""
        values, golden = self._values, self._golden
        assert golden is not None
        known, op = values.evidence[failed], values.producer(failed)
        index = values.first_failed(failed)
        other = golden.value_at(self._comparisons[index].golden)
        maker = None if other is None else golden.producer(other.number)
        if op is None or maker is None or golden.is_leaf(maker) or not known.passed:
            return None
        agreeing = (golden.value_at(self._comparisons[each].golden) for each in known.passed)
        if all(each is None or each is other for each in agreeing):
            return None
        code = golden.run.operations[maker].name
        return self._stated(code, op, by_handing_on(values, code, op), failed)

    def _by_code(self, found: Finding, path: str, failed: int) -> Finding:
        """The code of a module, where golden shows a result of that and mine its operators."""
        golden, values = self._golden, self._values
        assert golden is not None
        operation = values.run.operations[found.op]
        other = golden.value_at(self._comparisons[values.first_failed(failed)].golden)
        place = _modules(golden).get(path)
        if not is_operator(operation) or place is None or golden.is_leaf(place) or other is None:
            return found
        maker = golden.producer(other.number)
        if found.origin.kind or (maker is not None and golden.is_leaf(maker)):
            return found
        stated = self._stated(path, found.op, by_code_up_to(values, path, found.op), failed)
        origin = replace(
            stated.origin, certain=found.origin.certain, candidates=found.origin.candidates
        )
        return replace(stated, origin=origin)


def _has_operators(run: RunStructure) -> bool:
    return any(is_operator(operation) for operation in run.run.operations)


def _modules(run: RunStructure) -> Mapping[str, int]:
    """The first call of each module, by its path."""
    found: dict[str, int] = {}
    for op, operation in enumerate(run.run.operations):
        if not is_operator(operation):
            found.setdefault(operation.name, op)
    return found


def _entering(run: RunStructure, path: str) -> dict[int, Value]:
    """Floating values that a module reads and that nothing within it makes, by number."""
    found: dict[int, Value] = {}
    inner = f"{path}."
    for op, operation in enumerate(run.run.operations):
        if operation.name != path and not operation.name.startswith(inner):
            continue
        for tensor in operation.inputs:
            value = run.flow.at(op, "in", tensor.index)
            if value is None or not is_float(tensor) or value.number in found:
                continue
            maker = run.producer(value.number)
            if maker is None and run.run.operations[op].name != path:
                continue  # what the code of a module makes, as far as a capture of modules shows
            if maker is None or not f"{run.run.operations[maker].name}.".startswith(inner):
                found[value.number] = value
    return found


def _distance(golden: Tensor, mine: Tensor) -> float | None:
    """How far two tensors are apart; None if rounding permits that, or if it is not known."""
    kind, other_kind = dtype_of(golden), dtype_of(mine)
    if kind is None or other_kind is None or size_of(golden) > _MOST:
        return None
    if not (golden.has_data and mine.has_data):
        return None
    try:
        one, other = (np.asarray(each.nd(), np.float64).reshape(-1) for each in (golden, mine))
    except AitError:
        return None
    size = float(np.linalg.norm(one))
    if not size or one.shape != other.shape:
        return None
    far = float(np.linalg.norm(other - one)) / size
    limit = tolerance_for(kind, other_kind).relative_euclidean
    return far if far > _FAR * limit else None
