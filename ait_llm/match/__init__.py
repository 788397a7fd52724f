"""Which golden tensor belongs to which of mine, and why."""
