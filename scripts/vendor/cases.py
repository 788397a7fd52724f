"""Operator cases of the vendor: tables of text, one case a line, read from a checkout.

Everything of a case is there as the table has it, and in a form that can be worked with. A case
that cannot be read (a shape that is no list of numbers) is a :class:`CaseError` for who asks for
the part, so that one bad line hides no others.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CASES = Path("tests/apitest/opstest/csv")
# The vendor's own example of a table; its cases are in the others.
EXAMPLE = "testcase_example.csv"
STAGES = {"C": "create", "I": "infer shapes", "S": "set up", "E": "execute"}
OK = "NO_ERROR"
# What its tool fills in where a table has nothing.
DEFAULT_GENERATOR, DEFAULT_RANGE = "customize", "-5,5"


class CaseError(ValueError):
    """A part of a case that is not what the tables' format says."""


@dataclass(frozen=True, slots=True)
class TensorCase:
    """A tensor of a case.

    Attributes:
        dtype: in the table's words: float, float16, bf16, int8, ...
        layout: nd, fractal_nz, ...
        shape: its dims.
    """

    dtype: str
    layout: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a table.

    Attributes:
        table: name of the file.
        number: of the case in it.
        name: of the case; several may have the same.
        operator: class name of the operation: LinearOperation.
        fields: the line, by column.
    """

    table: str
    number: str
    name: str
    operator: str
    fields: dict[str, str]

    @property
    def label(self) -> str:
        """How reports name it."""
        return f"{self.table.removesuffix('.csv')} {self.number}"

    @property
    def param_text(self) -> str:
        """The parameters as the table has them, out of the quotes that a few tables put around."""
        text = self.fields["OpParam"]
        return text[1:-1].replace('""', '"') if text.startswith('"') else text

    @property
    def params(self) -> dict[str, Any]:
        """The parameters."""
        try:
            found = json.loads(self.param_text or "{}")
        except ValueError as error:
            raise CaseError(f"its parameters are no JSON: {error}") from None
        if not isinstance(found, dict):
            raise CaseError("its parameters are no JSON object")
        return found

    @property
    def inputs(self) -> tuple[TensorCase, ...]:
        """The tensors that go in."""
        return self._tensors("In")

    @property
    def outputs(self) -> tuple[TensorCase, ...]:
        """The tensors that should come out."""
        return self._tensors("Out")

    @property
    def generators(self) -> tuple[str, ...]:
        """For each input how its numbers are made: customize, random, zero, one."""
        return self._listed("In", "DataGenType", DEFAULT_GENERATOR)

    @property
    def ranges(self) -> tuple[str, ...]:
        """For each input the range of its numbers, as the table has it."""
        return self._listed("In", "DataGenRange", DEFAULT_RANGE)

    @property
    def files(self) -> tuple[str, ...]:
        """Files that its inputs are in, on a machine of the vendor's; empty for most cases."""
        text = self.fields["InTensorFile"]
        return tuple(_words(text)) if text else ()

    @property
    def chips(self) -> tuple[str, ...]:
        """The chips that it is for; none where it is for all that are usually tested."""
        return tuple(dict.fromkeys(name for name in _words(self.fields["SocVersion"], ",") if name))

    def is_for(self, chip: str) -> bool:
        """True if the vendor runs it on this chip."""
        return chip in self.chips if self.chips else chip not in ("Ascend910A", "Ascend310B")

    @property
    def status(self) -> str:
        """The status that is expected: NO_ERROR, ERROR_INVALID_PARAM, ..."""
        return self.fields["ExpectedError"].rpartition(":")[2]

    @property
    def stage(self) -> str:
        """Where it is expected: C, I, S or E (see STAGES); empty for a case that goes through."""
        return self.fields["ExpectedError"].rpartition(":")[0]

    @property
    def passes(self) -> bool:
        """True if it should go through all stages.

        A stage with NO_ERROR ends a case after that stage: nothing is computed.
        """
        return not self.stage and self.status == OK

    def _tensors(self, side: str) -> tuple[TensorCase, ...]:
        columns = [self._listed(side, f"{side}{part}") for part in ("DType", "Format", "Shape")]
        return tuple(
            TensorCase(dtype, layout, _dims(shape))
            for dtype, layout, shape in zip(*columns, strict=True)
        )

    def _listed(self, side: str, column: str, default: str = "") -> tuple[str, ...]:
        """One word for each tensor; what a table lists beyond their number, its tool ignores."""
        count = self._count(f"{side}Num")
        if default and not self.fields[column]:
            return (default,) * count
        words = _words(self.fields[column])[:count]
        if len(words) < count:
            raise CaseError(f"its {column} has {len(words)} of {count} tensors")
        return tuple(words)

    def _count(self, column: str) -> int:
        try:
            return int(self.fields[column])
        except ValueError:
            raise CaseError(f"its {column} is no number") from None


def read_table(path: Path) -> Iterator[Case]:
    """The cases of one table, in its order."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter="|", skipinitialspace=True)
        columns = [word.strip() for word in next(lines)]
        for line in lines:
            words = [word.strip() for word in line]
            if not any(words):
                continue
            fields = dict.fromkeys(columns, "") | dict(zip(columns, words, strict=False))
            # the vendor's tool takes what is before the first underscore
            operator = fields["OpName"].partition("_")[0]
            yield Case(path.name, fields["CaseNum"], fields["CaseName"], operator, fields)


def read_cases(checkout: Path, operators: Sequence[str] = ()) -> list[Case]:
    """All cases of a checkout, or those of some operators."""
    tables = sorted((checkout / CASES).glob("*.csv"))
    found = [case for path in tables if path.name != EXAMPLE for case in read_table(path)]
    return [case for case in found if not operators or case.operator in operators]


def _words(text: str, separator: str = ";") -> list[str]:
    return [word.strip() for word in text.split(separator)]


def _dims(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in _words(text, ",") if word)
    except ValueError:
        raise CaseError(f"a shape is no list of numbers: {text!r}") from None
