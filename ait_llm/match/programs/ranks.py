"""Operators of one of several ranks, and those of the whole program that they do a share of.

Forwards alone: an operator of the rank answers one of the whole program if it is of the same kind
and all that it reads is known, as a whole or as the rank's share; what its result is follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.match.programs.carried import Outcome, Shapes, keeps_summands, outcome
from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.congruence import Congruence
from ait_llm.match.programs.links import LIKELY, Links
from ait_llm.match.programs.row_spaces import Shape
from ait_llm.match.programs.shapes import Views, make_views
from ait_llm.match.programs.shards import Portion
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import params_of, shape_of, width_of
from ait_llm.program.flow import Value
from ait_llm.program.operators import is_moving, kind_of
from ait_llm.program.program import Program
from ait_llm.program.roles import Role, is_operator
from ait_llm.program.unwritten import Unwritten

_COLLECTIVES = ("c10d.", "_c10d_functional.")
_GATHERED = "what each rank told the others"
_COPY = "a copy of what answers it"


class CongruenceOfRanks(Congruence):
    """Pairs operators of a rank, which is the left program, with those of the whole one.

    Attributes:
        summands: values of the whole program by numbers of values that the ranks have to add up.
        joined: values of the whole program by numbers of those that have their columns in another
            order, because each rank has its share of every part.
    """

    def __init__(
        self,
        left: Program,
        right: Program,
        tokens: Tokens | None,
        links: Links,
        places: dict[int, int],
        unwritten: tuple[Unwritten, Unwritten],
        portion: Portion,
    ) -> None:
        super().__init__(left, right, tokens, links, places, unwritten)
        self._portion = portion
        self.summands: dict[int, Value] = {}
        self.joined: dict[int, Value] = {}

    def _pair_backward(self, op: int) -> bool:
        """Never: a result that is a share or a summand says less of what was read."""
        return False

    def _pair_sequences(self, place: int | None, other: int | None) -> None:
        """Only within modules in which nothing is shared out."""
        if place is None or other is None:
            return
        ours = [self._left.operations[op] for op in self._left.members(place)]
        theirs = [self._right.operations[op] for op in self._right.members(other)]
        if len(ours) == len(theirs) and all(map(_is_same, ours, theirs)):
            super()._pair_sequences(place, other)

    def _link_backward(self, op: int) -> bool:
        """Nothing: what a rank reads is known when it is written."""
        return False

    def run(self) -> None:
        """As for any two programs, but what a copy holds is known where only one side makes it."""
        for links in list(self._links.of_left.values()):
            for link in list(links):
                self._link_copies(link.left, link.right)
        super().run()

    def _pair_forward(self, op: int) -> bool:
        sources = self._sources(self._left, op)
        if op in self._pairs:
            return False
        if self._left.operations[op].type.startswith(_COLLECTIVES):
            return self._link_collective(op)
        if not all(self._partners(value) for value in sources):
            return False
        if super()._pair_forward(op):
            return True
        if not _copies(self._left.operations[op]):
            return False
        for tensor in self._left.operations[op].outputs:
            result = self._left.value(op, tensor)
            if result is None or self._partners(result) or self._is_apart(sources[0]):
                return False
            self._links.add(result, self._partners(sources[0])[0], LIKELY, _COPY)
        return True

    def _link_copies(self, left: Value, right: Value) -> None:
        """Link what the whole program copies and the rank does not."""
        if any(_copies(self._left.operations[use.op]) for use in left.reads):
            return
        for use in right.reads:
            operation = self._right.operations[use.op]
            for tensor in operation.outputs if _copies(operation) else ():
                self._links.add_also(left, self._right.value(use.op, tensor), LIKELY, _COPY)

    def _link_collective(self, op: int) -> bool:
        """Link what ranks have added up, or told one another."""
        operation = self._left.operations[op]
        results = [self._left.value(op, tensor) for tensor in operation.outputs]
        if _is_collective(operation, "allreduce") and len(operation.inputs) == len(results) == 1:
            source = self._left.value(op, operation.inputs[0])
            return source is not None and self._link_sum(op, source, results[0])
        if _is_collective(operation, "allgather") and len(results) >= self._portion.ranks:
            return self._link_gathered(op, results)
        return False

    def _link_sum(self, op: int, source: Value, result: Value | None) -> bool:
        whole, sums = self.summands.get(source.number), super()._partners(result) if result else []
        if result is None or bool(whole) == bool(sums):
            return False
        if whole is not None:
            self._links.add(result, whole, LIKELY, "the sum over ranks")
            return True
        roles = {self._left.roles[around] for around in self._left.flow.ancestors(op)}
        if not roles & {Role.LINEAR, Role.EMBEDDING} or self._links.of_left.get(source.number):
            return False
        self.summands[source.number] = self._before_sum(sums[0])
        return True

    def _before_sum(self, value: Value) -> Value:
        """What a rank of the right side brought to a sum, where that is one of several, too."""
        if value.writer is None:
            return value
        operation = self._right.operations[value.writer.op]
        is_sum = _is_collective(operation, "allreduce")
        brought = self._right.value(value.writer.op, operation.inputs[0]) if is_sum else None
        return value if brought is None else brought

    def _link_gathered(self, op: int, results: list[Value | None]) -> bool:
        """Link what each rank had of the columns of something."""
        own = next(
            tensor
            for tensor in self._left.operations[op].inputs
            if (tensor.ir_name or "").startswith("1")
        )
        value, shape = self._left.value(op, own), shape_of(own)
        whole = super()._partners(value) if value is not None else []
        if not whole or not shape or any(each is None for each in results):
            return False
        gathered = self._gathered(whole[0])
        each = len(results) // len(gathered)  # ranks that have one of them together
        total = shape[-1] * each
        if shape_of(whole[0].uses[0].tensor) is None or width_of(whole[0].uses[0].tensor) != total:
            return False
        found = False
        for rank, result in enumerate(results):
            if result is not None and not self._links.of_left.get(result.number):
                columns = Columns(rank % each * shape[-1], shape[-1], total)
                answer = gathered[rank // each]
                self._links.add(result, answer, LIKELY, _GATHERED, right_columns=columns)
                found = True
        return found

    def _gathered(self, value: Value) -> list[Value]:
        """What ranks of the right side told one another where it gathers a value, else that one."""
        for use in value.reads:
            operation = self._right.operations[use.op]
            if _is_collective(operation, "allgather"):
                found = [self._right.value(use.op, tensor) for tensor in operation.outputs]
                return [each for each in found if each is not None]
        return [value]

    def _is_apart(self, value: Value) -> bool:
        return value.number in self.summands or value.number in self.joined

    def _partners(self, value: Value) -> Sequence[Value]:
        apart = self.summands.get(value.number) or self.joined.get(value.number)
        return super()._partners(value) if apart is None else [apart]

    def _agrees(self, op: int, other: int, wanted: list[Sequence[Value]]) -> bool:
        return super()._agrees(op, other, wanted) and self._outcome(op, other) is not None

    def _views(self, left: Shape, right: Shape) -> Views | None:
        return make_views(left, right, self._tokens, portion=self._portion)

    def _link_results(self, op: int, other: int, reason: str) -> None:
        found = self._outcome(op, other)
        if found is Outcome.SHARE:
            for left, right in self._results(op, other):
                # one value of a rank may be several of the whole: a single head need not be moved
                if left is not None and right is not None:
                    self._links.add_also(left, right, LIKELY, reason)
                    self._link_copies(left, right)
            return
        if found is None:
            return
        apart = self.summands if found is Outcome.SUMMAND else self.joined
        for left, right in self._results(op, other):
            if left is not None and right is not None and not self._links.of_left.get(left.number):
                apart[left.number] = right

    def _outcome(self, op: int, other: int) -> Outcome | None:
        """What the results of an operator are of those of another one."""
        ours, theirs = self._left.operations[op], self._right.operations[other]
        if not is_moving(ours) and _places(ours) != _places(theirs):
            return None
        sources, partners = self._sources(self._left, op), self._sources(self._right, other)
        if self._are_partners(sources, partners[::-1]) and not self._are_partners(
            sources, partners
        ):
            partners = partners[::-1]
        inputs = self._shapes(ours.inputs, self._tensors(other, partners))
        outputs = self._shapes(ours.outputs, theirs.outputs)
        if inputs is None or outputs is None:
            return None
        if any(value.number in self.summands for value in sources):
            return Outcome.SUMMAND if len(sources) == 1 and keeps_summands(ours) else None
        if any(value.number in self.joined for value in sources):
            return self._of_joined(ours, inputs, outputs)
        return outcome(ours, theirs, inputs, outputs, self._portion)

    def _are_partners(self, ours: list[Value], theirs: list[Value]) -> bool:
        return len(ours) == len(theirs) and all(
            any(other is each for each in self._partners(value))
            for value, other in zip(ours, theirs, strict=True)
        )

    def _tensors(self, op: int, values: list[Value]) -> list[Tensor]:
        """The tensors of an operator that hold these values, in this order."""
        tensors = list(self._right.operations[op].inputs)
        found = []
        for value in values:
            tensor = next(each for each in tensors if self._right.value(op, each) is value)
            tensors.remove(tensor)
            found.append(tensor)
        return found

    @staticmethod
    def _of_joined(
        operation: Operation, inputs: list[Shapes], outputs: list[Shapes]
    ) -> Outcome | None:
        """Joined columns stay so until they are split, each into the rank's share of one part."""
        if len(inputs) != 1:
            return None
        (source,) = inputs
        if keeps_summands(operation) and all(own[-1] == source[0][-1] for own, _ in outputs):
            return Outcome.JOINED
        whole = (sum(own[-1] for own, _ in outputs), sum(other[-1] for _, other in outputs))
        split = kind_of(operation) in ("split", "split_with_sizes", "chunk")
        if split and whole == (source[0][-1], source[1][-1]):
            return Outcome.SHARE
        return None

    @staticmethod
    def _shapes(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> list[Shapes] | None:
        found = []
        for mine, other in zip(ours, theirs, strict=False):
            shapes = shape_of(mine), shape_of(other)
            if shapes[0] is None or shapes[1] is None:
                return None
            found.append((shapes[0], shapes[1]))
        return found if len(ours) == len(theirs) == len(found) else None


def _is_collective(operation: Operation, name: str) -> bool:
    is_one = operation.type.startswith(_COLLECTIVES)
    return is_one and kind_of(operation).replace("_", "") == name


def _copies(operation: Operation) -> bool:
    return is_operator(operation) and kind_of(operation) in ("clone", "contiguous", "wait_tensor")


def _places(operation: Operation) -> dict[str, object]:
    """Arguments that say where an operator works; a factor or an epsilon may be what is wrong."""
    return {name: each for name, each in params_of(operation).items() if type(each) is not float}


def _is_same(one: Operation, other: Operation) -> bool:
    """True if two operators do the same with tensors and parameters of the same shapes."""
    shapes = [
        [shape_of(tensor) for tensor in operation.tensors]
        + [weight.get("shape") for weight in operation.weights.values()]
        for operation in (one, other)
    ]
    return is_operator(one) and shapes[0] == shapes[1] and params_of(one) == params_of(other)
