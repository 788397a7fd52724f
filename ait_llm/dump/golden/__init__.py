"""The golden run by itself: a checkpoint reads the tokens that a captured run has read."""
