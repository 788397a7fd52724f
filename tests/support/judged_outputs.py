"""Outputs from exact to very wrong, and what msprobe says of them."""

from __future__ import annotations

import torch

# What msprobe 26.2.0 says of the outputs below, which it was given in the same order.
OF_MSPROBE = {
    torch.float16: ["pass", "pass", "warning", "error", "error", "pass", "pass", "pass"],
    torch.bfloat16: ["warning", "warning", "warning", "error", "error", "pass", "pass", "warning"],
    torch.float32: ["pass", "pass", "error", "error", "error", "pass", "pass", "warning"],
}
SCALES_AND_NOISES = (
    *((1, 0), (1, 1e-6), (1, 3e-4), (10, 5e-3), (100, 2e-1), (1e-4, 1e-3), (1e-3, 1e-2)),
    (10, 5e-5),
)


def outputs_for_msprobe() -> list[tuple[torch.dtype, torch.Tensor, torch.Tensor]]:
    """Golden and mine, from exact to very wrong, in three types."""
    made = torch.Generator().manual_seed(0)
    found = []
    for dtype in OF_MSPROBE:
        wide = torch.float64 if dtype == torch.float32 else torch.float32
        for scale, noise in SCALES_AND_NOISES:
            golden = torch.randn(1000, dtype=torch.float64, generator=made) * scale
            scatter = 1 + noise * torch.randn(1000, dtype=torch.float64, generator=made)
            found.append((dtype, golden.to(wide), (golden * scatter).to(dtype)))
    return found
