"""Recorded calls of functions and methods of torch: which function, with which arguments."""
