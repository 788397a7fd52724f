"""Settings for all tests, made before anything imports torch or starts a program."""

import logging
import os
import signal
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Many tests fork or start programs. OpenMP's threads do not survive a fork, and on a small machine
# more threads than tests need only get in each other's way. Programs that tests start inherit this.
os.environ["OMP_NUM_THREADS"] = "1"

# Hundreds of programs are started: what they import, and what pytest rewrites, is compiled once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A job in the background or under nohup is started with these ignored, and so would be every
# program that a test sends one to.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# A change is judged on the same examples each time; HYPOTHESIS_PROFILE=default searches for others.
# A busy machine is slow to make them, which is no fault of a test.
settings.register_profile(
    "same", derandomize=True, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

_DATA = Path(__file__).parent / "data"
_ARCHIVES = {
    "fused": _DATA / "ge_dump" / "ge_run_fused.tar.xz",
    "unfused": _DATA / "ge_dump" / "ge_run_fusion_off.tar.xz",
    "fx": _DATA / "torchair" / "fx_fp16_dynamic.tar.xz",
}


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands set up the log of the process that they run in; the next test begins without."""
    logger = logging.getLogger("ait_llm")
    before = logger.handlers[:], logger.propagate, logger.level
    disabled = logging.root.manager.disable
    yield
    logging.disable(disabled)
    logger.handlers[:], logger.propagate = before[:2]
    logger.setLevel(before[2])


@pytest.fixture(scope="session")
def recorded_decoder(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Dumps of a compiled decoder of two layers: fused, with fusion off, and as FX nodes.

    One prefill and four decode steps. Nobody writes into them.
    """
    found = {}
    for name, archive in _ARCHIVES.items():
        folder = tmp_path_factory.mktemp(name)
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        [found[name]] = folder.iterdir()
    return found


@pytest.fixture(autouse=True, scope="session")
def _json_outputs_follow_their_schemas() -> None:
    """What any test makes a command print with ``--json`` is held to its published schema."""
    import json_outputs

    json_outputs.machine.json_line = json_outputs.checked_line
