"""A checkpoint folder as a model of transformers, and whether it fits a capture."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ait_llm.core.optional import import_optional
from ait_llm.dump.golden.likeness import Likeness
from ait_llm.errors import FormatError, UsageError

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_OTHER_THAN_TEXT = re.compile(r"(image|video|audio|vision)\w*_token_(id|index)$")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose model transformers knows.

    Attributes:
        folder: where it lies.
        config: of the model.
        trusted: code of its own may run.
        library: the package ``transformers``.
    """

    folder: Path
    config: Any
    trusted: bool
    library: ModuleType

    @property
    def text(self) -> Any:
        """The configuration of the part that reads tokens."""
        get = getattr(self.config, "get_text_config", None)
        return self.config if get is None else get()

    @property
    def bits(self) -> str:
        """How its weights are quantised; empty where they are not."""
        found = getattr(self.config, "quantization_config", None)
        if found is None:
            return ""
        method = found.get("quant_method") if isinstance(found, dict) else None
        return str(method or getattr(found, "quant_method", None) or "quantised")

    def sizes(self) -> set[int]:
        """All whole numbers of its configuration: the lengths of axes are among them."""
        return set(_numbers(self.config.to_dict()))


def open_checkpoint(folder: Path, *, trusted: bool = False) -> Checkpoint:
    """Read the configuration of a checkpoint.

    Args:
        folder: with ``config.json`` and weights, as ``save_pretrained`` writes them.
        trusted: let code that lies beside it run.

    Raises:
        FormatError: there is no checkpoint, or it is damaged.
        MissingDependencyError: transformers is not installed.
        UsageError: transformers does not know the family, or it is no causal language model.
    """
    if not (folder / "config.json").is_file():
        raise FormatError(
            folder,
            "holds no checkpoint (config.json)",
            "Give the folder with config.json and the weights, as save_pretrained writes it",
        )
    if not any(next(folder.glob(pattern), None) for pattern in _WEIGHTS):
        raise FormatError(folder, "holds a config.json and no weights (*.safetensors)")
    library = import_optional("transformers", "ait llm golden", "golden")
    try:
        config = library.AutoConfig.from_pretrained(
            folder, trust_remote_code=trusted, local_files_only=True
        )
    except (ValueError, KeyError, OSError, ImportError) as error:
        raise UsageError(_unknown(folder, library, error)) from error
    if getattr(config, "is_encoder_decoder", False):
        raise UsageError(
            f"{folder}: {config.model_type} has an encoder and a decoder; golden runs models that "
            "read one sequence of tokens. Run it with ait llm dump --type torch"
        )
    return Checkpoint(folder, config, trusted, library)


def _unknown(folder: Path, library: ModuleType, error: Exception) -> str:
    family = re.search(r'"model_type"\s*:\s*"([^"]*)"', (folder / "config.json").read_text("utf-8"))
    first = str(error).strip().splitlines()[0][:160]
    if isinstance(error, ImportError):
        return (
            f"{folder}: transformers {library.__version__} cannot import what it needs ({first}); "
            "install, mend or remove the package that this names"
        )
    if family is None:
        return f"{folder}: config.json names no model_type that transformers knows ({first})"
    return (
        f"{folder}: transformers {library.__version__} does not know the family {family[1]!r}; "
        "install a version that does, or let code beside the checkpoint run with "
        "--trust-remote-code"
    )


def check_likeness(checkpoint: Checkpoint, like: Likeness) -> None:
    """Refuse a checkpoint that the capture cannot be of.

    Raises:
        UsageError: another vocabulary or width, or tokens that stand for images.
    """
    text, requests = checkpoint.text, like.rows.requests
    largest = max(max(tokens, default=0) for tokens in requests)
    words = getattr(text, "vocab_size", None)
    what = f"{checkpoint.folder} is not the checkpoint of {like.path}"
    if words is not None and largest >= words:
        raise UsageError(
            f"{what}: the capture reads token {largest}, and the checkpoint has {words} tokens"
        )
    hidden = getattr(text, "hidden_size", None)
    widths = {
        hidden,
        getattr(text, "embedding_size", None),
        getattr(text, "word_embed_proj_dim", None),
    }
    if hidden is not None and like.hidden is not None and like.hidden not in widths:
        raise UsageError(
            f"{what}: hidden states of the capture are {like.hidden} wide, those of the checkpoint "
            f"{hidden}"
        )
    padding = getattr(text, "pad_token_id", None)
    if any(padding in (requests[each][:1] + requests[each][-1:]) for each in like.rows.unsure):
        raise UsageError(
            f"{like.path}: a batch begins or ends with the padding token {padding}, and the "
            "capture has no mask that says whether it is padding; capture modules (--type torch), "
            "or run the requests one by one"
        )
    placeholders = dict(_placeholders(checkpoint.config))
    for tokens in requests:
        for token in tokens:
            if token in placeholders:
                raise UsageError(
                    f"{like.path} reads token {token} ({placeholders[token]}), which stands for "
                    "what is no text; golden has tokens alone. Run the model with ait llm dump "
                    "--type torch"
                )


def _placeholders(config: Any) -> Iterator[tuple[int, str]]:
    for name, value in config.to_dict().items():
        if _OTHER_THAN_TEXT.search(name) and isinstance(value, int):
            yield value, name


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _numbers(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _numbers(each)


def whole_model(
    checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, attention: str
) -> nn.Module:
    """The model with all its weights.

    Raises:
        UsageError: transformers cannot load it.
    """
    load = checkpoint.library.AutoModelForCausalLM.from_pretrained
    try:
        with no_progress(checkpoint):
            model: nn.Module = load(
                checkpoint.folder,
                dtype=dtype,
                attn_implementation=attention,
                trust_remote_code=checkpoint.trusted,
                local_files_only=True,
            )
    except (ValueError, KeyError, OSError, ImportError, RuntimeError) as error:
        raise UsageError(cannot_load(checkpoint, error)) from error
    return model.to(device).eval()


def cannot_load(checkpoint: Checkpoint, error: Exception) -> str:
    """That transformers refused, with its first line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return (
        f"{checkpoint.folder}: transformers {checkpoint.library.__version__} cannot load "
        f"{checkpoint.config.model_type}: {lines[0][:240]}"
    )


def free_memory(device: torch.device) -> int:
    """Bytes of weights that fit: they are loaded into memory, and then onto the device."""
    free = _free_host_memory()
    if device.type == "cpu":
        return free
    try:
        own = getattr(torch, "get_device_module", lambda one: getattr(torch, one.type))
        return min(free, int(own(device).mem_get_info(device)[0]))
    except (AttributeError, RuntimeError):  # a device that does not tell
        return free


def _free_host_memory() -> int:
    """Bytes that this process may still take; those of its container where it is in one."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        text = Path("/proc/meminfo").read_text("ascii")
        found = re.search(r"MemAvailable:\s+(\d+) kB", text)
        free = int(found[1]) * 1024 if found else free
        limit = Path("/sys/fs/cgroup/memory.max").read_text("ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text("ascii"))
        if limit.isdecimal():
            free = min(free, int(limit) - used)
    except (OSError, ValueError):
        pass
    return max(0, free)


@contextmanager
def no_progress(checkpoint: Checkpoint) -> Iterator[None]:
    """No progress bar of each layer."""
    logging = checkpoint.library.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
