"""A recorded GE dump, decoded by msprobe's parser and by ours.

Needs an environment with mindstudio-probe, whose interpreter ``AIT_LLM_PEER_PYTHON`` names, and a
C++ compiler for the stand-in of the one library of CANN that the parser calls.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from ait_llm.dumps import open_dump

_ROOT = Path(__file__).parents[2]
_PEER = os.environ.get("AIT_LLM_PEER_PYTHON", "")
_SCRIPT = """
import os, sys
import numpy as np
import msprobe
sys.path.insert(0, os.path.join(os.path.dirname(msprobe.__file__), "msaccucmp"))
from dump_parse import dump_utils
arrays = {}
for name in sys.argv[2:]:
    dump = dump_utils.parse_dump_file(name, 2)
    for role, tensors in (("in", dump.input_data), ("out", dump.output_data)):
        for tensor in tensors:
            arrays[f"{name}|{role}tensor{tensor.index}"] = np.asarray(tensor.data)
np.savez(sys.argv[1], **arrays)
"""


@pytest.mark.skipif(not _PEER, reason="AIT_LLM_PEER_PYTHON names no environment with msprobe")
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_stored_values_are_those_of_msprobe(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "libascend_dump_parser.so"
    library.parent.mkdir()
    source = _ROOT / "scripts" / "bench" / "ge_parser_stand_in.cpp"
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    library.chmod(0o550)  # msprobe refuses one that others may write
    data = _ROOT / "tests" / "data" / "ge_dump" / "ge_run_fused.tar.xz"
    with tarfile.open(data) as archive:
        archive.extractall(tmp_path, filter="data")
    operations = list(open_dump(tmp_path / "ge_run_fused").operations())
    subprocess.run(
        [_PEER, "-c", _SCRIPT, str(tmp_path / "peer.npz"), *(str(op.path) for op in operations)],
        env={**os.environ, "LD_LIBRARY_PATH": str(library.parent)},
        check=True,
        capture_output=True,
    )
    with np.load(tmp_path / "peer.npz") as peer:
        found = {f"{op.path}|{t.name}": t for op in operations for t in op.tensors}
        assert set(found) == set(peer.files)
        for name, tensor in found.items():
            ours = tensor.numpy().reshape(-1)
            np.testing.assert_array_equal(ours.astype(np.float64), peer[name].reshape(-1), name)
