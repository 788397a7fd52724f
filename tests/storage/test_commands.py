"""Commands on dumps elsewhere: the same result, exit code and words as on the same files here."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from api_dumps import call, tensor, write_dump
from click.testing import CliRunner
from compare_dumps import AtbPair
from compiled_dumps import CompiledRun, request
from graph_dumps import GraphDump
from object_store import Store
from odd_store import OddFileSystem

from ait_llm.cli.main import ait
from ait_llm.storage import places

# when it was and how long it took; when files were changed
_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d|20\d{6}_?\d{6}|\d+\.\d+ s\b"
    r'|"stamp":\[[\d,]+\]|"(time|started|finished)":[\d.]+'
)


class Ran:
    """What a command said and wrote."""

    def __init__(self, words: Sequence[str], output: Path | None, called: str) -> None:
        result = CliRunner().invoke(ait, ["llm", *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.code = result.exit_code
        self.files: dict[str, str] = {}
        self.text = self._neutral(result.output, output, called)
        for path in sorted(output.rglob("*")) if output is not None else ():
            if path.is_file():
                name = _TIME.sub("TIME", str(path.relative_to(output)))
                content = path.read_bytes().decode("utf-8", "backslashreplace")
                self.files[name] = self._neutral(content, output, called)

    @staticmethod
    def _neutral(text: str, output: Path | None, called: str) -> str:
        """Without where things lie, times and line ends, which depend on the length of names."""
        assert "ait-storage" not in text, text
        assert "ait-results" not in text, text
        if output is not None:
            text = text.replace(str(output), "OUT")
        return " ".join(_TIME.sub("TIME", text.replace(called, "DATA")).split())


def same(store: Store, data: Path, tmp_path: Path, words: str, *, output: bool = True) -> Ran:
    """Run a command on a folder here and there; ``DATA`` and ``OUT`` in words are places."""
    url = store.put(data)
    ran = []
    for number, place in enumerate((str(data), url)):
        out = tmp_path / f"out{number}" if output else None
        given = words.replace("DATA", place).replace("OUT", str(out)).split()
        ran.append(Ran(given, out, place))
    here, there = ran
    assert there.code == here.code
    assert there.text == here.text
    assert there.files == here.files
    assert not output or here.files
    return there


def faulty_pair(root: Path) -> Path:
    pair = AtbPair(root)
    values = np.random.default_rng(7)
    for place in range(11):
        golden = values.standard_normal((300, 300) if place == 4 else (8, 16)).astype(np.float32)
        mine = golden + np.float32(0.25 if place >= 4 else 0)
        pair.add(f"{place}_ElewiseOperation", golden, mine)
    return root


def test_compare_of_acceleration_library_dumps(store: Store, tmp_path: Path) -> None:
    data = faulty_pair(tmp_path / "data")
    words = "compare -gp DATA/golden/ait_dump -mp DATA/mine/ait_dump -o OUT --format csv html junit"
    ran = same(store, data, tmp_path, words)
    assert ran.code == 1
    assert "ElewiseOperation_4" in ran.text


def test_compare_of_one_step_of_a_dump(memory: Store, tmp_path: Path) -> None:
    data = faulty_pair(tmp_path / "data")
    part = "ait_dump/tensors/0_4242/0"
    words = f"compare -gp DATA/golden/{part} -mp DATA/mine/{part} -o OUT --format csv"
    assert same(memory, data, tmp_path, words).code == 1


def test_compare_of_torch_dumps(store: Store, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for side, offset in (("golden", 0.0), ("mine", 0.5)):
        root = data / side / "ait_dump/torch_tensors/cpu0_4242/0"
        for number in range(3):
            folder = root / f"root.layers.{number}"
            folder.mkdir(parents=True)
            shape = (300, 300) if number == 2 else (4, 8)
            values = torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape)
            torch.save(values, folder / "input_0.pth")
            torch.save(values * 2 + (offset if number == 2 else 0), folder / "output_0.pth")
    words = "compare -gp DATA/golden -mp DATA/mine -o OUT --format csv jsonl"
    ran = same(store, data, tmp_path, words)
    assert ran.code == 1
    assert "root.layers.2" in ran.text


def _api_dumps(root: Path) -> Path:
    for side, offset in (("golden", 0.0), ("mine", 0.5)):
        for rank in (0, 1):
            inputs, outputs = [1.0, 2.0, 3.0], [2.0, 4.0, 6.0 - 20 * offset * rank]
            record = call(
                [tensor(inputs, name="Torch.add.0.forward.input.0.pt")],
                [tensor(outputs, name="Torch.add.0.forward.output.0.pt")],
            )
            write_dump(
                root / side,
                {"Torch.add.0.forward": record},
                rank=rank,
                task="tensor",
                tensors={
                    "Torch.add.0.forward.input.0.pt": np.float32(inputs),
                    "Torch.add.0.forward.output.0.pt": np.float32(outputs),
                },
                stacks={"0": [["Torch.add.0.forward"], ["File a.py, line 1, in f, \n x"]]},
            )
    return root


def test_compare_of_api_dumps(store: Store, tmp_path: Path) -> None:
    data = _api_dumps(tmp_path / "data")
    words = "compare -gp DATA/golden/step0 -mp DATA/mine/step0 -o OUT --format csv"
    ran = same(store, data, tmp_path, words)
    assert ran.code == 1
    assert "Torch.add.0.forward" in ran.text


def test_compare_json_names_urls(memory: Store, tmp_path: Path) -> None:
    data = _api_dumps(tmp_path / "data")
    url = memory.put(data)
    codes, tables = [], []
    for number, place in enumerate((str(data), url)):
        file, out = tmp_path / f"compare{number}.json", tmp_path / f"out{number}"
        rank = "step0/rank1/dump.json"
        paths = {"npu_path": f"{place}/mine/{rank}", "bench_path": f"{place}/golden/{rank}"}
        file.write_text(json.dumps({**paths, "is_print_compare_log": False}))
        ran = Ran(["compare", "-i", str(file), "-o", str(out), "--format", "csv"], out, place)
        codes.append(ran.code)
        tables.append(list(ran.files.values()))
    assert codes == [1, 1]
    assert tables[0] == tables[1]


def test_compare_of_compiled_graphs(store: Store, tmp_path: Path) -> None:
    data = tmp_path / "data"
    x = request(rows=600)
    golden, mine = CompiledRun(data / "golden"), CompiledRun(data / "mine")
    golden.fx(x)
    mine.graph()
    mine.ge(x, changed={"top": np.float32(1) + mine.values(x)["top"]})
    ran = same(store, data, tmp_path, "compare -gp DATA/golden -mp DATA/mine -o OUT")
    assert ran.code == 1
    assert "topk" in ran.text.lower()


def test_compare_of_two_files(memory: Store, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name, offset in (("golden.npy", 0.0), ("mine.npy", 9000.0)):
        np.save(data / name, np.arange(90_000, dtype=np.float32) + np.float32(offset))
    words = "compare -gp DATA/golden.npy -mp DATA/mine.npy -o OUT --format csv jsonl"
    assert same(memory, data, tmp_path, words).code == 1


def test_opcheck(store: Store, tmp_path: Path) -> None:
    data = tmp_path / "data"
    GraphDump(data / "ait_dump", scale=(1.0, 1.5)).write()
    words = "opcheck -i DATA/ait_dump/tensors/0_4242/0 -o OUT --format csv markdown junit"
    ran = same(store, data, tmp_path, words)
    assert ran.code == 1
    assert "LinearOperation_1_0" in ran.text


def test_errcheck(store: Store, tmp_path: Path) -> None:
    data = tmp_path / "data"
    GraphDump(data / "ait_dump", scale=(1.0, float("inf"))).write()
    ran = same(store, data, tmp_path, "errcheck --dump DATA -o OUT --json")
    assert ran.code == 1
    assert "LinearOperation_1_0" in ran.text


def test_show(store: Store, tmp_path: Path) -> None:
    data = tmp_path / "data"
    GraphDump(data / "ait_dump").write()
    ran = same(store, data, tmp_path, "show DATA/ait_dump --tensors", output=False)
    assert ran.code == 0
    assert same(store, data, tmp_path, "show DATA --json", output=False).code == 0


def test_show_of_large_tensors_fetches_their_headers_only(s3: Store, tmp_path: Path) -> None:
    data = faulty_pair(tmp_path / "data")
    url = s3.put(data)
    ran = Ran(["show", f"{url}/mine", "--tensors"], None, url)
    assert "[300,300]" in ran.text
    large = [file for file in places.staged_files.values() if file.size > 300_000]
    assert len(large) == 1
    assert not any(file.here for file in large)


def test_convert(store: Store, tmp_path: Path) -> None:
    data = faulty_pair(tmp_path / "data")
    words = "convert DATA/mine/ait_dump/tensors -o OUT --to npy"
    ran = same(store, data, tmp_path, words)
    assert ran.code == 0
    assert len(ran.files) == 11


def test_replay(memory: Store, tmp_path: Path) -> None:
    data = tmp_path / "data"
    GraphDump(data / "ait_dump").write()
    tensors = []
    for place in (str(data), memory.put(data)):
        out = tmp_path / f"out{len(tensors)}"
        ran = Ran(["replay", "--dump", f"{place}/ait_dump", "-o", str(out)], out, place)
        assert ran.code == 0
        tensors.append({name: text for name, text in ran.files.items() if "/ledger/" not in name})
    assert tensors[1] == tensors[0]
    assert "; 0 B more" in ran.text  # copies do not last, so no file is shared with them


def test_api_check(memory: Store, tmp_path: Path) -> None:
    data = _api_dumps(tmp_path / "data")
    ran = same(memory, data, tmp_path, "api-check -api_info DATA/golden -o OUT")
    assert "1" in ran.text


def test_file_urls_are_local_paths(tmp_path: Path) -> None:
    data = faulty_pair(tmp_path / "data")
    words = "compare -gp {0}/golden/ait_dump -mp {0}/mine/ait_dump -o {1}"
    given = words.format(f"file://{data}", f"file://{tmp_path}/out").split()
    ran = Ran(given, tmp_path / "out", str(data))
    assert ran.code == 1
    assert ran.files
    assert not places.staged_files


def test_each_file_is_fetched_once_and_no_header_alone(odd: Store, tmp_path: Path) -> None:
    pair = AtbPair(tmp_path / "data")
    for place in range(6):
        values = np.full((300, 300), place, np.float32)
        pair.add(f"{place}_ElewiseOperation", values, values)
    url = odd.put(tmp_path / "data")
    OddFileSystem.calls.clear()
    words = f"compare -gp {url}/golden/ait_dump -mp {url}/mine/ait_dump -o {tmp_path}/out"
    assert Ran(words.split(), tmp_path / "out", url).code == 0
    assert len(OddFileSystem.calls) == len(set(OddFileSystem.calls)) == 12


@pytest.mark.parametrize("kept", [1, 700_000])
def test_a_small_cache_gives_the_same_report(
    s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    pair = AtbPair(tmp_path / "data")
    values = np.random.default_rng(3)
    for place in range(12):
        golden = values.standard_normal((300, 300)).astype(np.float32)
        pair.add(f"{place}_ElewiseOperation", golden, golden + np.float32(place == 9))
    monkeypatch.setenv("AIT_CACHE_BYTES", str(kept))
    words = "compare -gp DATA/golden/ait_dump -mp DATA/mine/ait_dump -o OUT --format csv"
    assert same(s3, tmp_path / "data", tmp_path, words).code == 1
    here = sum(file.size for file in places.staged_files.values() if file.here)
    assert here <= max(kept, 2 * 360_200)
