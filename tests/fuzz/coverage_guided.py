"""A target under atheris, which looks for inputs that reach new code; docs/robustness.md.

pip install atheris
python tests/fuzz/coverage_guided.py npy -max_total_time=600
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found]  # optional, see above

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

_READERS = ("formats", "dumps", "topology", "probe", "report", "match.saved_mapping")
with atheris.instrument_imports(include=[f"ait_llm.{name}" for name in _READERS]):
    from engine import attempt, prepare
    from targets import all_targets

from ait_llm.errors import AitError  # noqa: E402


def main() -> None:
    """Run until libFuzzer has found something or its time is over."""
    target = all_targets()[sys.argv.pop(1)]
    base = Path(tempfile.mkdtemp(prefix="ait-fuzz-"))
    corpus = base / "corpus"
    folder = base / "inside" / "folder"
    for each in (corpus, folder):
        each.mkdir(parents=True)
    for number, seed in enumerate(target.corpus):
        (corpus / str(number)).write_bytes(seed)
    os.chdir(folder)
    prepare(target, folder)

    def test_one(data: bytes) -> None:
        try:
            problem = attempt(target, folder, data)
        except AitError:
            return
        if problem is not None:
            raise RuntimeError("\n".join(problem))

    atheris.Setup([*sys.argv, str(corpus)], test_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
