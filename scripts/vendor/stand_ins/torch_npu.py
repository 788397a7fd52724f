"""torch's devices, on the CPU: nothing is moved, and nothing has to be waited for."""

import sys
from types import ModuleType
from typing import Any

import torch

npu: Any = ModuleType("torch.npu")  # modules have no types of what is put into them
npu.get_device_name = lambda *rest: "Ascend910B4-1"
npu.current_device = lambda: 0
npu.set_device = npu.synchronize = lambda *rest: None

sys.modules["torch.npu"] = torch.npu = npu  # type: ignore[attr-defined]
torch.Tensor.npu = lambda self, *rest, **options: self  # type: ignore[attr-defined]
