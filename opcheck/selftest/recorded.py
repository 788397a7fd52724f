"""Numbers of the vendor's own generator: what operators should compute, written by somebody else.

``vendor/numbers.xz`` is a compressed file of a 64-bit little-endian length, a JSON header of that
length and the bytes of all tensors. The header lists the cases; a tensor in it is its data type,
its shape and where its bytes begin.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import GOLDEN, Arithmetic, Result, golden_ops
from ait_llm.opcheck.selftest.difference import difference

NUMBERS = Path(__file__).with_name("vendor") / "numbers.xz"
_LENGTH = 8


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """One case as the vendor's generator made it.

    Attributes:
        op: class name of the operator.
        case: which of the vendor's cases it is.
        params: as the library prints them.
        inputs: in the operator's order.
        golden: what the vendor's golden has.
        ranks: of a collective operator, the inputs of every rank.
    """

    op: str
    case: str
    params: Mapping[str, Any]
    inputs: Sequence[Tensor]
    golden: Sequence[Tensor]
    ranks: Sequence[Sequence[Tensor]] = ()

    def compute(self, arithmetic: Arithmetic = GOLDEN) -> Result:
        """What our operator makes of it; of a collective one, what the rank of ``params`` gets."""
        golden = golden_ops.get(self.op)
        if golden.compute_ranks is None:
            return golden.compute(_present(self.inputs), self.params, arithmetic)
        # where nothing else is known, all ranks have the same
        ranks = self.ranks or [self.inputs] * int(self.params.get("rankSize", 1))
        per_rank = [_present(own) for own in ranks]
        params = [{**self.params, "rank": number} for number in range(len(ranks))]
        rank = int(self.params.get("rank", 0))
        return golden.compute_ranks(per_rank, params, arithmetic)[rank]

    def differs(self) -> str:
        """In what our golden operator differs from the vendor's numbers; empty if in nothing."""
        golden = golden_ops.get(self.op)
        result = self.compute()
        mine, expected = list(result.outputs), list(self.golden)
        if not mine:  # they have what is overwritten, or all that went in
            changed = sorted(result.updated_inputs)
            mine = [result.updated_inputs[index] for index in changed]
            if len(expected) == len(self.inputs):
                expected = [expected[index] for index in changed]
        if len(mine) > len(expected):
            return f"{len(expected)} outputs, ours {len(mine)}"
        quantises = golden.kernel(self.params).quantises
        dtypes = {tensor.dtype for tensor in self.inputs}
        found = []
        for index, (theirs, ours) in enumerate(zip(expected, mine, strict=False)):
            undefined = result.undefined.get(index)
            said = difference(theirs, ours, dtypes=dtypes, quantises=quantises, undefined=undefined)
            if said:
                found.append(f"output {index}: {said}")
        if found and golden.accepts is not None:
            pairs = list(zip(expected, mine, strict=False))
            if all(theirs.numel() == ours.numel() for theirs, ours in pairs):
                given = [theirs.reshape(ours.shape).to(ours.dtype) for theirs, ours in pairs]
                if golden.accepts(self.inputs, given, self.params):
                    return ""
        return "; ".join(found)


def _present(inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """None in the place of empty tensors, which stand for absent ones."""
    return [None if tensor.numel() == 0 else tensor for tensor in inputs]


def wrong_definitions(ops: Collection[str] | None = None) -> list[str]:
    """Where golden operators are not what the vendor's numbers say, one line for each case."""
    found = []
    for one in load():
        if ops is not None and one.op not in ops:
            continue
        try:
            said = one.differs()
        except OperationError as error:
            said = str(error)
        if said:
            found.append(f"{one.op}, {one.case}: {said}")
    return found


def load(path: Path = NUMBERS) -> list[Recorded]:
    """All recorded cases."""
    data = lzma.decompress(path.read_bytes())
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    header = json.loads(data[_LENGTH:start])
    body = memoryview(bytearray(data[start:]))

    def tensors(listed: Sequence[Sequence[Any]]) -> list[Tensor]:
        return [_tensor(body, *one) for one in listed]

    return [
        Recorded(
            one["op"],
            one["case"],
            one["params"],
            tensors(one["inputs"]),
            tensors(one["golden"]),
            [tensors(own) for own in one.get("ranks", ())],
        )
        for one in header
    ]


def save(cases: Iterable[Recorded], path: Path = NUMBERS) -> None:
    """Write cases as ``load`` reads them."""
    cases, body = list(cases), bytearray()
    places: dict[int, int] = {}  # ranks share tensors

    def listed(tensors: Sequence[Tensor]) -> Iterator[list[Any]]:
        for tensor in tensors:
            if id(tensor) not in places:
                places[id(tensor)] = len(body)
                body.extend(bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()))
            name = str(tensor.dtype).removeprefix("torch.")
            yield [name, list(tensor.shape), places[id(tensor)]]

    header = [
        {
            "op": one.op,
            "case": one.case,
            "params": dict(one.params),
            "inputs": list(listed(one.inputs)),
            "golden": list(listed(one.golden)),
            **({"ranks": [list(listed(own)) for own in one.ranks]} if one.ranks else {}),
        }
        for one in cases
    ]
    text = json.dumps(header, separators=(",", ":")).encode()
    data = len(text).to_bytes(_LENGTH, "little") + text + bytes(body)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def _tensor(body: memoryview, name: str, shape: Sequence[int], start: int) -> Tensor:
    dtype: torch.dtype = getattr(torch, name)
    count = prod(shape)
    if count == 0:
        return torch.empty(list(shape), dtype=dtype)
    own = torch.frombuffer(body, dtype=torch.uint8, count=count * dtype.itemsize, offset=start)
    return own.clone().view(dtype).reshape(list(shape))
