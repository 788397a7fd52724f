"""Damaged files that reach new code of a reader, found by atheris.

    scripts/fuzz --target npy --seconds 600 --keep found
    scripts/fuzz --seconds 60 --keep found --results results.jsonl --save --write

Files are changed as in ``mutations.py`` and as libFuzzer does. Those with new ways through a reader
stay in ``--keep``, from where the next run goes on; ``--save`` chooses few and small ones for the
repository, and ``--write`` writes all results into ``docs/robustness.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from instrumented import instrumented  # noqa: E402

_READERS = ("formats", "dumps", "topology", "report", "match.mapping", "match.saved_mapping")
_READERS += ("match.op_mapping", "match.file_runs", "probe.elf", "apicheck", "errcheck.files")
_READERS += ("compare.api", "compare.resume", "plan.model_config", "capsule.carried.program")
_READERS += ("opcheck.journal", "opcheck.baseline", "opcheck.repro_script", "dump.ledger")
_READERS += ("dump.torch_ledger", "dump.profiling", "dump.api.settings", "dump.inject.settings")
_READERS += ("dump.ptdbg.kernels", "hostatb.models")

with instrumented([f"ait_llm.{name}" for name in _READERS]):
    from targets import all_targets

from corpus import keep, kept  # noqa: E402
from exploring import Explored, explore  # noqa: E402
from fuzz_page import publish, read_results  # noqa: E402


def main() -> int:
    """0 if all promises were kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", action="append", help="name of a reader, all by default")
    parser.add_argument("--seconds", type=float, default=60, help="for each of them")
    parser.add_argument("--runs", type=int, default=(1 << 31) - 1, help="files for each, at most")
    parser.add_argument("--keep", type=Path, help="folder of found files; a run goes on from there")
    parser.add_argument(
        "--results", type=Path, help="file to which a line for each reader is added"
    )
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--save", action="store_true", help="choose the files of tests/data/fuzz")
    parser.add_argument("--write", action="store_true", help="write its part of the page")
    given = parser.parse_args()
    targets = all_targets()
    unknown = [name for name in given.target or () if name not in targets]
    if unknown:
        parser.error(f"no target {unknown[0]!r}; known: {', '.join(targets)}")
    found: list[Explored] = []
    with tempfile.TemporaryDirectory(prefix="ait-fuzz-") as temporary:
        base = given.keep or Path(temporary)
        for name in given.target or targets:
            target = targets[name]
            folder = base / name
            folder.mkdir(parents=True, exist_ok=True)
            explored = explore(target, folder, given.seconds, given.runs, given.seed, kept(name))
            found.append(explored)
            print(explored.line(), flush=True)
            if given.results is not None:
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(explored)) + "\n")
            if given.save:
                keep(target, folder / "corpus")
    if given.write:
        publish(found if given.results is None else read_results(given.results), targets)
    return int(any(each.findings for each in found))


if __name__ == "__main__":
    sys.exit(main())
