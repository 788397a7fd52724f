"""From the name in a record to the function, safely.

A dump is data from elsewhere. Only functions of the list that captures record from, and those that
the user names, are ever called; nothing of a dump is evaluated or imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ait_llm.core.optional import import_optional
from ait_llm.dumps.api_names import ApiName
from ait_llm.errors import MissingDependencyError, UsageError
from ait_llm.formats.api_list import PREFIXES, combined_apis
from ait_llm.opcheck.api.unchecked import UncheckableError

# Operators of old torch under their present names.
_RENAMED = {"__div__": "__truediv__", "__idiv__": "__itruediv__", "__nonzero__": "__bool__"}

# Without a computation, or with memory that nobody has written to.
_NOTHING_COMPUTED = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
        "empty_with_format",
    }
)
# They change the device or write files.
_SIDE_EFFECTS = frozenset(
    {"save_npugraph_tensor", "set_device_limit", "set_stream_limit", "reset_stream_limit"}
)
_RANDOM = frozenset(
    {
        *("bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_"),
        *("multinomial", "normal", "normal_", "uniform_", "poisson", "gumbel_softmax"),
        *("npu_random_choice_with_mask", "npu_sim_exponential_"),
        *("fractional_max_pool2d", "fractional_max_pool2d_with_indices"),
        *("fractional_max_pool3d", "fractional_max_pool3d_with_indices"),
    }
)
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
# Functions that drop elements among other things: place and name of the rate, and what it is when
# nothing is dropped.
_DROPPING = {
    "scaled_dot_product_attention": (4, "dropout_p", 0.0),
    "multi_head_attention_forward": (10, "dropout_p", 0.0),
    "npu_fusion_attention": (8, "keep_prob", 1.0),
    "npu_fusion_attention_v2": (8, "keep_prob", 1.0),
}
# Their argument `training` is False unless given.
_DROP_NOTHING = ("alpha_dropout", "feature_alpha_dropout")
_CONVERSIONS = frozenset(
    {
        *("bfloat16", "bool", "byte", "cdouble", "cfloat", "chalf", "char", "double", "float"),
        *("half", "int", "long", "short", "type", "type_as", "npu_dtype_cast", "npu_dtype_cast_"),
    }
)


class Functions:
    """The functions that may be called.

    Args:
        extra: a list of the user's own, as captures take it.

    Raises:
        UsageError: the list cannot be read.
    """

    def __init__(self, extra: Path | None = None) -> None:
        self._apis, self._modules = combined_apis(extra)
        self._known: dict[str, list[Callable[..., Any]]] = {}

    def find(self, name: ApiName) -> list[Callable[..., Any]]:
        """The function behind a record that api-check runs again.

        Raises:
            UncheckableError: it is left out by rule, not listed, or not installed here.
            UsageError: a module of the user's own list cannot be imported.
        """
        _check_rules(name)
        return self.look_up(name)

    def look_up(self, name: ApiName) -> list[Callable[..., Any]]:
        """The function behind a record, and others that records call by the same name.

        Of ``torch.linalg.norm`` a record has the last part only: ``Torch.norm``.

        Raises:
            UncheckableError: it cannot be run in one process, not listed, or not installed here.
            UsageError: a module of the user's own list cannot be imported.
        """
        if name.api not in self._known:
            _check_home(name)
            self._known[name.api] = self._look_up(name)
        return self._known[name.api]

    def _look_up(self, name: ApiName) -> list[Callable[..., Any]]:
        module, _, own = name.api.rpartition(".")
        if own in self._modules.get(module, ()):
            return [_required(_imported(module), own, name)]
        prefix, _, rest = name.api.partition(".")
        if prefix == "Aten":
            return [self._operator(rest, name)]
        for section, known in PREFIXES.items():
            if known == prefix:
                listed = self._apis.get(section, [])
                dotted = [each for each in listed if each.rpartition(".")[2] == rest]
                names = [each for each in dict.fromkeys((rest, *dotted)) if each in listed]
                owner = _owner(section) if names else None
                functions = [_attribute(owner, each) for each in names]
                if found := [function for function in functions if function is not None]:
                    return found
                if names:
                    raise UncheckableError(f"the installed {_home(section)} has no {rest!r}")
        raise UncheckableError(
            f"{name.api} is not in the list of recorded functions; name it with --api-list"
        )

    def _operator(self, rest: str, name: ApiName) -> Callable[..., Any]:
        import torch

        base, _, overload = rest.partition(".")
        listed = (self._apis.get(each, ()) for each in ("tensor", "torch", "functional"))
        if not any(base in names for names in listed):
            raise UncheckableError(
                f"{name.api} is not in the list of recorded functions; name it with --api-list"
            )
        function = _required(torch.ops.aten, base, name)
        return _required(function, overload, name) if overload else function


def is_conversion(api: str) -> bool:
    """True for functions that change a type: golden's own steps up and down are in the result."""
    return api in _CONVERSIONS


