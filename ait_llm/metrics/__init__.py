"""Pairs of tensors to numbers, and numbers to verdicts."""
