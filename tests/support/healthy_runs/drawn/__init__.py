"""Decoders of a design drawn by chance, written in two ways that compute the same."""

from healthy_runs.drawn.pairs import pair, pairs

__all__ = ["pair", "pairs"]
