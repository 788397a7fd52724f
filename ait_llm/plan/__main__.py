"""The program that runs a model on shapes alone; ``ait llm plan --model`` starts it."""

from __future__ import annotations

import sys

from ait_llm.plan.meta_program import main

main(sys.argv[1])
