"""Records which options torchair's ``CompilerConfig`` has, as JSON for tests.

    python scripts/record_torchair_options.py NAME=PACKAGE ... > tests/data/torchair/options.json

PACKAGE is a wheel of torch_npu, or a folder that contains the Python package ``torchair``. Only its
``configs`` are imported, as they are; torchair's C++ library, which needs CANN, is not.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

GROUPS = (
    "debug",
    "dump_config",
    "fusion_config",
    "mode",
)  # the others have nothing to do with dumps
IN_WHEEL = PurePosixPath("torch_npu/dynamo")


def unpack(package: Path, folder: Path) -> Path:
    """Folder that contains the package ``torchair``: Python sources of a wheel, or the folder."""
    if package.is_dir():
        return package
    with zipfile.ZipFile(package) as wheel:
        for name in wheel.namelist():
            if name.endswith(".py") and PurePosixPath(name).is_relative_to(IN_WHEEL / "torchair"):
                wheel.extract(name, folder)
    return folder / IN_WHEEL


def load_config(folder: Path) -> type[Any]:
    """The class ``CompilerConfig`` of the package in a folder."""
    package = ModuleType("torchair")  # its own __init__ loads the C++ library
    package.__path__ = [str(folder / "torchair")]
    sys.modules["torchair"] = package
    from torchair.configs.compiler_config import CompilerConfig

    package.CompilerConfig = CompilerConfig
    return CompilerConfig


def describe(config: Any) -> dict[str, Any]:
    """The options below a group: groups as objects of options, options as what they take."""
    tree: dict[str, Any] = {}
    for name in sorted({*config._fixed_attrs, *vars(config)} - {"_fixed_attrs"}):
        value = getattr(config, name)
        if isinstance(getattr(type(config), name, None), property):
            tree[name] = {"option": "property"}
        elif hasattr(value, "_fixed_attrs"):
            tree[name] = {"group": describe(value)}
        elif hasattr(value, "value"):
            kept = {key.rpartition("__")[2]: item for key, item in vars(value).items()}
            facts = {key: kept[key] for key in ("default", "optional", "regex") if key in kept}
            tree[name] = {"option": type(value).__name__, **facts}
        else:
            tree[name] = {"option": "attribute"}
    return tree


def record(package: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        tree = describe(load_config(unpack(package, Path(folder)))())
    return {name: tree[name] for name in GROUPS if name in tree}


def main(arguments: list[str]) -> None:
    if len(arguments) == 1 and "=" not in arguments[0]:
        print(json.dumps(record(Path(arguments[0]))))
        return
    trees = {}
    for argument in arguments:
        name, _, package = argument.partition("=")
        command = [sys.executable, __file__, package]  # two packages of one name need two processes
        trees[name] = json.loads(subprocess.check_output(command))
    print(json.dumps(trees, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
