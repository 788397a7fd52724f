"""Runs on several devices against runs on fewer: which part of a tensor each rank holds."""
