"""What stands in the place of ``msprobe.pytorch`` within a started program."""
