"""Files that become shorter while they are mapped; reading behind their end kills a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ait_llm.core import DType, TensorDesc
from ait_llm.formats import write_tensor

pytestmark = pytest.mark.native

_CUT = """
import os, sys
def cut(golden, mine):
    os.truncate(sys.argv[sys.argv.index("-gp") + 1], 4096)
    return float(golden.sum()), ""
"""
_MAPPED = """
import os, sys
from ait_llm import formats
from ait_llm.formats import mapped
array = {read}
os.truncate(sys.argv[1], 4096)
print(float(array[-1]), mapped.shortened() == [sys.argv[1]], mapped.shortened())
"""


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False, timeout=120
    )


def test_a_file_cut_while_compare_reads_it_is_an_error_and_no_crash(tmp_path: Path) -> None:
    for name in ("golden.npy", "mine.npy"):
        np.save(tmp_path / name, np.ones(1 << 20, np.float32))
    (tmp_path / "cut.py").write_text(_CUT, encoding="utf-8")
    golden, mine = tmp_path / "golden.npy", tmp_path / "mine.npy"
    done = run(
        *("-m", "ait_llm", "llm", "compare", "-gp", golden, "-mp", mine),
        *("-alg", f"{tmp_path / 'cut.py'}:cut", "-o", tmp_path),
    )
    assert done.returncode == 3, done.stderr
    said = "became shorter while it was read", "header says 4194304 bytes of data"
    assert any(text in " ".join(done.stdout.split()) for text in said)
    assert "PASS" not in done.stdout


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("x.bin", "formats.read_tensor(sys.argv[1], mmap=True)"),
        ("x.pt", "next(iter(formats.read_torch(sys.argv[1], mmap=True).values())).array"),
    ],
)
def test_what_is_mapped_reads_as_zeros_and_is_told(name: str, read: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "x.pt":
        torch.save(torch.ones(1 << 20), path)
    else:
        desc = TensorDesc(DType.FLOAT32, (1 << 20,))
        write_tensor(path, np.ones(1 << 20, np.float32), desc)
    done = run("-c", _MAPPED.format(read=read), path)
    assert done.stdout.split() == ["0.0", "True", "[]"], done.stderr


def test_a_bus_error_elsewhere_still_ends_the_process(tmp_path: Path) -> None:
    """A handler that swallowed all of them would hide damage that is not ours."""
    path = tmp_path / "x.npy"
    np.save(path, np.ones(1 << 20, np.float32))
    program = (
        "import mmap, os, sys\n"
        "from ait_llm.formats.mapped import mapped\n"
        "ours = mapped(open(sys.argv[1], 'rb'), 0, 8192, sys.argv[1])\n"
        "other = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 1 << 20, prot=mmap.PROT_READ)\n"
        "os.truncate(sys.argv[1], 4096)\n"
        "print(ours[5000], flush=True)\n"
        "print(other[9000])\n"
    )
    done = run("-c", program, path)
    assert (done.returncode, done.stdout) == (-7, "0\n")
