"""Cases from dumps of PyTorch functions: one recorded call that can be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ait_llm.apicheck.inputs import TensorSource
from ait_llm.capsule.case import Call, Case, Origin
from ait_llm.capsule.environment import environment_of
from ait_llm.capsule.sizes import check_size
from ait_llm.dumps import ApiDump
from ait_llm.dumps.api_records import ApiCall
from ait_llm.errors import AitError, UsageError
from ait_llm.opcheck.api.arguments import arguments_of
from ait_llm.opcheck.api.functions import Functions, drops, is_in_place
from ait_llm.opcheck.api.unchecked import UncheckableError

if TYPE_CHECKING:
    import torch

# Where the functions of a prefix are; others need their own package or the other ranks.
_HOMES = {
    "Functional": "torch.nn.functional",
    "Tensor": "torch.Tensor",
    "Torch": "torch",
    "VF": "torch._VF",
}
# They add up products of their arguments: their bounds grow with the sum of absolute products.
_PRODUCTS = frozenset(
    {
        *("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "dot", "einsum"),
        *("__matmul__", "conv1d", "conv2d", "conv3d", "bilinear", "outer"),
    }
)


def api_case(
    dump: ApiDump,
    name: str,
    *,
    step: int | None,
    device: int | None,
    output: str | None,
    max_bytes: int,
) -> Origin:
    """The case of one recorded call.

    Args:
        dump: of level L1 or mix, with values.
        name: ``Functional.linear.3.forward``; without a direction it is the forward call.
        step, device: which; None for the first.
        output: ``outtensor1``; None for the first.
        max_bytes: of the call's tensors.

    Raises:
        UsageError: there is no such call, or it cannot be made again.
        FormatError: the dump is damaged.
    """
    wanted = name if name.endswith((".forward", ".backward")) else f"{name}.forward"
    found = [
        each
        for each in dump.calls()
        if each.name == wanted
        and (step is None or each.step == step)
        and (device is None or each.device == device)
    ]
    if not found:
        raise UsageError(
            f"{dump.root}: there is no call {wanted}; ait llm show DIR lists those that are there"
        )
    record = found[0]
    if record.parsed.is_module or record.direction != "forward":
        raise UsageError(
            f"{wanted}: capsules hold forward calls of functions; give a Functional, Torch, Tensor "
            "or VF call"
        )
    check_size(record.name, record.operation().tensors, max_bytes)
    try:
        case = _case(dump, record, int((output or "outtensor0").removeprefix("outtensor")))
    except UncheckableError as error:
        raise UsageError(f"{wanted}: {error.reason}") from error
    except ValueError as error:
        raise UsageError(f"--output {output!r} is no output; write outtensor0") from error
    process = next((each for each in dump.processes if each.device == record.device), None)
    return Origin(case, environment_of(process))


def _case(dump: ApiDump, record: ApiCall, index: int) -> Case:
    from ait_llm.capsule.carried.api_call import compute, rerun
    from ait_llm.opcheck.golden.base import FLOAT32_KERNEL, PRODUCTS, GoldenOp

    home = _HOMES.get(record.parsed.prefix)
    if home is None:
        raise UsageError(
            f"{record.name}: capsules make calls of {', '.join(_HOMES)}, not of "
            f"{record.parsed.prefix}"
        )
    Functions().find(record.parsed)  # listed, and no side effect
    if any(value.is_tensor and value.file is None for value in record.values):
        raise UsageError(f"{record.name}: its values were not saved; capture with task tensor")
    arguments = _Arguments(TensorSource(dump.root))
    args, kwargs = arguments_of(record.type, record.values, arguments.tensor)
    if drops(record.type, args, kwargs):
        raise UncheckableError("it drops elements at random")
    outputs = record.operation().outputs
    if index >= len(outputs):
        raise UsageError(f"{record.name}: it has {len(outputs)} outputs")
    if is_in_place(record.type):
        raise UncheckableError("it writes to its argument, whose values were recorded afterwards")
    dumped = [tensor.torch() for tensor in outputs]
    params = {
        "function": f"{home}.{record.parsed.api.partition('.')[2]}",
        "args": [arguments.plain(each) for each in args],
        "kwargs": {key: arguments.plain(each) for key, each in kwargs.items()},
        "outputs": [str(tensor.dtype).removeprefix("torch.") for tensor in dumped],
    }
    kernel = PRODUCTS if record.type in _PRODUCTS else FLOAT32_KERNEL
    golden = GoldenOp(record.api_name, compute, _no_shapes, kernel=lambda params: kernel)
    place = {
        "type": record.api_name,
        "id": record.name,
        "step": record.step,
        "device": record.device,
        "output": f"outtensor{index}",
    }
    rank = f", rank {record.device}" if record.device >= 0 else ""  # of a program alone, none
    return Case(
        f"{record.name} outtensor{index}, step {record.step}{rank}",
        place,
        golden,
        [Call(arguments.tensors, params)],
        0,
        f"outtensor{index}",
        index,
        False,
        dumped[index],
        again=rerun,
    )


def _no_shapes(descs: Any, params: Any) -> Any:
    raise AitError("shapes of functions are not inferred")


class _Arguments:
    """The tensors among the arguments of a call, and the arguments as JSON with their numbers.

    Args:
        source: reads the recorded values.
    """

    def __init__(self, source: TensorSource) -> None:
        self.tensors: list[torch.Tensor] = []
        self._source = source

    def tensor(self, value: Any) -> torch.Tensor:
        """Read a tensor and remember its number."""
        tensor = self._source(value).detach()
        self.tensors.append(tensor)
        return tensor

    def plain(self, value: Any) -> Any:
        """An argument as ``ait_llm.capsule.carried.api_call`` reads it."""
        import torch

        if isinstance(value, torch.Tensor):
            return {"tensor": next(i for i, each in enumerate(self.tensors) if each is value)}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, list):
            return [self.plain(each) for each in value]
        if isinstance(value, tuple):
            return {"tuple": [self.plain(each) for each in value]}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise UncheckableError(f"an argument is a {type(value).__name__}")