def is_in_place(api: str) -> bool:
    """True for functions that write to their first argument."""
    if api.startswith("__"):
        return api == "__setitem__" or (
            api.startswith("__i") and api not in ("__invert__", "__int__", "__index__")
        )
    return api.endswith("_")


def drops(api: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """True for a dropout that drops elements, so that only the number of its zeros can be judged.

    Raises:
        UncheckableError: the function draws random numbers in another way.
    """
    if api in _RANDOM:
        raise UncheckableError("it draws random numbers, which differ between devices")
    if "dropout" in api:
        rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        otherwise = args[2] if len(args) > 2 else api not in _DROP_NOTHING
        training = kwargs.get("training", kwargs.get("train", otherwise))
        return not (isinstance(rate, (int, float)) and rate == 0) and training is not False
    if api in ("rrelu", "rrelu_"):
        training = kwargs.get("training", args[3] if len(args) > 3 else False)
        if training:
            raise UncheckableError("in training it draws random slopes, which differ")
    if api in _DROPPING:
        place, keyword, neutral = _DROPPING[api]
        rate = kwargs.get(keyword, args[place] if len(args) > place else neutral)
        is_off = kwargs.get("training") is False
        if isinstance(rate, (int, float)) and rate != neutral and not is_off:
            raise UncheckableError(f"it drops elements at random ({keyword} is {rate:g})")
    if api in _RECURRENT and _drops_between_layers(args):
        raise UncheckableError("it drops elements at random between its layers")
    return False


def _drops_between_layers(args: list[Any]) -> bool:
    """Of a recurrent network: its flag of biases, layers, dropout and training stand in a row."""
    first = next((index for index, value in enumerate(args) if isinstance(value, bool)), None)
    if first is None or len(args) < first + 4:
        return False
    layers, rate, training = args[first + 1 : first + 4]
    return bool(training) and rate != 0 and layers > 1


def _check_rules(name: ApiName) -> None:
    _check_home(name)
    if name.type in _NOTHING_COMPUTED:
        raise UncheckableError("nothing is computed that could be checked", by_rule=True)
    if name.type == "to":
        raise UncheckableError("a type conversion or a copy, of limited value", by_rule=True)


def _check_home(name: ApiName) -> None:
    if name.prefix in ("Distributed", "MindSpeed", "MintDistributed"):
        raise UncheckableError(f"calls of {name.prefix} need the other ranks or their own package")
    if name.type in _SIDE_EFFECTS:
        raise UncheckableError("it changes the device or writes files", by_rule=True)


def _owner(section: str) -> Any:
    import torch

    if section == "torch_npu":
        try:
            return import_optional("torch_npu", "checking functions of NPU", "torch_npu")
        except MissingDependencyError:
            raise UncheckableError("torch_npu is not installed here") from None
    owners = {"functional": torch.nn.functional, "tensor": torch.Tensor, "torch": torch}
    return owners.get(section, torch._VF if section == "_VF" else None)


def _home(section: str) -> str:
    return "torch_npu" if section == "torch_npu" else "torch"


def _attribute(owner: Any, dotted: str) -> Callable[..., Any] | None:
    found = owner
    for part in dotted.split("."):
        found = getattr(found, part, None) or getattr(found, _RENAMED.get(part, part), None)
    return found if callable(found) else None


def _required(owner: Any, name: str, record: ApiName) -> Callable[..., Any]:
    found = _attribute(owner, name)
    if found is None:
        raise UncheckableError(f"{record.api} does not exist here")
    return found


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{module}: the module of --api-list cannot be imported ({error}); "
            "run where it is installed"
        ) from error
