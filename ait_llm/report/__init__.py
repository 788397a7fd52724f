"""Writers: one report, one file."""
