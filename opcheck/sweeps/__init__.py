"""Kernels over many shapes, types, layouts and values, and the smallest case that fails."""
