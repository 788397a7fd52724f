"""Capture with no change to the program: hooks that travel in the environment of a child."""
