"""Captures: each module runs or observes a program and returns what was saved and what was lost."""
