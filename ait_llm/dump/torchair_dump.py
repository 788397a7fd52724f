"""Configurations of torchair that make a model in graph mode dump what it computes.

Names and checks of options are those of torchair's ``configs`` package, from October 2023 to
torch_npu 2.13; ``docs/graph-mode.md`` says what is written where.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ait_llm.errors import FormatError, MissingDependencyError, UsageError
from ait_llm.formats.opening import read_small

GE_MODE = "max-autotune"
DUMP_MODES = ("input", "output", "all")
_MODULES = ("torchair", "torch_npu.dynamo.torchair")
_STEP = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_LAYER = re.compile(r"[0-9A-Za-z_/\\.]+")  # without the space, which separates names
_MAX_SWITCHES = 1 << 20  # bytes; there are a few hundred fusions
_INSTALL = (
    "install the torch_npu release of your torch version (pip install torch_npu==2.6.0 for torch "
    "2.6.0) and CANN"
)
_NEWER = "install a newer torch_npu"


def get_ge_dump_config(
    dump_path: str | Path = "ait_ge_dump",
    dump_mode: str = "all",
    fusion_switch_file: str | Path | None = None,
    dump_token: Sequence[int | str] | None = None,
    dump_layer: Sequence[str] | None = None,
    compiler_config: Any = None,
) -> Any:
    """A configuration under which GE dumps what its operators read and write, and the graph.

    ::

        config = torchair_dump.get_ge_dump_config("dumps")
        model = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))

    Everything is written below a new folder ``{dump_path}/dump_{YYYYmmdd_HHMMSS}``, with a number
    appended if there is one of that name. ``config.dump_config.dump_path.value`` names it.

    Args:
        dump_path: folder for dumps; created.
        dump_mode: what to dump of an operator: ``input``, ``output`` or ``all``.
        fusion_switch_file: JSON file that switches fusions of GE off or on.
        dump_token: steps to dump, counted from 0: numbers, or ranges such as ``"2-5"``; all of them
            by default. Every graph counts its own steps.
        dump_layer: operators to dump, by their names in GE's graph; all of them by default.
        compiler_config: a ``CompilerConfig`` of torchair to change; a new one by default.

    Returns:
        The ``CompilerConfig``.

    Raises:
        UsageError: an argument has a value that torchair cannot use, or the given configuration
            has options under which GE would dump nothing.
        FormatError: the file of fusion switches is not one.
        MissingDependencyError: torchair is missing, or too old for what was asked for.
    """
    if dump_mode not in DUMP_MODES:
        raise UsageError(f"dump_mode is {dump_mode!r}; it can be {', '.join(DUMP_MODES)}")
    steps = "|".join(map(_step, _listed("dump_token", dump_token)))
    layers = " ".join(map(_layer, _listed("dump_layer", dump_layer)))
    switches = _checked_switches(Path(fusion_switch_file)) if fusion_switch_file else None
    config = _configuration(compiler_config)
    _refuse(
        config,
        ("mode", lambda mode: mode not in (None, GE_MODE), f"GE runs in mode {GE_MODE} only"),
        ("debug.data_dump.type", bool, "an FX dump runs the model without GE"),
        ("debug.run_eagerly", _is_on, "the model would run without GE"),
        ("debug.fx_summary.type", bool, "a summary skips the compilation"),
        ("dump_config.dump_config_path", bool, "GE takes its dump options from one place only"),
    )
    if steps:
        _require(config, "dump_config.dump_step", "dump_token")
    if layers:
        _require(config, "dump_config.dump_layer", "dump_layer")
    folder = str(_new_folder(Path(dump_path)))
    _set(config, "debug.graph_dump.type", "txt")
    # From March 2024 to torchair 7.0.0 the option was private; since 7.1.0 it is a property.
    public = _has(config, "debug.graph_dump.path")
    _set(config, f"debug.graph_dump.{'path' if public else '_path'}", folder)
    _set(config, "dump_config.enable_dump", True)
    _set(config, "dump_config.dump_mode", dump_mode)
    _set(config, "dump_config.dump_path", folder)
    if switches:
        _set(config, "fusion_config.fusion_switch_file", switches)
    if steps:
        _set(config, "dump_config.dump_step", steps)
    if layers:
        _set(config, "dump_config.dump_layer", layers)
    return config


def get_fx_dump_config(dump_path: str | Path | None = None, compiler_config: Any = None) -> Any:
    """A configuration under which torchair runs the FX graph node by node and dumps every node.

    Args:
        dump_path: folder for dumps; everything is written below a new folder
            ``dump_{YYYYmmdd_HHMMSS}`` in it, ``config.debug.data_dump.path``. By default torchair
            writes below the working directory of the run.
        compiler_config: a ``CompilerConfig`` of torchair to change; a new one by default.

    Returns:
        The ``CompilerConfig``.

    Raises:
        UsageError: the given configuration is of another type or dumps with GE, or the folder
            cannot be created.
        MissingDependencyError: torchair is missing, or older than 7.1.0 and cannot be told where
            to write.
    """
    config = _configuration(compiler_config)
    _refuse(
        config,
        (
            "dump_config.enable_dump",
            _is_on,
            "a GE dump needs the graph engine, an FX dump skips it",
        ),
        ("debug.run_eagerly", _is_on, "the model would run without the dump"),
        ("debug.fx_summary.type", bool, "a summary skips the run"),
    )
    if dump_path:
        # Where ``path`` is an option, torchair puts it before every path twice and finds nothing.
        if not isinstance(getattr(type(config.debug.data_dump), "path", None), property):
            raise MissingDependencyError(
                "this torchair writes FX dumps below the working directory and nowhere else; "
                f"leave out dump_path, or {_NEWER}"
            )
        _set(config, "debug.data_dump.path", str(_new_folder(Path(dump_path))))
    _set(config, "debug.data_dump.type", "npy")
    return config


def _configuration(given: Any) -> Any:
    """The configuration to change, of the torchair that is installed."""
    cls = _config_class()
    if given is None:
        return cls()
    if not isinstance(given, cls):
        raise UsageError(
            f"compiler_config is of the type {type(given).__name__}; it must be a "
            "torchair.CompilerConfig"
        )
    return given


def _config_class() -> type[Any]:
    """``CompilerConfig``; ``import torch_npu`` makes ``torchair`` a module of its own."""
    for module in ("torchair", "torch_npu", *_MODULES):
        try:
            found = getattr(importlib.import_module(module), "CompilerConfig", None)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in ("torchair", "torch_npu"):
                raise _broken(module, error) from error
        except Exception as error:  # its shared libraries fail in many ways
            raise _broken(module, error) from error
        else:
            if isinstance(found, type):
                return found
    raise MissingDependencyError(
        f"dumping in graph mode needs torchair, which is part of torch_npu and was not found; "
        f"{_INSTALL}"
    )


def _broken(module: str, error: Exception) -> MissingDependencyError:
    lines = str(error).splitlines() or [type(error).__name__]
    return MissingDependencyError(
        f"{module} is installed and cannot be imported ({lines[0]}); run CANN's set_env.sh first, "
        f"or {_INSTALL}"
    )


def _refuse(config: Any, *rules: tuple[str, Callable[[Any], bool], str]) -> None:
    for option, applies, reason in rules:
        value = _value(config, option)
        if applies(value):
            raise UsageError(f"compiler_config.{option} is {value!r}, and {reason}; reset it")


def _is_on(value: Any) -> bool:
    return value in (True, "1")  # torchair gives truth values as text


def _value(config: Any, option: str) -> Any:
    """Value of an option; None where this torchair has no such option."""
    for name in option.split("."):
        config = getattr(config, name, None)
    return getattr(config, "value", config)


def _has(config: Any, option: str) -> bool:
    *groups, name = option.split(".")
    for group in groups:
        config = getattr(config, group, None)
    return hasattr(config, name)


def _require(config: Any, option: str, argument: str) -> None:
    if not _has(config, option):
        raise MissingDependencyError(
            f"{argument} needs the option {option}, which this torchair does not have; {_NEWER}"
        )


def _set(config: Any, option: str, value: Any) -> None:
    *groups, name = option.split(".")
    _require(config, option, "the dump")
    for group in groups:
        config = getattr(config, group)
    try:
        setattr(config, name, value)
    except (ValueError, TypeError, OSError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise UsageError(f"torchair refuses {option} = {value!r}: {reason}") from error


def _listed(argument: str, values: Any) -> Sequence[Any]:
    if values is None:
        return ()
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise UsageError(f"{argument} is {values!r}; it must be a list")
    return values


def _step(step: int | str) -> str:
    found = _STEP.fullmatch(str(step)) if not isinstance(step, bool) else None
    if found is None or (found[2] is not None and int(found[1]) > int(found[2])):
        raise UsageError(
            f"dump_token has {step!r}; a step is a number from 0 on, or a range such as '2-5'"
        )
    return found[0]


def _layer(name: str) -> str:
    if not isinstance(name, str) or not _LAYER.fullmatch(name):
        raise UsageError(
            f"dump_layer has {name!r}; names have letters, digits, '_', '/', '\\' and '.' only"
        )
    return name


def _checked_switches(path: Path) -> str:
    """Absolute path of a fusion switch file that GE can read."""
    text = read_small(path, _MAX_SWITCHES)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(path, "is not JSON", _SWITCHES) from None
    switch = data.get("Switch") if isinstance(data, dict) else None
    if not isinstance(switch, dict):
        raise FormatError(path, "has no object 'Switch'", _SWITCHES)
    for kind, passes in switch.items():
        if not isinstance(passes, dict):
            raise FormatError(path, f"{kind!r} is not an object of fusions", _SWITCHES)
        for name, state in passes.items():
            if state not in ("on", "off"):
                raise FormatError(path, f"{kind}.{name} is {state!r}, not 'on' or 'off'", _SWITCHES)
    return str(path.resolve())


_SWITCHES = 'Such a file holds {"Switch": {"GraphFusion": {"ALL": "off"}}}'


def _new_folder(parent: Path) -> Path:
    """``dump_{time}`` below a folder; a number is added until nothing has that name."""
    name = time.strftime("dump_%Y%m%d_%H%M%S")
    number = 0
    try:
        parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        while True:
            folder = parent.resolve() / (f"{name}_{number}" if number else name)
            try:
                folder.mkdir(mode=0o750)
            except FileExistsError:
                number += 1
            else:
                return folder
    except OSError as error:
        raise UsageError(
            f"{parent}: no folder for the dump can be created ({error.strerror or error}); "
            "give a writable dump_path"
        ) from error
