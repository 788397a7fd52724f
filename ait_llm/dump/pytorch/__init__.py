"""Capture of PyTorch runs: what modules and operators receive and return."""
