"""Where NaN, Inf and saturated values of a run were born, and how far they went."""
