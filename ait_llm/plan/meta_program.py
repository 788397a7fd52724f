"""Runs a model that a ``config.json`` describes on shapes alone: no weights, no values.

``python -m ait_llm.plan REQUEST`` is a program like any other, started under the
capture that notes sizes. Its tensors are on torch's meta device. It executes no code that comes
with a model, and gives up when it takes too much memory or time.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SECONDS = 300
"""After which the program gives up."""
MEMORY_BYTES = 16 << 30
"""What it may take."""
STEPS = 4
"""Steps that are run; later ones grow as these do."""


@dataclass(frozen=True, slots=True)
class MetaRequest:
    """What to run.

    Attributes:
        config: content of ``config.json``.
        batch: sequences.
        prompt: tokens of each.
        steps: how many tokens are generated.
        dtype: name of torch's element type; empty for that of the config.
    """

    config: Mapping[str, Any]
    batch: int = 1
    prompt: int = 32
    steps: int = STEPS
    dtype: str = ""

    def to_json(self) -> str:
        """The argument of the program."""
        return json.dumps(asdict(self))


class _Refused(Exception):
    """The model cannot be run; the text says why."""


def main(text: str) -> None:
    """Run what a :class:`MetaRequest` asks for within limits of memory and time."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    signal.alarm(SECONDS)
    os.environ["HF_HUB_OFFLINE"] = "1"
    run_request(MetaRequest(**json.loads(text)))


def run_request(request: MetaRequest) -> None:
    """Run a model once.

    Raises:
        SystemExit: with the reason, if the model cannot be run.
    """
    try:
        _run(request)
    except _Refused as error:
        sys.exit(f"ait llm plan: {error}")
    except ImportError as error:
        sys.exit(f"ait llm plan: it needs torch and transformers in {sys.executable} ({error})")
    except MemoryError:
        sys.exit(f"ait llm plan: it needs more than {MEMORY_BYTES >> 30} GiB without weights")
    except Exception as error:  # noqa: BLE001 - what a library does with a config is unknown
        reason = str(error).strip().partition("\n")[0][:300]
        sys.exit(f"ait llm plan: it cannot be run: {type(error).__name__}: {reason}")


def _run(request: MetaRequest) -> None:
    import torch

    model, generates = _model(request)
    ids = torch.zeros((request.batch, request.prompt), dtype=torch.long, device="meta")
    mask = torch.ones_like(ids)
    with torch.no_grad(), _answers(), _attention_of_hosts():
        if generates:
            _generate(model, ids, mask, request.steps)
        else:
            model(input_ids=ids, attention_mask=mask)


def _model(request: MetaRequest) -> tuple[Any, bool]:
    """The model on the meta device, and whether it generates tokens."""
    import torch
    import transformers
    from transformers.models.auto import modeling_auto as auto

    quiet: Any = transformers.logging.set_verbosity_error
    quiet()
    values = {
        name: value
        for name, value in request.config.items()
        # How weights are stored changes no activation; the rest says where code is and how it ran.
        if not name.startswith("_")
        and name not in ("quantization_config", "auto_map", "attn_implementation")
    }
    kind = values.pop("model_type", None)
    if kind not in transformers.CONFIG_MAPPING:
        raise _Refused(f"transformers {transformers.__version__} knows no model_type {kind!r}")
    named = [str(each) for each in values.get("architectures") or ()]
    config = transformers.CONFIG_MAPPING[kind].from_dict(values)
    dtype = getattr(torch, request.dtype, None) if request.dtype else _own_dtype(config)
    if not isinstance(dtype, torch.dtype):
        raise _Refused(f"torch has no element type {request.dtype!r}")
    words = ("CausalLM", "LMHead", "ConditionalGeneration")
    generates = any(word in name for name in named for word in words)
    if not named:
        generates = (
            kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
            and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        )
    with torch.device("meta"):
        if generates and kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            auto_class: Any = transformers.AutoModelForCausalLM
            model = auto_class.from_config(config, dtype=dtype, trust_remote_code=False)
        else:
            own: Any = getattr(transformers, named[0], None) if named else None
            known = isinstance(own, type) and issubclass(own, transformers.PreTrainedModel)
            if known and hasattr(own, "_from_config"):
                model = own._from_config(config, dtype=dtype)
            else:
                auto_class = transformers.AutoModel
                model = auto_class.from_config(config, dtype=dtype, trust_remote_code=False)
    if getattr(config, "is_encoder_decoder", False):
        raise _Refused(f"{kind} has an encoder and a decoder; plan it with --exec")
    return model.eval(), generates


def _own_dtype(config: Any) -> Any:
    import torch

    dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype.removeprefix("torch."), None)
    return dtype or torch.float32


def _generate(model: Any, ids: Any, mask: Any, steps: int) -> None:
    """Generate as a program would; the end is decided by counting."""
    left = steps

    def unfinished(*_args: Any, **_kwargs: Any) -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    if not hasattr(model, "_has_unfinished_sequences"):
        raise _Refused("this release of transformers generates in another way; plan with --exec")
    model._has_unfinished_sequences = unfinished
    model.generation_config.eos_token_id = None
    model.generate(
        ids, attention_mask=mask, max_new_tokens=max(steps, 1), do_sample=False, pad_token_id=0
    )


def _answers() -> Any:
    """Answers questions for values: a mask hides nothing, and nothing is special."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    grouped = getattr(torch.ops.aten, "_grouped_mm", None)

    class Answers(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped here
            self._true: Any = None

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten._local_scalar_dense.default:
                kind = args[0].dtype
                return args[0] is self._true if kind is torch.bool else 1 * (not kind.is_complex)
            if func.overloadpacket is grouped and args[0].dim() == 2 and args[1].dim() == 3:
                # On the meta device torch knows it for bfloat16 alone.
                return args[0].new_empty((args[0].shape[0], args[1].shape[2]))
            result = func(*args, **(kwargs or {}))
            if func.overloadpacket is torch.ops.aten.all:
                self._true = result
            return result

    return Answers()


def _attention_of_hosts() -> Any:
    """Attention by one operator, as on a CPU; on the meta device torch would take it apart."""
    import torch
    from torch.overrides import TorchFunctionMode

    attention = torch.nn.functional.scaled_dot_product_attention

    class Attention(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            plain = func is attention and len(args) == 3 and args[0].dim() == 4
            if plain and args[0].shape[-1] == args[1].shape[-1] == args[2].shape[-1]:
                return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                    *args,
                    kwargs.get("dropout_p", 0.0),
                    kwargs.get("is_causal", False),
                    attn_mask=kwargs.get("attn_mask"),
                    scale=kwargs.get("scale"),
                )[0]
            return func(*args, **kwargs)

    return Attention()
