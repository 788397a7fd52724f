"""What the functions of ptdbg were told: where to write, and which calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ait_llm.errors import UsageError

# The version of ptdbg_ascend whose interface and layout this is; part of the folder's name.
VERSION = "2.0"
MODES = ("all", "list", "range", "stack", "acl", "api_list", "api_stack")
STACK_PREFIX = "api_stack_"
_SUFFIX = ".pkl"
_PATH = re.compile(r"[\w./-]*", re.ASCII)
_TAG = re.compile(r"[\w.-]+", re.ASCII)
_MAX_PATH = 4096


class SwitchError(UsageError, AssertionError):
    """An argument that ptdbg answers with an AssertionError."""


class DumpPathError(UsageError, RuntimeError):
    """A path that ptdbg answers with a RuntimeError."""


@dataclass(frozen=True, slots=True)
class DumpPath:
    """Where a capture goes.

    Attributes:
        folder: the folder above that of the tag.
        stem: name of the ``.pkl`` file without its suffix.
        tag: name of the folder without the version.
    """

    folder: Path
    stem: str = "dump"
    tag: str = "ptdbg_dump"

    def of_rank(self, rank: int) -> Path:
        """``{folder}/{tag}_v{version}/rank{N}``."""
        return self.folder / f"{self.tag}_v{VERSION}" / f"rank{rank}"


def checked_path(fpath: str | Path | None, tag: str = "ptdbg_dump") -> DumpPath:
    """The place that a path and a tag mean.

    Raises:
        DumpPathError: no path, a folder, or a name with characters that files should not have.
    """
    if not isinstance(fpath, str | Path) or not str(fpath):
        raise DumpPathError(f"set_dump_path '{fpath}' error, please set a valid filename")
    path = Path(fpath).absolute()
    check_characters(path)
    if path.is_dir():
        raise DumpPathError(
            f"set_dump_path '{path}' error, please set a valid filename: it is a folder; "
            f"give the name of a file such as {path / 'dump.pkl'}"
        )
    if path.suffix != _SUFFIX:
        raise DumpPathError(
            f"set_dump_path '{path}' error, please set a valid filename: it must end with .pkl"
        )
    if not isinstance(tag, str) or _TAG.fullmatch(tag) is None or tag in (".", ".."):
        raise DumpPathError(
            f"set_dump_path: dump_tag {tag!r} is no name of a folder; letters, digits and _ . - "
            "may be in it"
        )
    return DumpPath(path.parent, path.stem, tag)


def check_characters(path: Path) -> None:
    """Refuse paths that other tools of this field refuse.

    Raises:
        DumpPathError: special characters, or too long.
    """
    if _PATH.fullmatch(str(path)) is None:
        raise DumpPathError(
            f"The file path {path} contains special characters. Only letters, digits and _ / . - "
            "may be in it; a relative path counts with the folder that the program runs in"
        )
    if len(str(path)) > _MAX_PATH:
        raise DumpPathError(f"The file path {path} is longer than {_MAX_PATH} characters")


@dataclass(frozen=True, slots=True)
class Switch:
    """What :func:`set_dump_switch` was told.

    Attributes:
        on: whether calls are written.
        mode: one of :data:`MODES`.
        scope: names of calls.
        api_list: parts of names of functions, in lower case.
        everything: also tensors of integers and truth values, tensors without dims, and scalars.
        direction: ``all``, ``forward`` or ``backward``.
    """

    on: bool
    mode: str = "all"
    scope: tuple[str, ...] = ()
    api_list: tuple[str, ...] = ()
    everything: bool = False
    direction: str = "all"

    @property
    def stacks(self) -> bool:
        """Whether call stacks are written."""
        return self.mode in ("stack", "api_stack")

    @property
    def tensors(self) -> bool:
        """Whether tensors are written."""
        return self.mode not in ("stack", "acl")


def checked_switch(
    switch: str,
    mode: str = "all",
    scope: Sequence[str] = (),
    api_list: Sequence[str] = (),
    filter_switch: str = "ON",
    dump_mode: str = "all",
) -> Switch:
    """The switch that arguments mean.

    Raises:
        SwitchError: an argument has no meaning; the text names it.
    """
    if mode not in MODES:
        raise SwitchError(f"set_dump_switch, mode {mode!r} is none of {', '.join(MODES)}")
    is_on = checked_on_off("switch", switch)
    if filter_switch not in ("ON", "OFF"):
        raise SwitchError("Please set filter_switch with 'ON' or 'OFF'.")
    if dump_mode not in ("all", "forward", "backward"):
        raise SwitchError("Please set dump_mode with 'all' or 'forward' or 'backward'.")
    names, apis = _names("scope", scope), _names("api_list", api_list)
    if is_on:
        _check_lengths(mode, names, apis)
    return Switch(
        is_on,
        mode,
        names,
        tuple(api.lower() for api in apis),
        filter_switch == "OFF",
        dump_mode,
    )


def checked_on_off(name: str, value: str) -> bool:
    """True for ``ON``.

    Raises:
        SwitchError: neither ``ON`` nor ``OFF``.
    """
    if value not in ("ON", "OFF"):
        raise SwitchError(f"Please set dump {name} with 'ON' or 'OFF'.")
    return value == "ON"


def _check_lengths(mode: str, scope: tuple[str, ...], api_list: tuple[str, ...]) -> None:
    invalid = "set_dump_switch, scope param set invalid, "
    if mode == "range" and len(scope) != 2:
        raise SwitchError(f"{invalid}it's must be [start, end].")
    if mode == "list" and not scope:
        raise SwitchError(f"{invalid}it's should not be an empty list.")
    if mode == "stack" and len(scope) > 2:
        raise SwitchError(f"{invalid}it's must be [start, end] or [].")
    if mode == "acl" and len(scope) != 1:
        raise SwitchError(f"{invalid}only one api name is supported in acl mode.")
    if mode in ("api_list", "api_stack") and scope:
        raise SwitchError(f"{invalid}mode {mode!r} takes no scope.")
    if mode == "api_list" and not api_list:
        raise SwitchError(
            "Current dump mode is 'api_list', but the content of api_list parameter is empty "
            "or valid."
        )


def _names(name: str, value: Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise SwitchError(f"set_dump_switch, {name} is a list of names")
    return tuple(value)


class ScopeWatch:
    """Which calls a scope holds; a range opens and closes with the calls that it sees.

    Args:
        switch: the settings.
    """

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._is_begun = self._is_ended = False
        self.matched = 0

    def wants(self, name: str, api: str) -> bool:
        """Whether a call is written.

        Args:
            name: of the call, ``Tensor_permute_1_forward``.
            api: of its function, ``Tensor_permute``.
        """
        found = self._wants(name, api)
        self.matched += found
        return found

    def _wants(self, name: str, api: str) -> bool:
        switch = self._switch
        if not switch.on:
            return False
        if switch.mode == "api_list":
            return any(part in api.lower() for part in switch.api_list)
        if switch.mode == "list" or (switch.mode == "stack" and len(switch.scope) == 1):
            return any(map(_begins, [name] * len(switch.scope), switch.scope))
        if switch.mode == "range" or (switch.mode == "stack" and len(switch.scope) == 2):
            return self._within(name)
        if switch.mode == "acl":
            return _begins(name, switch.scope[0].replace("backward", "forward"))
        return True

    def _within(self, name: str) -> bool:
        first, last = self._switch.scope
        if not self._is_begun and _begins(name, first):
            self._is_begun = True
        found = self._is_begun and not self._is_ended
        if found and _begins(name, last):
            self._is_ended = True
        return found


def _begins(name: str, part: str) -> bool:
    """True if a name begins so; ``Tensor_add_1`` is not the beginning of ``Tensor_add_10``."""
    if not name.startswith(part):
        return False
    rest = name[len(part) :]
    return not (part[-1:].isdigit() and rest[:1].isdigit())
