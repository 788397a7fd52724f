"""``ait llm errcheck`` around programs: what they plant is found, and clean ones leave no file."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ait_llm
from ait_llm.probe.library import find_packaged

pytestmark = pytest.mark.native
PROGRAMS = Path(__file__).parent / "programs"
LLAMA = [sys.executable, "-m", "ait_llm.hostatb.demo.llama", "--tokens", "2"]
LINE = "Overflow detected! Operator name: "


def errcheck(
    folder: Path, words: list[str], *options: str, fault: str = ""
) -> subprocess.CompletedProcess[str]:
    if find_packaged("libatb_probe_abi1.so", os.environ) is None:
        pytest.skip("needs the compiled libraries")
    # The checkout need not be installed, and the traced program starts in another folder.
    source = str(Path(ait_llm.__file__).parent.parent)
    paths = [source, str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("ATB_")}
    environ |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environ |= {"HOSTATB_FAULT": fault} if fault else {}
    command = [sys.executable, "-m", "ait_llm", "llm", "errcheck", "--exec", shlex.join(words)]
    return subprocess.run(
        [*command, *options, "-o", str(folder)],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def findings(folder: Path) -> list[tuple[str, str, int]]:
    """Origin, operation and rank."""
    found = json.loads((folder / "ait_overflow_res.json").read_text())["findings"]
    return [(each["origin"], each["place"]["name"], each["place"]["rank"]) for each in found]


def reports(folder: Path) -> list[list[str]]:
    """The operators of each process, without their kernels."""
    texts = [path.read_text() for path in sorted(folder.glob("ait_overflow_res_*.txt"))]
    for text in texts:
        assert all(line.startswith(LINE) for line in text.splitlines())
    return [
        [line.removeprefix(LINE).partition(":")[0] for line in text.splitlines()] for text in texts
    ]


def test_a_clean_run_leaves_nothing_and_one_line_says_what_was_checked(tmp_path: Path) -> None:
    done = errcheck(tmp_path, LLAMA)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ait llm errcheck")]
    assert "no overflow in 63 operations, 225 tensors, " in line
    assert "of 2 passes in 1 process" in line
    assert list(tmp_path.iterdir()) == []


def test_what_attention_bears_is_found_with_its_first_element(tmp_path: Path) -> None:
    done = errcheck(tmp_path, LLAMA, fault="inf_at_step@SelfAttention:layer=0")
    assert done.returncode == 1
    assert "born in  SelfAttentionOperation_2_0_2_1 (id 2_0_2_1), step 0, rank 0" in done.stderr
    # the fault writes the middle one of 11 * 4 * 16 elements
    assert "float16 [11, 4, 16]: 1 Inf, first at [5, 2, 0], in tokens" in done.stderr
    assert findings(tmp_path) == [("born", "SelfAttentionOperation_2_0_2_1", 0)]
    (operators,) = reports(tmp_path)
    assert operators[:2] == ["SelfAttentionOperation_2_0_2_1", "LinearOperation_2_0_3"]
    assert len(operators) == len(set(operators))
    # nothing but the two result files stays behind
    assert len(list(tmp_path.iterdir())) == 2


def test_with_exit_the_program_stops_and_what_was_found_is_the_verdict(tmp_path: Path) -> None:
    fault = "inf_at_step@SelfAttention:layer=0"
    done = errcheck(tmp_path, LLAMA, "--exit", fault=fault)
    assert done.returncode == 1  # not 2, the demo's own for an operation that fails
    assert reports(tmp_path) == [["SelfAttentionOperation_2_0_2_1"]]
    assert findings(tmp_path) == [("born", "SelfAttentionOperation_2_0_2_1", 0)]


def test_an_unwritten_cache_that_nobody_reads_is_padding(tmp_path: Path) -> None:
    done = errcheck(tmp_path, [sys.executable, str(PROGRAMS / "odd_cache.py")], "--values")
    assert done.returncode == 0, done.stderr
    assert "PagedAttentionOperation_8_0_2_1 reads only what is beside it" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_entry_behind_the_sequences_end_leaks(tmp_path: Path) -> None:
    program = [sys.executable, str(PROGRAMS / "odd_cache.py")]
    done = errcheck(tmp_path, program, fault="stale_padding@PagedAttention:layer=1")
    assert done.returncode == 1
    assert findings(tmp_path)[0] == ("leak", "PagedAttentionOperation_9_0_2_1", 0)


def test_what_one_rank_bears_is_found_there(tmp_path: Path) -> None:
    done = errcheck(tmp_path, [sys.executable, str(PROGRAMS / "odd_ranks.py")])
    assert done.returncode == 1
    assert findings(tmp_path) == [("born", "LinearOperation_0", 1)]
    assert "on ranks 0-1" in done.stderr
    spread = ["AllReduceOperation_1", "ElewiseOperation_2"]
    assert sorted(reports(tmp_path)) == [spread, ["LinearOperation_0", *spread]]


def test_a_signal_that_ends_the_program_is_passed_on(tmp_path: Path) -> None:
    done = errcheck(tmp_path, [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert done.returncode == 128 + 9
    assert "failed" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_fails_where_nothing_was_found_is_no_verdict(tmp_path: Path) -> None:
    done = errcheck(tmp_path, [sys.executable, "-c", "raise SystemExit(1)"])
    assert done.returncode == 6
    assert "failed" in done.stderr


def test_a_torch_program_is_checked_without_a_change(tmp_path: Path) -> None:
    code = (
        "import torch, tiny_net; net = tiny_net.Net(); net.up.bias.data.fill_(3e38);"
        "net.up.weight.data.fill_(3e38); print(net(tiny_net.inputs() + 1).shape)"
    )
    program = [sys.executable, "-c", code]
    done = errcheck(tmp_path, program, "--type", "torch", "--values")
    assert done.returncode == 1, done.stderr
    assert done.stdout == "torch.Size([3, 4])\n"
    assert findings(tmp_path) == [("born", "root.up", 0)]
    assert reports(tmp_path) == [["root.up", "root.down"]]
