"""The checker grades itself: known faults must fail, every legal way to compute must pass."""

from __future__ import annotations
