"""Programs that run the demo models, started like any user program."""
