"""What every recording answers: prompts of different lengths in token ids, and how many tokens."""

PROMPTS = [[17, 203, 5, 88, 141], [9, 64, 250], [33, 71, 128, 12]]
STEPS = 3
