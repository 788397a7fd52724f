"""``ait llm compare`` with lines of patterns: given, saved, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait

torch = pytest.importorskip("torch")


class Apart(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Three projections."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 6), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return self.one(x).sum() + self.two(x).sum()


class Joined(torch.nn.Module):  # type: ignore[misc,name-defined]
    """The same in one."""

    def __init__(self, apart: Apart) -> None:
        super().__init__()
        self.both = torch.nn.Linear(4, 8)
        parts = apart.one, apart.two
        self.both.weight.data = torch.cat([each.weight.data for each in parts])
        self.both.bias.data = torch.cat([each.bias.data for each in parts])

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return self.both(x).sum()


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dumps")
    torch.manual_seed(0)
    apart = Apart()
    paths = folder / "golden", folder / "mine"
    for model, path in zip((apart, Joined(apart)), paths, strict=True):
        with torch.no_grad(), register_hook(model, DumpConfig(str(path))):
            model(torch.ones(1, 3, 4))
    return paths


def _compare(dumps: tuple[Path, Path], mapping: Path, folder: Path, *words: str) -> Result:
    names = ["-gp", str(dumps[0]), "-mp", str(dumps[1]), "-mf", str(mapping), "-o", str(folder)]
    return CliRunner().invoke(ait, ["llm", "compare", *names, "--format", "jsonl", *words])


def _rows(folder: Path) -> list[tuple[str, str, str, str]]:
    """Operators, what is taken of mine, and verdict of the pairs that the mapping gave."""
    (report,) = folder.glob("*.jsonl")
    lines = map(json.loads, report.read_text().splitlines())
    return [
        (line["golden"]["op"], line["mine"]["op"], line.get("my_view", ""), line["verdict"])
        for line in lines
        if line.get("rule") == "saved_mapping"
    ]


def test_given_columns_are_measured_and_saved_as_they_were_given(
    dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    mapping, saved = tmp_path / "mapping.txt", tmp_path / "saved.txt"
    mapping.write_text("{one,two} -> both[columns]\n")
    first = _compare(dumps, mapping, tmp_path / "first", "--save-mapping", str(saved))
    assert first.exit_code in (0, 3), first.output
    rows = _rows(tmp_path / "first")
    assert rows == [
        ("root.one", "root.both", "0:6 of axis 2", "PASS"),
        ("root.two", "root.both", "6:8 of axis 2", "PASS"),
    ]
    assert "{one,two} -> both[columns]" in saved.read_text().splitlines()
    assert _compare(dumps, saved, tmp_path / "again").exit_code == first.exit_code
    assert set(rows) <= set(_rows(tmp_path / "again"))


def test_columns_in_the_wrong_order_fail(dumps: tuple[Path, Path], tmp_path: Path) -> None:
    mapping = tmp_path / "mapping.txt"
    mapping.write_text("{two,one} -> both[columns]\n")
    assert _compare(dumps, mapping, tmp_path / "report").exit_code == 1


def test_a_wrong_name_is_refused_before_anything_is_measured(
    dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    mapping = tmp_path / "mapping.txt"
    mapping.write_text("# columns\n{one,too} -> both[columns]\n")
    result = _compare(dumps, mapping, tmp_path / "report")
    assert result.exit_code == 2
    assert "mapping.txt:2: the golden dump has no operation 'too'" in result.output
    assert "two" in result.output
    assert not list((tmp_path / "report").glob("*"))


class Twins(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Two branches that nothing but their weights tells apart; their order is free."""

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__()
        self._names = names
        for name in names:
            parts = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)
            self.add_module(name, torch.nn.ModuleList(parts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        found = []
        for name in self._names:
            first, norm, last = self.get_submodule(name)
            found.append(last(norm(first(x))))
        return sum(found)


def test_what_a_line_pairs_is_an_anchor_for_what_reads_it(tmp_path: Path) -> None:
    """Without weights the branches are paired in order, which is wrong; one line puts it right."""
    torch.manual_seed(0)
    golden, mine = Twins(("a", "b")), Twins(("x", "y"))
    for name, other in (("a", "y"), ("b", "x")):
        state = golden.get_submodule(name).state_dict()
        mine.get_submodule(other).load_state_dict(state)
    paths = tmp_path / "golden", tmp_path / "mine"
    draw = torch.Generator().manual_seed(1)
    given = torch.randn(1, 5, 8, generator=draw)
    for model, path in zip((golden, mine), paths, strict=True):
        with torch.no_grad(), register_hook(model, DumpConfig(str(path))):
            model(given)
    mapping = tmp_path / "map.txt"
    mapping.write_text("a.0 -> y.0\nb.0 -> x.0\n")
    found = _compare(paths, mapping, tmp_path / "out")
    assert found.exit_code == 0, found.output
    pairs = {(row[0], row[1]) for row in _pairs(tmp_path / "out")}
    for one, other in (("a", "y"), ("b", "x")):
        for part in (0, 1, 2):
            assert (f"root.{one}.{part}", f"root.{other}.{part}") in pairs


def _pairs(folder: Path) -> list[tuple[str, str]]:
    (report,) = folder.rglob("*.jsonl")
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    rows = [line for line in lines if line["type"] == "comparison"]
    return [(r["golden"]["op"], r["mine"]["op"]) for r in rows if r["golden"] and r["mine"]]
