"""Which operator is named as the origin of each fault of hostatb, in each layer.

    python scripts/bench/fault_matrix.py [--full] [--deep]

The Llama demo runs once per fault and operator. Every run is compared with the PyTorch twin without
a mapping file; the first origin in the report must be the operator that is wrong. ``--full`` puts
each fault into every operator that it applies to, ``--deep`` recomputes every operation.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import fault_matrix as matrix
from fault_kinds import kind_of
from figures import figure

from ait_llm.core.comparison import Verdict


def main() -> int:
    """Print the table; 1 if a run without fault blames somebody or less than 9 of 10 are found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="every operator that a fault fits")
    parser.add_argument("--deep", action="store_true", help="recompute every operation")
    given = parser.parse_args()
    cases = matrix.full_matrix() if given.full else matrix.short_matrix()
    with tempfile.TemporaryDirectory() as folder:
        golden = matrix.dump_golden(Path(folder, "golden"))
        requests = ["", *(case.request for case in cases)]
        runs = matrix.dump_faulty_llamas(Path(folder, "mine"), golden, requests)
        start = time.process_time()
        clean = matrix.compare(golden, runs[""], deep=given.deep, jobs=1)
        print(f"{'no fault':50} {clean.verdict.name} blamed: {matrix.named(clean) or 'nobody'}")
        found = kinds = 0
        for case, report in matrix.reports(golden, runs, cases, deep=given.deep):
            named = matrix.named(report)
            right = named == case.op_id
            found += right
            kind = report.origins[0].kind if report.origins else ""
            kinds += right and kind == kind_of(case.fault, case.place)
            fails = report.counts[Verdict.FAIL]
            certain = "certain" if report.origins and report.origins[0].certain else ""
            note = "" if right else "  <- missed" if not named else "  <- WRONG"
            text = f"{case!s:45} {case.op_id:12} {fails:4} fail  named {named:12} {kind}"
            print(f"{text} {certain}{note}")
        seconds = time.process_time() - start
    total = f"{found} of {len(cases)} faulty operators named, {kinds} with their kind"
    print(f"{total}; {seconds:.0f} s of processor time")
    what = f"faulty operator named, {len(cases)} faults" + (", all recomputed" * given.deep)
    figure(what, 100 * found / len(cases), "% of the faults", at_least=90)
    figure("operators blamed in a run without fault", len(clean.origins), "operators", at_most=0)
    figure("kind of error named as well", 100 * kinds / len(cases), "% of the faults")
    return int(bool(clean.origins) or found < 0.9 * len(cases))


if __name__ == "__main__":
    sys.exit(main())
