"""The source distribution holds all that a wheel is built from, and a wheel from it works."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

import ait_llm

_ROOT = Path(__file__).resolve().parents[2]
_NATIVE = _ROOT / "ait_llm" / "native"

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(_ROOT)], check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def test_it_holds_every_native_source_and_both_links(source: Path) -> None:
    wanted = {path.relative_to(_ROOT) for path in _NATIVE.rglob("*") if path.is_file()}
    assert {path for path in wanted if not (source / path).is_file()} == set()
    for name in ("cli", "opcheck"):
        assert (source / "ait_llm" / name).readlink() == Path("..") / name
        assert (source / name / "__init__.py").is_file()


def test_a_wheel_built_from_it_starts(source: Path, tmp_path: Path) -> None:
    """Without the native parts, whose build the other tests of this folder try."""
    pip = [sys.executable, "-m", "pip"]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "-Cwheel.cmake=false"]
    subprocess.run([*pip, "wheel", *options, "-w", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    subprocess.run(
        [*pip, "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)], check=True
    )
    # What it depends on comes from here; a .pth file does not bring this checkout with it.
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = subprocess.run(
        [venv / "bin" / "ait", "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert ait_llm.__version__ in done.stdout
    for name in ("cli", "opcheck"):
        folder = packages / "ait_llm" / name
        assert folder.is_dir()
        assert not folder.is_symlink()
