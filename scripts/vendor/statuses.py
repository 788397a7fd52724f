"""What the vendor's cases expect to be refused, through hostatb: at which stage, with which status.

``python -m vendor.statuses CHECKOUT`` puts one case of every kind on record for the tests.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vendor.cases import OK, Case, CaseError, TensorCase, read_cases
from vendor.generator import Generator, NotRunError
from vendor.outcome import Disagreement, Outcome
from vendor.refusal_reasons import ON_THE_HOST, explain, is_without_host
from vendor.stages import CHIP, End, end_of, expected, param_of, params_of, shortened

from ait_llm.hostatb.acceptance import acceptances
from ait_llm.hostatb.native_types import Status
from ait_llm.hostatb.params.fields import FieldTypeError

RECORD = Path(__file__).resolve().parents[2] / "tests/data/vendor/refusals.json"
_MOST = 420  # characters of a case on record: small ones say as much


def run(checkout: Path, operators: Sequence[str] = (), *, largest: int = 0) -> Outcome:
    """All refusals on the chip that hostatb stands for, however large: nothing is computed."""
    del largest
    outcome, generator = Outcome(), None
    for case in _refusals(checkout, operators):
        try:
            got, wanted = end_of(case, None), expected(case)
            if got.where == ("S", OK):
                generator = generator or Generator(checkout)
                if is_without_host(case, got, generator):
                    raise NotRunError(ON_THE_HOST)
        except (NotRunError, CaseError) as reason:
            outcome.skip(case.operator, str(reason))
            continue
        if got.where == wanted.where:
            outcome.agree(case.operator)
        else:
            said, blame = f"{shortened(got)}, not {wanted}", explain(case, got, checkout)
            outcome.disagreed.append(Disagreement(case.operator, case.label, said, *blame))
    return outcome


def _refusals(checkout: Path, operators: Sequence[str] = ()) -> Iterator[Case]:
    for case in read_cases(checkout, operators):
        if case.is_for(CHIP) and case.status != OK:
            yield case


def record(checkout: Path) -> int:
    """Put one agreeing case of every operator that has rules, stage, status and reason on record.

    What the runtime itself refuses is left out: tensors of another number, and groups at Execute.
    """
    found: dict[str, list[str]] = {}
    seen = set()
    for case in _refusals(checkout):
        if case.operator not in acceptances:
            continue
        try:
            got = end_of(case, None)
            kind = (case.operator, got.where, re.sub(r"[\d\[\], ]+", "", got.text))
            later = got.where == ("S", "ERROR_INVALID_IN_TENSOR_NUM") or got.stage == "E"
            if kind in seen or later or got.where != expected(case).where:
                continue
            param_of(case.operator, params_of(case))
            row = _row(case, got)
        except (NotRunError, CaseError, FieldTypeError):
            continue
        if len(row) <= _MOST:
            seen.add(kind)
            found.setdefault(case.operator, []).append(row)
    parts = [
        f"{json.dumps(name)}: [\n" + ",\n".join(rows) + "\n]"
        for name, rows in sorted(found.items())
    ]
    RECORD.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    return sum(map(len, found.values()))


def _row(case: Case, got: End) -> str:
    status = Status[got.status.removeprefix("ERROR_")]
    tensors = [" ".join(map(_word, side)) for side in (case.inputs, case.outputs)]
    return json.dumps([params_of(case), *tensors, got.stage, int(status)])


def _word(each: TensorCase) -> str:
    layout = "" if each.layout in ("nd", "nchw") else f"/{each.layout}"
    dims = () if 0 in each.shape else each.shape  # as they are passed
    return f"{each.dtype}{layout}[{','.join(map(str, dims))}]"


if __name__ == "__main__":
    print(f"{RECORD}: {record(Path(sys.argv[1]))} cases")
