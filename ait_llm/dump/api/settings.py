"""What to record: the settings of ``config.json`` and the arguments that override them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.errors import UsageError

TASKS = ("statistics", "tensor", "overflow_check", "structure")
LEVELS = ("L0", "L1", "mix", "debug")
_DATA_MODES = ("all", "forward", "backward", "input", "output")
_SUMMARIES = ("statistics", "md5", "xor")
_RISKS = ("ALL", "CORE", "FOCUS")
_MAX_NUMBER = 1_000_000
_MAX_PATH = 4096
_PATH = re.compile(r"[\w./:-]*", re.ASCII)
_RANGE = re.compile(r"\s*([0-9]{1,9})\s*-\s*([0-9]{1,9})\s*")
_KNOWN_ELSEWHERE = {
    "acc_check": "run 'ait llm api-check' on a statistics or tensor dump",
    "run_ut": "run 'ait llm api-check' on a statistics or tensor dump",
    "nan_check": "take overflow_check, which works on every device",
    "free_benchmark": "compare two tensor dumps",
    "grad_probe": "take statistics with level L0, which has the gradients of parameters",
    "diff_check": "compare two md5 dumps, then take tensors of the first call that differs",
    "exception_dump": "every task keeps the inputs of a call that raises",
}
# Keys that are read here, or that tools of this format know; what is nearly one of them is a slip.
_KEYS = frozenset(
    {
        *("acc_check", "async_dump", "bench_path", "custom_op_namespaces", "dump_enable"),
        *("dump_path", "enable_dataloader", "extra_info", "is_deterministic", "level", "load"),
        *("precision", "rank", "request_id", "risk_level", "seed", "step", "task", "wrap_ops"),
    }
) | {*TASKS, *_KNOWN_ELSEWHERE}
_TASK_KEYS = frozenset(
    {
        *("bench_path", "custom_api", "data_mode", "diff_nums", "list", "load"),
        *("overflow_nums", "scope", "slice", "summary_mode", "tensor_list"),
    }
)


@dataclass(frozen=True)
class Slice:
    """Which part of tensors of one size is looked at: ``begin`` to ``end`` of a dimension."""

    dim: int
    size: int
    begin: int
    end: int


@dataclass(frozen=True)
class ApiSettings:
    """All settings of one capture; see docs/precision-debugger.md for their meaning."""

    dump_path: Path
    task: str = "statistics"
    level: str = "L1"
    ranks: frozenset[int] = frozenset()
    steps: frozenset[int] = frozenset()
    scope: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    tensor_names: tuple[str, ...] = ()
    forward: bool = True
    backward: bool = True
    inputs: bool = True
    outputs: bool = True
    summary: str = "statistics"
    extra_info: bool = True
    asynchronous: bool = False
    risk_level: str = "FOCUS"
    custom_op_namespaces: tuple[str, ...] = ()
    overflow_nums: int = 1
    slices: tuple[Slice, ...] = ()
    wrap_ops: Path | None = None
    enabled: bool | None = None
    exact: bool = False
    request_id: str = ""
    custom_apis: tuple[str, ...] = ()

    @property
    def data(self) -> bool:
        """True if every recorded tensor gets a file."""
        return self.task == "tensor"

    @property
    def modules(self) -> bool:
        return self.level in ("L0", "mix")

    @property
    def apis(self) -> bool:
        return self.level in ("L1", "mix")


def read_settings(
    config_path: str | Path | None = None,
    *,
    task: str | None = None,
    dump_path: str | Path | None = None,
    level: str | None = None,
    step: Sequence[Any] | None = None,
) -> ApiSettings:
    """Settings from a ``config.json``, with arguments that override it.

    Raises:
        UsageError: a key has a value that means nothing; the text names the key.
    """
    config: dict[str, Any] = {}
    if config_path is not None:
        config = _read_config(Path(config_path))
    config |= {
        key: value
        for key, value in (("task", task), ("dump_path", dump_path), ("level", level))
        if value is not None
    }
    if step is not None:
        config["step"] = list(step)
    if config_path is None:
        return settings_of(config)
    try:
        return settings_of(config, Path(config_path))
    except UsageError as error:
        raise UsageError(f"{config_path}: {error}") from error


def read_graph_settings(config_path: Path, *, dump_path: str | Path | None = None) -> ApiSettings:
    """Settings of a capture of replayed graphs, whose level is L0 where the file has none.

    Raises:
        UsageError: a key has a value that means nothing; the text names the key.
    """
    level = None if _read_config(config_path).get("level") else "L0"
    settings = read_settings(config_path, dump_path=dump_path, level=level)
    if settings.task not in ("statistics", "tensor"):
        raise UsageError(
            f"{config_path}: task: {settings.task!r} is not for AclGraphDumper, which records "
            "statistics or tensor; start the engine in eager mode (enforce_eager) for it"
        )
    if settings.level == "debug":
        raise UsageError(f"{config_path}: level: AclGraphDumper records L0, L1 or mix, not debug")
    return settings


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: the configuration cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid JSON ({error}); correct the file") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path}: a configuration is one JSON object")
    return config


def settings_of(config: Mapping[str, Any], config_path: Path | None = None) -> ApiSettings:
    """Checked settings of a parsed ``config.json``.

    Raises:
        UsageError: a key has a value that means nothing; the text names the key.
    """
    task = config.get("task", "statistics")
    if isinstance(task, str) and task in _KNOWN_ELSEWHERE:
        raise UsageError(f"task {task!r} is not a capture here: {_KNOWN_ELSEWHERE[task]}")
    _one_of("task", task, TASKS)
    level = config.get("level") or "L1"
    if level == "L2":
        raise UsageError(
            "level 'L2' captures kernels through the NPU's own dump; take L0, L1 or mix here, or "
            "ait_llm.dump.torchair_dump for compiled graphs"
        )
    _one_of("level", level, LEVELS)
    section = config.get(task) or {}
    if not isinstance(section, Mapping):
        raise UsageError(f"{task}: the settings of a task are one JSON object")
    _refuse_slips(config, _KEYS)
    _refuse_slips(section, _TASK_KEYS)
    for key in ("bench_path", "load"):
        if section.get(key) or config.get(key):
            raise UsageError(f"{key} is not supported; remove it and compare two dumps instead")
    if config.get("enable_dataloader"):
        raise UsageError(
            "enable_dataloader is not supported: call start, stop and step around each iteration"
        )
    modes = _strings("data_mode", section.get("data_mode") or ["all"])
    for mode in modes:
        _one_of("data_mode", mode, _DATA_MODES)
    if "all" in modes and len(modes) > 1:
        raise UsageError("data_mode: 'all' stands alone")
    summary = section.get("summary_mode") or "statistics"
    _one_of("summary_mode", summary, _SUMMARIES)
    risk = config.get("risk_level", "FOCUS") or "ALL"
    _one_of("risk_level", risk, _RISKS)
    names = _strings("list", section.get("list") or [])
    _one_of("precision", config.get("precision") or "low", ("low", "high"))
    asynchronous = _switch("async_dump", config.get("async_dump"), default=False)
    enabled = config.get("dump_enable")
    if enabled is not None:
        _switch("dump_enable", enabled, default=False)
    return ApiSettings(
        dump_path=checked_dump_path(config.get("dump_path")),
        task=task,
        level=level,
        ranks=_numbers("rank", config.get("rank") or []),
        steps=_numbers("step", config.get("step") or []),
        scope=_scope(section.get("scope") or [], level),
        names=names,
        tensor_names=_strings("tensor_list", section.get("tensor_list") or []),
        forward=_half(modes, "forward", "backward"),
        backward=_half(modes, "backward", "forward"),
        inputs=_half(modes, "input", "output"),
        outputs=_half(modes, "output", "input"),
        summary=summary,
        extra_info=_switch("extra_info", config.get("extra_info"), default=True),
        asynchronous=asynchronous,
        risk_level=risk,
        custom_op_namespaces=_strings(
            "custom_op_namespaces", config.get("custom_op_namespaces") or []
        ),
        overflow_nums=_overflow_nums(section.get("overflow_nums", 1)),
        slices=_slices(section.get("slice") or []),
        wrap_ops=_wrap_ops(config.get("wrap_ops"), config_path),
        enabled=enabled,
        exact=config.get("precision") == "high",
        request_id=_request_id(config.get("request_id")),
        custom_apis=_strings("custom_api", section.get("custom_api") or []),
    )


def _refuse_slips(given: Mapping[str, Any], known: frozenset[str]) -> None:
    """Refuse a key that is nearly a known one; any other may be of a later version."""
    for key in given:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.8) if key not in known else []
        if near:
            raise UsageError(f"{key!r} is no setting; is {near[0]!r} meant?")


def _switch(key: str, value: object, *, default: bool) -> bool:
    if value is None:
        return default
    if not isinstance(value, bool):
        raise UsageError(f"{key}: true or false")
    return value


def checked_dump_path(value: object) -> Path:
    """The absolute folder of a ``dump_path``.

    Raises:
        UsageError: there is none, or its name has characters or a length that files may not have.
    """
    if value is None or value == "":
        raise UsageError("dump_path: the folder to write to is missing in the configuration")
    if not isinstance(value, (str, Path)):
        raise UsageError("dump_path: the name of a folder")
    path = Path(value).absolute()
    if _PATH.fullmatch(str(path)) is None:
        raise UsageError(
            f"The file path {path} contains special characters; take a dump_path whose absolute "
            "path has only letters, digits and _ . / : -"
        )
    if len(str(path)) > _MAX_PATH:
        raise UsageError(f"dump_path: longer than {_MAX_PATH} characters")
    return path


def _one_of(key: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UsageError(f"{key}: {value!r} is none of {', '.join(choices)}")


def _half(modes: Sequence[str], one: str, other: str) -> bool:
    """Whether a half of the data is wanted: a half that nobody names is there with the other."""
    return "all" in modes or one in modes or other not in modes


def _strings(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{key}: a list of texts")
    return tuple(value)


def _numbers(key: str, value: object) -> frozenset[int]:
    """The numbers of ``[0, "4-6"]``."""
    if not isinstance(value, (list, tuple)):
        raise UsageError(f'{key}: a list of numbers and ranges such as [0, "4-6"]')
    found: set[int] = set()
    for item in value:
        bounds = (
            re.fullmatch(r"\s*(\d{1,9})\s*-\s*(\d{1,9})\s*", item)
            if isinstance(item, str)
            else None
        )
        if bounds is not None:
            first, last = int(bounds[1]), int(bounds[2])
        elif isinstance(item, int) and not isinstance(item, bool):
            first = last = item
        else:
            raise UsageError(f'{key}: {item!r} is neither a number nor a range such as "4-6"')
        if not 0 <= first <= last <= _MAX_NUMBER:
            raise UsageError(f"{key}: {item!r} is not within 0 to {_MAX_NUMBER}, first to last")
        found.update(range(first, last + 1))
    return frozenset(found)


def _scope(value: object, level: str) -> tuple[str, ...]:
    scope = _strings("scope", value)
    if not scope:
        return ()
    if len(scope) != 2:
        raise UsageError("scope: two full names, the first and the last to record, or none")
    for name in scope:
        module = name.startswith(("Module.", "Cell."))
        if level in ("L0", "L1") and module != (level == "L0"):
            example = (
                "Module.layers.0.Block.forward.0" if level == "L0" else "Torch.matmul.0.forward"
            )
            raise UsageError(f"scope: {name!r} is no name of level {level}; such as {example}")
    return scope


def _overflow_nums(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or (value < 1 and value != -1):
        raise UsageError("overflow_nums: a number from 1, or -1 for no end")
    return value


def _request_id(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise UsageError("request_id: the id of one request of an engine, a text")
    return value or ""


_NO_SLICES = 'slice: a list of {"dim": 0, "size": 8, "begin": 2, "end": 4}'


def _slices(value: object) -> tuple[Slice, ...]:
    if not isinstance(value, list):
        raise UsageError(_NO_SLICES)
    return tuple(map(_slice, value))


def _slice(value: object) -> Slice:
    try:
        if isinstance(value, Mapping):
            part = Slice(*(int(value[key]) for key in ("dim", "size", "begin", "end")))
            if part.dim >= 0 and 0 <= part.begin < part.end <= part.size:
                return part
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    raise UsageError(_NO_SLICES)


def _wrap_ops(value: object, config_path: Path | None) -> Path | None:
    """The user's list of functions; by default the one beside the configuration, if there is."""
    if value is not None:
        if not isinstance(value, str):
            raise UsageError("wrap_ops: the name of a YAML file")
        path = Path(value)
        return path if path.is_absolute() or config_path is None else config_path.parent / path
    if config_path is not None:
        for name in ("support_wrap_ops.yaml", "custom_wrap_ops.yaml"):
            beside = config_path.parent / name
            if beside.is_file():
                return beside
    return None
