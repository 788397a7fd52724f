"""A model whose weights are in memory for as long as one of its parts runs.

Its parts are its layers, and what else of it is large. All parameters begin without memory; those
of a part are read from safetensors when the first group of requests comes to it, and dropped when
the last has left it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.core.optional import import_optional
from ait_llm.dump.golden.checkpoint import Checkpoint, cannot_load, no_progress
from ait_llm.errors import FormatError, UsageError

_LARGE = 1 << 20
"""Elements of a module outside of the layers that make it a part of its own."""


class StreamedModel:
    """The model of a checkpoint, whose parts are loaded when they are met.

    Args:
        checkpoint: with safetensors.
        dtype: of its parameters.
        device: where they run.
        attention: implementation of attention.

    Raises:
        FormatError: no safetensors, or one is damaged.
        UsageError: it is quantised, or transformers names its weights in a way not known here.
    """

    def __init__(
        self, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, attention: str
    ) -> None:
        if checkpoint.bits:
            raise UsageError(
                f"{checkpoint.folder} is quantised ({checkpoint.bits}) and cannot be run layer by "
                "layer; give the checkpoint that it was made from"
            )
        self._checkpoint = checkpoint
        self._dtype, self._device = dtype, device
        self._files = _index(checkpoint.folder)
        self.model = _without_memory(checkpoint, dtype, attention)
        for name, buffer in self.model.named_buffers():
            _set(self.model, name, buffer.to(device))
        self.parts = _parts(self.model)
        self._keys = self._keys_of_parts()
        self._loaded: set[str] = set()
        self._load("")

    def be_at(self, places: set[str]) -> None:
        """Have the weights of these parts in memory, and of no other one."""
        for part in self._loaded - places - {""}:
            self._drop(part)
        for part in sorted(places - self._loaded - {""}):
            self._load(part)

    def _keys_of_parts(self) -> Mapping[str, list[str]]:
        """Names in the files of the weights of each part; "" for what belongs to none."""
        target = _renaming(self.model)
        known = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        known |= {name for name, _ in self.model.named_buffers()}
        found: dict[str, list[str]] = {"": [], **{part: [] for part in self.parts}}
        for key in self._files:
            name = target(key)
            if name in known:
                found[self._home(name)].append(key)
        return found

    def _load(self, part: str) -> None:
        """Read the weights of a part.

        Raises:
            UsageError: some of them are not in the files.
        """
        self._fill(part)
        tied = _tied(self.model)
        for name, parameter in list(self._parameters(part)):
            if parameter.is_meta and name in tied:
                self._borrow(name, tied[name])
        for name, parameter in self._parameters(part):
            if parameter.is_meta:
                raise UsageError(
                    f"{self._checkpoint.folder} has no weight for {name}, or under a name that "
                    "is not known here; it cannot be run layer by layer"
                )
        self._loaded.add(part)

    def _fill(self, part: str) -> None:
        values = {key: self._read(key) for key in self._keys[part]}
        _fill(self.model, values, self._dtype, self._checkpoint)
        for name, parameter in list(self._parameters(part)):
            if not parameter.is_meta and parameter.device != self._device:
                moved = nn.Parameter(parameter.to(self._device), requires_grad=False)
                _set(self.model, name, moved)

    def _borrow(self, name: str, source: str) -> None:
        """Give a parameter the value of the one that it is tied to, which another part may hold."""
        home = self._home(source)
        if home not in self._loaded:
            self._fill(home)
        _set(self.model, name, self.model.get_parameter(source))
        if home not in self._loaded and home != self._home(name):
            self._drop(home)

    def _drop(self, part: str) -> None:
        for name, parameter in list(self._parameters(part)):
            _set(self.model, name, _empty(parameter))
        self._loaded.discard(part)

    def _parameters(self, part: str) -> Iterator[tuple[str, nn.Parameter]]:
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            if self._home(name) == part:
                yield name, parameter

    def _home(self, name: str) -> str:
        """The part that a parameter belongs to; "" for none."""
        return next((each for each in self.parts if name.startswith(f"{each}.")), "")

    def _read(self, key: str) -> Tensor:
        path = self._files[key]
        library = import_optional("safetensors", "ait llm golden", "golden")
        try:
            with library.safe_open(path, framework="pt", device="cpu") as file:
                value: Tensor = file.get_tensor(key)
        except Exception as error:  # the reader has an error of its own
            raise FormatError(path, f"cannot be read: {str(error).splitlines()[0]}") from error
        return value


def _index(folder: Path) -> dict[str, Path]:
    """The file of each weight."""
    library = import_optional("safetensors", "ait llm golden", "golden")
    found: dict[str, Path] = {}
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            table = json.loads(index.read_text("utf-8"))["weight_map"]
            return {str(key): folder / str(name) for key, name in table.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(index, f"is no index of weights ({error})") from error
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with library.safe_open(path, framework="pt", device="cpu") as file:
                found |= dict.fromkeys(file.keys(), path)
        except Exception as error:  # the reader has an error of its own
            raise FormatError(path, f"cannot be read: {str(error).splitlines()[0]}") from error
    if not found:
        raise FormatError(folder, "holds no safetensors, which running layer by layer needs")
    return found


def _without_memory(checkpoint: Checkpoint, dtype: torch.dtype, attention: str) -> nn.Module:
    """The model with parameters on meta, and buffers as its code computes them."""
    make = checkpoint.library.AutoModelForCausalLM.from_config
    try:
        with _no_memory(), _no_initial_values(checkpoint):
            model: nn.Module = make(
                checkpoint.config,
                dtype=dtype,
                attn_implementation=attention,
                trust_remote_code=checkpoint.trusted,
            )
    except (ValueError, KeyError, OSError, ImportError, RuntimeError) as error:
        raise UsageError(cannot_load(checkpoint, error)) from error
    return model.eval()


@contextmanager
def _no_memory() -> Iterator[None]:
    """Parameters that are registered become meta ones; the memory they had was never touched."""
    register = nn.Module.register_parameter

    def registered(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(module, name, None if parameter is None else _empty(parameter))

    nn.Module.register_parameter = registered  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


@contextmanager
def _no_initial_values(checkpoint: Checkpoint) -> Iterator[None]:
    """Nothing is drawn, where the library can do without."""
    places = ("initialization", "modeling_utils")
    for place in places:
        module = __import__(f"{checkpoint.library.__name__}.{place}", fromlist=["_"])
        skip: Callable[[], Any] | None = getattr(module, "no_init_weights", None)
        if skip is not None:
            with skip():
                yield
            return
    yield


def _parts(model: nn.Module) -> list[str]:
    """Layers, and other modules that are large, by name; none lies within another one."""
    found: list[str] = []
    lists = {
        name: len(module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
    }
    for name, count in lists.items():
        if not any(name.startswith(f"{each}.") for each in lists):
            found += [f"{name}.{number}" for number in range(count)]
    for name, module in model.named_modules():
        inside = any(name == each or name.startswith(f"{each}.") for each in found)
        size = sum(each.numel() for each in module.parameters(recurse=False))
        if name and not inside and size >= _LARGE and not list(module.children()):
            found.append(name)
    return found


def _renaming(model: Any) -> Callable[[str], str]:
    """What transformers calls a weight of a file in the model."""
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    names |= {name for name, _ in model.named_buffers()}
    prefix = str(getattr(model, "base_model_prefix", ""))

    def plainly(key: str) -> str:
        if key in names or not prefix:
            return key
        short = key.removeprefix(f"{prefix}.")
        return short if short in names else f"{prefix}.{key}"

    try:
        from transformers import core_model_loading as loading
        from transformers.conversion_mapping import get_model_conversion_mapping
    except ImportError:  # before version 5 weights go by the names of the files
        return plainly
    mapping = get_model_conversion_mapping(model)
    renamings = [each for each in mapping if isinstance(each, loading.WeightRenaming)]
    converters = [each for each in mapping if isinstance(each, loading.WeightConverter)]
    state = model.state_dict()

    def renamed(key: str) -> str:
        name = str(loading.rename_source_key(key, renamings, converters, prefix, state)[0])
        return name if name in names else plainly(key)

    return renamed


def _fill(
    model: Any, values: Mapping[str, Tensor], dtype: torch.dtype, checkpoint: Checkpoint
) -> None:
    """Give parameters their values, converted as transformers does where it does."""
    if not values:
        return
    try:
        from transformers import core_model_loading as loading
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.modeling_utils import LoadStateDictConfig
    except ImportError:
        name = _renaming(model)
        for key, value in values.items():
            _set(model, name(key), nn.Parameter(value.to(dtype), requires_grad=False))
        return
    mapping: Any = get_model_conversion_mapping(model)
    settings = LoadStateDictConfig(dtype=dtype, weight_mapping=mapping, device_map={"": "cpu"})
    try:
        with no_progress(checkpoint):
            loading.convert_and_load_state_dict_in_model(model, dict(values), settings)
    except (ValueError, KeyError, RuntimeError, TypeError) as error:
        raise UsageError(cannot_load(checkpoint, error)) from error


def _tied(model: Any) -> dict[str, str]:
    """Parameters that are another one, with that."""
    found = getattr(model, "all_tied_weights_keys", None)
    if isinstance(found, Mapping):
        return {str(name): str(source) for name, source in found.items()}
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    names = {id(module): name for name, module in model.named_modules()}
    if head is None or not getattr(model.config, "tie_word_embeddings", False):
        return {}
    return {f"{names[id(head)]}.weight": f"{names[id(table)]}.weight"}


def _set(model: nn.Module, name: str, value: Tensor) -> None:
    owner, _, last = name.rpartition(".")
    module = model.get_submodule(owner)
    if last in module._parameters:
        module._parameters[last] = value  # type: ignore[assignment]
    else:
        module._buffers[last] = value


def _empty(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False)
