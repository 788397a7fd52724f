"""Python imports this module at start-up when its folder is first on PYTHONPATH.

It arranges that the capture starts once the program has imported torch, then hands over to the
``sitecustomize`` that the program would have had without us. It must never break the program: it
imports nothing heavy, and without the capture's settings in the environment it does nothing.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_next_sitecustomize() -> None:
    """Execute the next ``sitecustomize`` on the path, as Python would have done."""
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start() -> None:
    if not os.environ.get("AIT_TORCH_CAPTURE"):
        return
    try:
        from ait_llm.dump.inject.bootstrap import capture_when_torch_is_imported
    except ImportError as error:
        sys.stderr.write(
            f"ait: {sys.executable} cannot import ait_llm ({error}), so nothing of this process "
            "is captured; install ait-llm into this Python.\n"
        )
        return
    capture_when_torch_is_imported()


_start()
_run_next_sitecustomize()
