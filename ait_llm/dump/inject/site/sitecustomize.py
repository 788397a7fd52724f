"""Python imports this module at start-up when its folder is first on PYTHONPATH.

It arranges that the capture starts once the program has imported torch, then hands over to the
``sitecustomize`` that the program would have had without us. It must never break the program: it
imports nothing heavy, and without the capture's settings in the environment it does nothing.
"""

# pathlib would cost every interpreter of the program some milliseconds.
# ruff: noqa: PTH100, PTH118, PTH120

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _leave_path() -> None:
    """Take our folder off the program's path; its children find it in the environment."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]


def _load_package() -> None:
    """Make ``ait_llm`` importable even where it is not installed: by its place, not by the path."""
    if "ait_llm" in sys.modules:
        return
    folder = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    spec = importlib.util.spec_from_file_location(
        "ait_llm", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["ait_llm"] = module
        spec.loader.exec_module(module)


def _start() -> None:
    if not os.environ.get("AIT_TORCH_CAPTURE"):
        return
    try:
        _load_package()
        from ait_llm.dump.inject.bootstrap import capture_when_torch_is_imported

        capture_when_torch_is_imported()
    except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
        sys.stderr.write(
            f"ait: nothing of this process is captured: {type(error).__name__}: {error}\n"
        )


def _run_next_sitecustomize() -> None:
    """Execute the next ``sitecustomize`` on the path, as Python would have done."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_leave_path()
_start()
_run_next_sitecustomize()
