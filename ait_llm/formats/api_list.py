"""Which functions are recorded: the list of this package, and what users add to it or leave out.

The list is YAML of one simple form: sections with lists of names. It is read here without a YAML
library, and whatever goes beyond that form is an error with its line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from ait_llm.errors import UsageError

# What names of a section are called in a record, and where they are looked up.
PREFIXES: Mapping[str, str] = {
    "functional": "Functional",
    "tensor": "Tensor",
    "torch": "Torch",
    "_VF": "VF",
    "distributed": "Distributed",
    "npu_distributed": "Distributed",
    "mindspeed": "MindSpeed",
    "torch_npu": "NPU",
}
# Before a name: leave it out.
_LEAVE_OUT = "!"
_MAX_BYTES = 4 << 20
_SECTION = re.compile(r"^([\w.]+)\s*:\s*(\[.*\])?\s*$")
_ITEM = re.compile(r"^\s*-\s+(.+?)\s*$")
_NAME = re.compile(r"^!?[A-Za-z_][\w.]*$")

ApiList = dict[str, list[str]]


def read_sections(path: Path) -> ApiList:
    """Sections of names from a YAML file; comments and quotes are understood.

    Raises:
        UsageError: the file cannot be read, or is more than sections with lists of names.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path}: larger than {_MAX_BYTES} bytes; this is no list of names")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError(f"{path}: the list of functions cannot be read ({reason})") from error
    sections: ApiList = {}
    names: list[str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        if not line or line == "---":
            continue
        if section := _SECTION.match(line):
            names = sections.setdefault(section[1], [])
            for word in (section[2] or "[]")[1:-1].split(","):
                if word.strip():
                    names.append(_checked(word, path, number))
        elif (item := _ITEM.match(line)) and names is not None:
            names.append(_checked(item[1], path, number))
        else:
            raise UsageError(
                f"{path}:{number}: {raw.strip()!r} is neither a section such as 'torch:' nor a "
                "name such as '- relu' under one"
            )
    return sections


def _checked(word: str, path: Path, number: int) -> str:
    name = word.strip().strip("'\"")
    if not _NAME.match(name):
        raise UsageError(f"{path}:{number}: {name!r} is no name of a function")
    return name


@functools.cache
def shipped_apis() -> Mapping[str, tuple[str, ...]]:
    """The list of this package, by section."""
    sections = read_sections(Path(__file__).with_name("support_wrap_ops.yaml"))
    return {section: tuple(names) for section, names in sections.items()}


@functools.cache
def risk_names() -> tuple[frozenset[str], frozenset[str]]:
    """Names of the risk levels CORE (without the sections that are all in it) and LOW."""
    sections = read_sections(Path(__file__).with_name("risk_levels.yaml"))
    return frozenset(sections["core"]), frozenset(sections["low"])


def combined_apis(path: Path | None) -> tuple[ApiList, ApiList]:
    """The list of this package with a user's file.

    Args:
        path: sections as in ours add names, a name after ``!`` is left out. Any other section is a
            module, ``my_package.kernels: [fused_softmax]``, whose functions are recorded too.

    Returns:
        Names by section of ours, and names by module.

    Raises:
        UsageError: the file cannot be read.
    """
    apis = {section: list(names) for section, names in shipped_apis().items()}
    modules: ApiList = {}
    for section, names in (read_sections(path) if path is not None else {}).items():
        # Upper case as in `Tensor:` is how some write the sections.
        key = next((known for known in apis if known.lower() == section.lower()), None)
        target = apis[key] if key is not None else modules.setdefault(section, [])
        for name in names:
            if name.startswith(_LEAVE_OUT):
                target[:] = [known for known in target if known != name[1:]]
            elif name not in target:
                target.append(name)
    return apis, modules
