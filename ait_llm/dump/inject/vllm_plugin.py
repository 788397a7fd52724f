"""Entry point of vLLM's group ``vllm.general_plugins``, which it loads in each of its processes.

The capture is there already where the environment carried it. It is not where something on the way
dropped ``PYTHONPATH``. Without a capture in the environment nothing is imported and nothing done.
"""

from __future__ import annotations

import os
import sys


def start() -> None:
    """Start the capture of this process, if there is to be one and it has not begun."""
    if os.environ.get("AIT_MSPROBE_CONFIG"):
        from ait_llm.dump.inject.site.ait_msprobe import stand_in

        stand_in()
        return
    if not os.environ.get("AIT_TORCH_CAPTURE") or "ait_llm.dump.inject.root_finder" in sys.modules:
        return
    from ait_llm.dump.inject.site.ait_torch_capture import capture_when_its_library_is_imported

    capture_when_its_library_is_imported()
