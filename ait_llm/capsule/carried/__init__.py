"""What a capsule carries of its own: copied into it, and run where this package is not."""
