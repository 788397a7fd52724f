"""Where the error ledger ranks the operator that is wrong, for each fault of hostatb.

    python scripts/bench/ledger.py [--full]

The Llama demo runs once per fault and operator and is compared with the PyTorch twin. The faulty
operator must be the first in the ledger, and a run without fault must have none beyond its
contract. ``--full`` puts each fault into every operator that it applies to.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import fault_matrix as matrix
from figures import figure

from ait_llm.compare import compare
from ait_llm.core.error_ledger import ranked


def beyond(golden: Path, mine: Path) -> list[str]:
    """Ids of the operators beyond their contract, the worst first."""
    rows = ranked(compare(golden, mine, ledger=True, jobs=1).ledger)
    return list(dict.fromkeys(row.op_id for row in rows if row.is_beyond))


def main() -> int:
    """Print the shares; 1 if fewer than 95 % come first or a run without fault blames somebody."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="every operator that a fault fits")
    cases = matrix.full_matrix() if parser.parse_args().full else matrix.short_matrix()
    with tempfile.TemporaryDirectory() as folder:
        golden = matrix.dump_golden(Path(folder, "golden"))
        requests = ["", *(case.request for case in cases)]
        runs = matrix.dump_faulty_llamas(Path(folder, "mine"), golden, requests)
        blamed = beyond(golden, runs[""])
        print(f"no fault: {', '.join(blamed) or 'nobody'} beyond its contract")
        first = third = 0
        for case in cases:
            found = beyond(golden, runs[case.request])
            first += found[:1] == [case.op_id]
            third += case.op_id in found[:3]
            if found[:1] != [case.op_id]:
                print(f"{case!s:45} {case.op_id:12} ranked: {', '.join(found[:4]) or 'nobody'}")
    print(f"of {len(cases)} faulty operators {first} come first, {third} among the first three")
    what = f"error ledger, {len(cases)} faults: the faulty operator"
    figure(f"{what} comes first", 100 * first / len(cases), "% of the faults", at_least=95)
    figure(f"{what} is among three", 100 * third / len(cases), "% of the faults", at_least=99)
    figure(
        "error ledger: operators beyond their contract without fault",
        len(blamed),
        "operators",
        at_most=0,
    )
    return int(bool(blamed) or first < 0.95 * len(cases))


if __name__ == "__main__":
    sys.exit(main())
