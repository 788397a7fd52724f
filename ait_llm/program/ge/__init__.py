"""Dumps of the graph engine: what its operators are of the graph before fusion."""
