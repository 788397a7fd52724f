"""Capsules unpacked and run where only Python, torch and NumPy can be imported."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

# Python's own modules, torch and NumPy, with what those two need; all else of this environment is
# refused, this package first of all.
LONE = """
import json, runpy, sys
from importlib.abc import Loader
from importlib.machinery import PathFinder
from importlib.util import spec_from_loader
NEEDED = {"torch", "numpy", "torchgen", "functorch", "typing_extensions", "sympy", "mpmath"}
NEEDED |= {"networkx", "filelock", "jinja2", "markupsafe", "fsspec", "setuptools", "source"}
class Refused(Loader):
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        own = first in sys.stdlib_module_names or first.startswith("_sysconfigdata")
        if first not in NEEDED and not own and PathFinder.find_spec(first) is not None:
            return spec_from_loader(name, self)  # torch asks what is there, and imports none of it
    def exec_module(self, module):
        raise ModuleNotFoundError(f"refused: {module.__name__}", name=module.__name__)
sys.meta_path.insert(0, Refused())
for arguments in json.loads(sys.argv[1]):
    for name in [each for each in sys.modules if each.partition(".")[0] == "source"]:
        del sys.modules[name]
    sys.argv = arguments
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        import traceback
        traceback.print_exc(file=sys.stdout)
        code = f"{type(error).__name__}: {error}"
    finally:
        sys.path.remove(arguments[0].rpartition("/")[0])
    print(f"\\n-- ended with {code}")
"""


def unpacked(capsule: Path) -> Path:
    """The script of a capsule, unpacked beside it."""
    folder = capsule.with_suffix("")
    with zipfile.ZipFile(capsule) as archive:
        archive.extractall(folder)
    return folder / "run.py"


def run_alone(commands: Sequence[Sequence[str | Path]]) -> list[tuple[int | str, str]]:
    """Run scripts one after the other in one isolated interpreter; exit code and output of each."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    ran = subprocess.run(
        [sys.executable, "-I", "-u", "-c", LONE, words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    texts = ran.stdout.split("\n-- ended with ")
    found: list[tuple[int | str, str]] = []
    for before, after in itertools.pairwise(texts):
        code = after.partition("\n")[0]
        text = before if not found else before.partition("\n")[2]
        found.append((int(code) if code.lstrip("-").isdigit() else code, text))
    if len(found) != len(commands):
        raise RuntimeError(ran.stdout)
    return found
