"""``python -m ait_llm`` is ``ait``, for environments whose scripts are not on the PATH."""

from ait_llm.cli.main import main

main()
