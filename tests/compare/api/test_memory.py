"""Memory of a comparison follows the largest record, not the files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from api_dumps import call, tensor

_FILLER = "x" * (64 << 10)  # of each record; no table shows it
_RECORDS = 800  # 50 MB of JSON per side
_MARGIN_MB = 32
# Prints rows, and the largest resident set of this process and of those it started.
_PROGRAM = """
import re, resource, sys
from pathlib import Path
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
mine, golden, jobs = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
options = ApiOptions(jobs=jobs)
outcome = compare_api_dumps(mine, golden, mine.parent, "1", options, formats=["csv"])
status = Path("/proc/self/status").read_text()
own = int(re.search(r"VmHWM:\\s*(\\d+)", status)[1])
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(sum(outcome.pairs[0].counts.values()), max(own, children) >> 10)
"""


def write(path: Path, numbers: range, name: str) -> Path:
    """A dump whose records are long and have one row each."""
    path.parent.mkdir(parents=True)
    record = json.dumps(call([], [tensor(filler=_FILLER)]))
    with path.open("w") as file:
        file.write('{"task": "statistics", "level": "L1", "dump_data_dir": null, "data": {')
        file.write(",\n".join(f'"{name}.{number}.forward": {record}' for number in numbers))
        file.write("}}")
    return path


def rows_and_peak(mine: Path, golden: Path, jobs: int) -> tuple[int, int]:
    """Rows of the table, and MB of the largest process."""
    words = [sys.executable, "-c", _PROGRAM, str(mine), str(golden), str(jobs)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
    rows, peak = map(int, done.stdout.split())
    return rows, peak


@pytest.mark.parametrize(
    ("numbers", "name", "jobs", "rows"),
    [
        pytest.param(range(_RECORDS), "Torch.exp", 1, _RECORDS, id="one process"),
        pytest.param(range(_RECORDS), "Torch.exp", 2, _RECORDS, id="several"),
        pytest.param(range(_RECORDS)[::-1], "Torch.exp", 1, _RECORDS, id="another order"),
        pytest.param(range(_RECORDS), "Torch.log", 1, 2 * _RECORDS, id="nothing in common"),
    ],
)
def test_files_are_compared_in_less_memory_than_their_size(
    tmp_path: Path, numbers: range, name: str, jobs: int, rows: int
) -> None:
    few = write(tmp_path / "few" / "dump.json", range(20), "Torch.exp")
    golden = write(tmp_path / "golden" / "dump.json", range(_RECORDS), "Torch.exp")
    mine = write(tmp_path / "mine" / "dump.json", numbers, name)
    found, peak = rows_and_peak(mine, golden, jobs)
    assert found == rows
    assert peak < rows_and_peak(few, few, jobs)[1] + _MARGIN_MB
    assert _RECORDS * len(_FILLER) > 1.5 * (_MARGIN_MB << 20)
