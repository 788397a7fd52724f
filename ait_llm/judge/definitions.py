"""Where the definitions of two operations differ that answer each other.

Two operations that both compute rightly and still differ are defined differently: by a number, a
flag, a function. Attributes are compared by what they mean. What only one implementation has is
compared where both sides run that implementation: modules of one class with the same attributes.
Nothing else is, because equal names of two libraries need not mean one thing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ait_llm.core.definition import DefinitionDifference
from ait_llm.dumps.model import Operation
from ait_llm.judge.definition_arguments import arguments, counts, is_attention
from ait_llm.judge.definition_meanings import is_deciding, is_factor, sort_of, stated
from ait_llm.program.describe import is_float, params_of, shape_of
from ait_llm.program.operators import kind_of
from ait_llm.program.roles import is_operator

_ROUNDING = 1e-6  # numbers that went through float32 on one side are the same
# They say nothing about what an inference computes.
_SILENT = frozenset(
    {
        "all_tied_weights_keys",
        "apply_rotary_emb_flash_attn",
        "attn_backend",
        "backend",
        "cpu_linear",
        "class",
        "dropout",
        "experts_cls",
        "impl",
        "in_features",  # which shapes tell, and one projection may compute what several do
        "inplace",
        "kernel_config",
        "kv_cache",
        "layer_name",
        "layerdrop",
        "layer_idx",
        "logits_to_keep",
        "loss_type",
        "make_empty_intermediate_tensors",
        "max_length",
        "max_position_embeddings",
        "max_seq_len_cached",
        "name",
        "name_or_path",
        "original_max_seq_len",
        "out_features",
        "p",
        "prefix",
        "quant_config",
        "quant_method",
        "transformers_version",
        "use_cache",
        "use_direct_call",
        "vocab_size",
        "architectures",
        "id2label",
        "label2id",
        "problem_type",
        "initializer_range",
        "initializer_factor",
        "return_dict",
        "router",
        "unquantized_backend",
        "gradient_checkpointing",
        "tie_word_embeddings",
        "training",
        "cache_position",
        "kwargs",
    }
)
_SILENT_WORDS = (
    "dtype",
    "dropout",
    "past_key_value",
    "output_",
    "_token_id",
    "isa",
    "tp_",
    "aiter",
    "flash",
)


def differences(
    golden: Operation, mine: Operation, *, is_whole: bool = True
) -> list[DefinitionDifference]:
    """What defines two operations differently that answer each other.

    Args:
        golden, mine: modules, operators or operations of ATB.
        is_whole: both processes compute the whole; False where ranks share it out.
    """
    is_alike = False
    if golden.definition and golden.type == mine.type and golden.definition == mine.definition:
        return []
    if is_operator(mine) or is_operator(golden):
        found = _of_operators(golden, mine) if is_operator(mine) and is_operator(golden) else {}
    else:
        found = _of_modules(golden, mine, is_whole=is_whole)
        is_alike = golden.type == mine.type and is_whole
        is_alike = is_alike and _are_of_one_implementation(_flat(golden), _flat(mine))
    return [_difference(golden, mine, *each, is_alike=is_alike) for each in found.values()]


_MODEL_TYPE = "config.model_type"
_TRAINING = "training"
_Found = dict[str, tuple[str, str, Any, Any, bool]]


def _of_operators(golden: Operation, mine: Operation) -> _Found:
    """Plain arguments of two calls of one operator."""
    if kind_of(golden) != kind_of(mine) or _reads(golden) != _reads(mine):
        return {}
    first, second = arguments(golden), arguments(mine)
    found: _Found = {}
    for name in first.keys() & second.keys():
        one, other = first[name], second[name]
        if name == "is_causal" and is_attention(mine) and len(mine.inputs) > 3:
            continue  # the mask may say it
        if not _is_same(one.value, other.value):
            found[name] = one.name, other.name, one.value, other.value, True
    return found


def _reads(operation: Operation) -> tuple[int, int]:
    """How many tensors it reads, and how many elements the first result has.

    Of what states how many values it chooses, it is the elements that it chooses from.
    """
    tensors = operation.inputs if counts(operation) else operation.outputs
    shape = shape_of(tensors[0]) if tensors else None
    return sum(map(is_float, operation.inputs)), math.prod(shape or ())


def _of_modules(golden: Operation, mine: Operation, *, is_whole: bool) -> _Found:
    found: _Found = {}
    named: set[str] = set()
    if sort_of(golden) == sort_of(mine):
        first = stated(golden, is_whole=is_whole)
        second = stated(mine, is_whole=is_whole)
        for meaning in first.keys() & second.keys():
            one, other = first[meaning], second[meaning]
            named |= {one.name, other.name}
            if not _is_same(one.value, other.value):
                found[meaning] = one.name, other.name, one.value, other.value, True
    one_side, other_side = _flat(golden), _flat(mine)
    if _trains(golden, one_side) is not _trains(mine, other_side):
        modes = one_side.get(_TRAINING), other_side.get(_TRAINING)
        if None not in modes:
            found[_TRAINING] = _TRAINING, _TRAINING, *modes, True
    if golden.type == mine.type and _are_of_one_implementation(one_side, other_side):
        for name in one_side.keys() & other_side.keys():
            if name.rpartition(".")[2] in named or not is_telling(name):
                continue
            values = one_side[name], other_side[name]
            if not _is_same(*values) and is_whole:
                found[f".{name}"] = name, name, *values, is_deciding(name)
    return found


def _trains(operation: Operation, flat: Mapping[str, Any]) -> bool:
    """True for a module that leaves values out by chance, or counts statistics of its batches."""
    if flat.get(_TRAINING) is not True:
        return False
    chances = (
        value for name, value in flat.items() if name == "p" or "dropout" in name.rpartition(".")[2]
    )
    is_random = any(isinstance(each, (int, float)) and each > 0 for each in chances)
    return is_random or "BatchNorm" in operation.type


def _are_of_one_implementation(golden: Mapping[str, Any], mine: Mapping[str, Any]) -> bool:
    """True if both state the same attributes of themselves, arguments of the call aside."""
    return _attributes_of(golden) == _attributes_of(mine)


def _attributes_of(flat: Mapping[str, Any]) -> set[str]:
    return {name for name in flat if is_telling(name) and not name.startswith("config.")}


def of_configuration(golden: Operation, mine: Operation) -> list[DefinitionDifference]:
    """Bases of rotary positions that the configuration of one model states differently.

    Programs of different libraries read the same file; what else they make of it is their own.

    Args:
        golden, mine: modules that state the configuration.
    """
    first, second = _bases(golden), _bases(mine)
    kinds = golden.definition.get(_MODEL_TYPE), mine.definition.get(_MODEL_TYPE)
    if golden.type != mine.type and (None in kinds or kinds[0] != kinds[1]):
        return []
    return [
        _difference(golden, mine, name, name, first[name], second[name], True, is_alike=False)
        for name in first.keys() & second.keys()
        if not _is_same(first[name], second[name])
    ]


def of_base(golden: Operation, mine: Operation) -> list[DefinitionDifference]:
    """The base of a module that rotates, if it is none that golden's configuration states.

    Args:
        golden: a module that states the configuration.
        mine: any module.
    """
    base, bases = mine.definition.get("base"), _bases(golden)
    if mine.type != "RotaryEmbedding" or not isinstance(base, (int, float)) or not bases:
        return []
    if any(_is_same(each, base) for each in bases.values()):
        return []
    name, value = next(iter(bases.items()))
    return [_difference(golden, mine, name, "base", value, base, True, is_alike=False)]


def _bases(operation: Operation) -> dict[str, Any]:
    """Bases of rotary positions in a configuration, by name."""
    return {
        name: value
        for name, value in _flat(operation).items()
        if name.startswith("config.") and name.rpartition(".")[2] == "rope_theta"
    }


def states_configuration(operation: Operation) -> bool:
    """True for a module that states the configuration of its model, as far as it is read here."""
    return bool(_bases(operation))


def is_telling(name: str) -> bool:
    """True for an attribute that may decide values."""
    last = name.rpartition(".")[2]
    is_place = last.replace("_", "").isdigit()
    if is_place or last in _SILENT or name.startswith("impl.") or "moe_config." in name:
        return False
    return not any(word in last for word in _SILENT_WORDS)


def _flat(operation: Operation) -> dict[str, Any]:
    """What an operation states, members of mappings as ``normParam.epsilon``."""
    return dict(_members("", operation.definition or params_of(operation)))


def _members(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _members(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _is_same(golden: Any, mine: Any) -> bool:
    numbers = [
        each for each in (golden, mine) if isinstance(each, (int, float)) and each is not None
    ]
    if len(numbers) == 2:
        return math.isclose(*map(float, numbers), rel_tol=_ROUNDING)
    return bool(golden == mine)


def _are_apart(golden: Any, mine: Any) -> bool:
    """True for two numbers of which neither is the other one in 16 bits.

    A number of few digits, such as 2.5, was written so and is no rounding of another.
    """
    if not isinstance(golden, (int, float)) or not isinstance(mine, (int, float)):
        return False
    for one, other in ((golden, mine), (mine, golden)):
        rounded = [float(np.asarray(one, dtype)) for dtype in (np.float16, ml_dtypes.bfloat16)]
        if float(other) in rounded and float(f"{other:.4g}") != float(other):
            return False
    return True


def _difference(
    golden: Operation,
    mine: Operation,
    golden_name: str,
    name: str,
    value: Any,
    my: Any,
    known: bool,
    *,
    is_alike: bool,
) -> DefinitionDifference:
    return DefinitionDifference(
        op=mine.name,
        golden_op=golden.name,
        name=name,
        golden_name=golden_name,
        golden=value,
        mine=my,
        decides=known,
        multiplies=is_alike and golden_name == name and is_factor(name) and _are_apart(value, my),
        step=mine.step,
        call=mine.call,
        device=mine.device,
        pid=mine.pid,
    )
