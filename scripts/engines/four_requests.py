"""Four requests of different lengths; the last begins as the first does, for a prefix cache."""

_FIRST = [(17 * number * number + 5 * number + 11) % 250 + 2 for number in range(45)]
PROMPTS = [
    _FIRST,
    [9, 64, 250],
    [(13 * number + 7) % 250 + 2 for number in range(21)],
    [*_FIRST[:33], 44, 91, 7],
]
TOKENS = 4
