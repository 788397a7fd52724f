"""The functions that scripts call: one capture for each process, as in ptdbg."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ait_llm.dump.api.capture import Capture
from ait_llm.dump.api.folders import rank as distributed_rank
from ait_llm.dump.api.interception import Interception
from ait_llm.dump.api.names import Receiver
from ait_llm.dump.ptdbg.account import PtdbgAccount
from ait_llm.dump.ptdbg.files import DumpFiles
from ait_llm.dump.ptdbg.kernels import KernelDump, KernelRecording, checked_config
from ait_llm.dump.ptdbg.overflow import OverflowRecording
from ait_llm.dump.ptdbg.recording import Numbers, PtdbgRecording
from ait_llm.dump.ptdbg.settings import (
    STACK_PREFIX,
    DumpPath,
    Switch,
    SwitchError,
    checked_on_off,
    checked_path,
    checked_switch,
)
from ait_llm.errors import UsageError
from ait_llm.formats.api_list import combined_apis

_log = logging.getLogger(__name__)
_RANK_VARIABLES = ("RANK", "LOCAL_RANK")


def acc_cmp_dump(*_: Any, **__: Any) -> None:
    """The hook that dumps: an argument of :func:`register_hook`, not to be called.

    Raises:
        UsageError: it was called.
    """
    raise UsageError("acc_cmp_dump is an argument: register_hook(model, acc_cmp_dump)")


def overflow_check(*_: Any, **__: Any) -> None:
    """The hook that detects overflow: an argument of :func:`register_hook`, not to be called.

    Raises:
        UsageError: it was called.
    """
    raise UsageError("overflow_check is an argument: register_hook(model, overflow_check)")


_Recording = PtdbgRecording | OverflowRecording | KernelRecording


@dataclass
class _Session:
    """What this process was told, and what runs in it."""

    place: DumpPath | None = None
    rank: int = 0
    capture: Capture | None = None
    recording: _Recording | None = None
    files: dict[Path, DumpFiles] = field(default_factory=dict)
    account: PtdbgAccount | None = None
    process: int = 0
    gradients: tuple[Path, ...] = ()


_session = _Session()


def set_dump_path(fpath: str | Path | None = None, dump_tag: str = "ptdbg_dump") -> None:
    """Set where the dump goes: ``{folder}/{dump_tag}_v{version}/rank{N}/{name}.pkl``.

    Args:
        fpath: ``{folder}/{name}.pkl``; a dump of the same name and tag is replaced.
        dump_tag: name of the folder without the version.

    Raises:
        DumpPathError: no path, a folder, or a name with special characters.
        UsageError: hooks are registered already.
    """
    place = checked_path(fpath, dump_tag)
    if _session.capture is not None and place != _session.place:
        raise UsageError(
            "set_dump_path comes before register_hook, and once: call unregister_hook() in between "
            "to begin another dump"
        )
    _session.place = place


def register_hook(
    model: nn.Module,
    hook: Callable[..., Any],
    overflow_nums: int = 1,
    dump_mode: str = "api",
    dump_config: str | Path | None = None,
    rank: int | None = None,
    wrap_ops: str | Path | None = None,
    **_: Any,
) -> None:
    """Begin to see the calls of the program; one model is enough for all of them.

    Args:
        model: any module; by default the rank is that of its device.
        hook: ``acc_cmp_dump`` or ``overflow_check``.
        overflow_nums: how many overflows end the program.
        dump_mode: ``api``, or ``acl`` for the kernels of one call (NPU).
        dump_config: JSON file of a kernel dump.
        rank: names the folder; by default that of torch.distributed, then of the environment
            (RANK), then the index of the model's device.
        wrap_ops: YAML file of functions that are seen too, or, after ``!``, are not.

    Raises:
        SwitchError: an argument has no meaning.
        UsageError: there is no path yet, or hooks are registered already.
        MissingDependencyError: ``acl`` without torch_npu.
    """
    if not hasattr(model, "named_modules"):
        raise SwitchError("Please register hooks to nn.Module.")
    if hook not in (acc_cmp_dump, overflow_check):
        raise SwitchError("register_hook, hook must be acc_cmp_dump or overflow_check.")
    if dump_mode not in ("api", "acl"):
        raise SwitchError("dump_mode only support ['api', 'acl']")
    if type(overflow_nums) is not int or overflow_nums < 1:
        raise SwitchError("register_hook, overflow_nums is a number from 1")
    if _session.capture is not None:
        raise UsageError(
            "register_hook was called already; one call, with any of the models, sees all of them"
        )
    numbers = Numbers()
    _session.rank = _rank_of(model) if rank is None else rank
    kernels = None
    if hook is overflow_check:
        if dump_mode == "acl":
            kernels = KernelDump(checked_config(dump_config))
        folder = (_session.place or DumpPath(Path.cwd())).of_rank(_session.rank)
        recording: _Recording = OverflowRecording(numbers, folder, overflow_nums, kernels)
    elif dump_mode == "acl":
        recording = KernelRecording(numbers, KernelDump(checked_config(dump_config)))
    elif _session.place is None:
        raise UsageError(
            "register_hook: call set_dump_path('./dump_path/name.pkl') before it, in every process"
        )
    else:
        recording = PtdbgRecording(numbers)
    _session.recording = recording
    apis, modules = combined_apis(None if wrap_ops is None else Path(wrap_ops))

    def interception(receive: Receiver) -> Interception:
        return Interception(receive, apis, modules)

    _session.capture = Capture(interception)
    _session.capture.open(recording)
    atexit.register(unregister_hook)


def unregister_hook() -> None:
    """End the capture and put everything back, so that another one can begin."""
    atexit.unregister(unregister_hook)
    capture, _session.capture = _session.capture, None
    if capture is not None:
        capture.close()
    if _session.recording is not None:
        _session.recording.active = False
    account, _session.account = _session.account, None
    if account is not None and os.getpid() == _session.process:
        account.close()
    for files in _session.files.values():
        files.close()
    _session.files = {}
    _session.recording = _session.place = None
    _session.gradients = ()


def set_dump_switch(
    switch: str,
    mode: str = "all",
    scope: Sequence[str] = (),
    api_list: Sequence[str] = (),
    filter_switch: str = "ON",
    dump_mode: str = "all",
) -> None:
    """Begin to write calls, or end it.

    Args:
        switch: ``ON`` or ``OFF``.
        mode: ``all``; ``list`` (calls of the scope), ``range`` (from the first to the last of two),
            ``stack`` (only call stacks), ``acl`` (kernels of one call), ``api_list`` (functions
            whose name contains one of ``api_list``), ``api_stack`` (everything with its stacks).
        scope: beginnings of names of calls, ``Tensor_permute_1_forward``.
        api_list: parts of names of functions, upper and lower case alike.
        filter_switch: ``OFF`` also writes integers, truth values, tensors without dims, scalars.
        dump_mode: ``all``, or only ``forward`` or ``backward`` calls.

    Raises:
        SwitchError: an argument has no meaning, or does not fit the mode.
        UsageError: no hooks are registered, or the files cannot be written.
    """
    found = checked_switch(switch, mode, scope, api_list, filter_switch, dump_mode)
    recording = _session.recording
    if isinstance(recording, KernelRecording):
        if found.on and found.mode != "acl":
            raise SwitchError(
                f"register_hook had dump_mode='acl': set_dump_switch takes mode='acl', not {mode!r}"
            )
        recording.gradient_files = _session.gradients
        recording.turn(found)
    elif isinstance(recording, PtdbgRecording):
        _turn(recording, found)
    elif isinstance(recording, OverflowRecording):
        raise UsageError("overflow_check is switched with set_overflow_check_switch")
    else:
        raise UsageError("set_dump_switch: call register_hook(model, acc_cmp_dump) before it")
    if not found.on:
        if mode == "list":
            _log.info("The number of matched dump is %d", recording.matched)
        _log.info("Dump switch is turned off")


def set_overflow_check_switch(switch: str, filter_switch: str = "ON") -> None:
    """Begin to look for overflow, or end it; without this the whole run is looked at.

    Args:
        switch: ``ON`` or ``OFF``.
        filter_switch: as in :func:`set_dump_switch`.

    Raises:
        SwitchError: an argument has no meaning.
        UsageError: no overflow check is registered.
    """
    is_on = checked_on_off("switch", switch)
    everything = not checked_on_off("filter_switch", filter_switch)
    if not isinstance(_session.recording, OverflowRecording):
        raise UsageError(
            "set_overflow_check_switch: call register_hook(model, overflow_check) before it"
        )
    _session.recording.is_on, _session.recording.everything = is_on, everything


def set_backward_input(backward_input: Sequence[str | Path]) -> None:
    """Set the gradient with which a kernel dump runs a backward call.

    Args:
        backward_input: ``.npy`` files that an earlier dump wrote as ``…_backward_input.0.npy``.

    Raises:
        SwitchError: it is no list of files.
        UsageError: a file does not exist.
    """
    if isinstance(backward_input, str | Path):
        raise SwitchError("set_backward_input takes a list of .npy files")
    paths = tuple(Path(each) for each in backward_input)
    for path in paths:
        if not path.is_file():
            raise UsageError(f"set_backward_input: {path}: no such file")
    _session.gradients = paths
    if isinstance(_session.recording, KernelRecording):
        _session.recording.gradient_files = paths


def _turn(recording: PtdbgRecording, switch: Switch) -> None:
    if switch.on and switch.mode == "acl":
        raise SwitchError(
            "mode='acl' needs register_hook(model, acc_cmp_dump, dump_mode='acl', "
            "dump_config='./dump.json')"
        )
    assert _session.place is not None
    files = None
    if switch.on:
        prefix = STACK_PREFIX if switch.mode == "api_stack" else ""
        path = _session.place.of_rank(_session.rank) / f"{prefix}{_session.place.stem}.pkl"
        files = _session.files.get(path)
        if files is None:
            files = _session.files[path] = DumpFiles(path, arrays=switch.tensors)
        if _session.account is None:
            _session.account = PtdbgAccount(path.parent)
            _session.process = os.getpid()
        if os.getpid() == _session.process:
            _session.account.window(switch, path)
    recording.account = _session.account
    recording.turn(switch, files)
    if not switch.on and _session.account is not None and os.getpid() == _session.process:
        _session.account.pause()


def _rank_of(model: nn.Module) -> int:
    """The rank of this process; the index of the model's device where nothing else says it."""
    found = distributed_rank()
    if found is not None:
        return found
    for variable in _RANK_VARIABLES:
        text = os.environ.get(variable, "")
        if text.isdecimal():
            return int(text)
    parameter = next(model.parameters(), None)
    index = None if parameter is None else parameter.device.index
    return index or 0
