"""One operator that failed its check: prints golden, the dumped value and the first bad index.

Needs Python, torch and NumPy, and the .safetensors file beside it that has the same name.

    python THIS.py                        show the failure
    python THIS.py my_kernel.py:function  run a kernel on the dumped inputs and judge its result

The function gets the list of inputs (None for an absent one) and the dict of parameters, and
returns the output that failed. Exits with 1 if anything differs from golden beyond the limit, and
with 2 if something else is in the way.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": getattr(torch, "uint16", torch.int16),
    "I32": torch.int32,
    "U32": getattr(torch, "uint32", torch.int32),
    "I64": torch.int64,
    "U64": getattr(torch, "uint64", torch.int64),
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": getattr(torch, "float8_e4m3fn", torch.uint8),
    "F8_E5M2": getattr(torch, "float8_e5m2", torch.uint8),
}


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors of a safetensors file and the facts in its metadata."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    if 8 + size > len(data):
        raise SystemExit(f"{path.name}: it is cut off; copy it again")
    try:
        header = json.loads(data[8 : 8 + size])
        facts = json.loads(header.pop("__metadata__")["facts"])
        values = data[8 + size :]
        for name, entry in header.items():
            if entry["data_offsets"][1] > len(values):
                raise SystemExit(f"{path.name}: the values of {name} are cut off; copy it again")
        return {name: tensor(values, entry) for name, entry in header.items()}, facts
    # what values of other types, and lengths that do not fit, make of it
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError):
        raise SystemExit(f"{path.name}: it is damaged; copy it again") from None


def tensor(data: bytes, entry: dict[str, Any]) -> torch.Tensor:
    """One tensor of the data behind the header."""
    dtype, (begin, end) = DTYPES[entry["dtype"]], entry["data_offsets"]
    if not 0 <= begin <= end <= len(data):
        raise ValueError
    if begin == end:
        return torch.empty(0, dtype=dtype).view(entry["shape"])
    values = np.frombuffer(data[begin:end], np.uint8).copy()
    return torch.from_numpy(values).view(dtype).view(entry["shape"])


def compare(
    golden: torch.Tensor,
    mine: torch.Tensor,
    defined: torch.Tensor | None,
    facts: dict[str, Any],
    title: str,
) -> bool:
    """Print the differences; true if there are any beyond the limit."""
    if golden.numel() != mine.numel():
        print(f"{title}: shape {list(mine.shape)}, golden has {list(golden.shape)}")
        return True
    g, m = golden.double().reshape(-1), mine.detach().cpu().double().reshape(-1)
    same = (g == m) | (g.isnan() & m.isnan())
    error = (m - g).abs()
    if not facts["absolute"]:  # elements near zero are measured against 2**-7, as in opcheck
        size = g.abs()
        error = error / torch.where(size > 2.0**-23, size, torch.tensor(2.0**-7).double())
    error = torch.where(g.isfinite() & m.isfinite(), error, torch.inf)
    error = error.masked_fill(same if defined is None else same | ~defined.reshape(-1), 0)
    bad = error > facts["error"]
    kind = "absolute" if facts["absolute"] else "relative"
    print(
        f"{title}: {int(bad.sum())} of {bad.numel()} elements beyond a {kind} error of "
        f"{facts['error']:g}, largest {float(error.max()) if error.numel() else 0:g}"
    )
    if not bool(bad.any()):
        return False
    place = int(bad.int().argmax())
    index = [int(part) for part in np.unravel_index(place, tuple(golden.shape))]
    print(f"  first bad index {index}: golden {float(g[place])!r}, {title} {float(m[place])!r}")
    return True


def load(name: str) -> Any:  # the user's function
    """The function of ``file.py:function``."""
    path, _, function = name.rpartition(":")
    spec = importlib.util.spec_from_file_location("kernel", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file; give my_kernel.py:function")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


def main() -> bool:
    tensors, facts = read(Path(__file__).with_suffix(".safetensors"))
    golden, dumped, defined = tensors["golden"], tensors["dumped"], tensors.get("defined")
    print(f"{facts['operator']}, step {facts['step']}")
    print(f"params: {json.dumps(facts['params'])}")
    print(f"standard: {facts['standard']}: {facts['reason']}")
    for name, tensor in tensors.items():
        print(f"{name}: {str(tensor.dtype)[6:]} {list(tensor.shape)}")
    print(f"golden: {golden.reshape(-1)[:8].double().tolist()} ...")
    print(f"dumped: {dumped.reshape(-1)[:8].double().tolist()} ...")
    if len(sys.argv) > 1:
        places = [int(name[8:]) for name in tensors if name.startswith("intensor")]
        inputs = [tensors.get(f"intensor{place}") for place in range(max(places, default=-1) + 1)]
        result = load(sys.argv[1])(inputs, facts["params"])
        result = result[0] if isinstance(result, (tuple, list)) else result
        return compare(golden, result, defined, facts, "kernel")
    bad = compare(golden, dumped, defined, facts, "dumped")
    if facts["first_bad"] is not None:
        index = tuple(facts["first_bad"])
        print(
            f"first bad index by the standard {list(index)}: "
            f"golden {float(golden[index])!r}, dumped {float(dumped[index])!r}"
        )
        bad = True
    return bad


def run() -> int:
    """The exit code; 1 is a verdict, and nothing else."""
    try:
        return int(main())
    except SystemExit as error:
        print(error, file=sys.stderr)
    except Exception:  # noqa: BLE001  # of a kernel or a file
        traceback.print_exc()
    return 2


if __name__ == "__main__":
    sys.exit(run())
