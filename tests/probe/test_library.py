"""The host's ABI is read from its symbols, and a probe that cannot work is refused."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from elf_builder import shared_library

from ait_llm.errors import ProbeError
from ait_llm.probe.elf import MACHINES
from ait_llm.probe.library import check_probe, find_host, find_probe, preloadable

HERE = MACHINES[platform.machine()]
OTHER = 183 if HERE == 62 else 62
# Mangled with g++ 12 from the two declarations, not taken from the code under test.
GATE = {
    0: "_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKSs",
    1: "_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKNSt7__cxx1112basic_string"
    "IcSt11char_traitsIcESaIcEEE",
}
WRITER = {
    0: "_ZN3atb5Probe10SaveTensorERKSsS2_S2_PKvmS2_",
    1: "_ZN3atb5Probe10SaveTensorERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    "S8_S8_PKvmS8_",
}


def library(path: Path, *symbols: str, machine: int = HERE, symbolic: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shared_library(symbols, machine=machine, symbolic=symbolic))
    path.chmod(0o644)
    return path


def home(tmp_path: Path, *symbols: str, name: str = "atb", machine: int = HERE) -> dict[str, str]:
    library(tmp_path / name / "lib" / "libatb.so", *symbols, machine=machine)
    return {"ATB_HOME_PATH": str(tmp_path / name)}


@pytest.mark.parametrize("abi", [0, 1])
def test_abi_is_told_from_the_symbols_even_against_the_directory_name(
    tmp_path: Path, abi: int
) -> None:
    host = find_host(home(tmp_path, GATE[abi], name=f"cxx_abi_{1 - abi}"))
    assert (host.abi, host.evidence, host.embedded) == (abi, "from its symbols", False)


@pytest.mark.parametrize("abi", [0, 1])
@pytest.mark.parametrize("symbols", [("unrelated",), (GATE[0], GATE[1])])
def test_directory_name_decides_when_symbols_do_not(
    tmp_path: Path, abi: int, symbols: tuple[str, ...]
) -> None:
    host = find_host(home(tmp_path, *symbols, name=f"atb/cxx_abi_{abi}"))
    assert host.abi == abi
    assert host.evidence.startswith("from the directory name")
    assert host.warnings


def test_an_abi_that_cannot_be_told_is_an_error_that_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"no atb::Probe.*set ATB_HOME_PATH to the cxx_abi_0"):
        find_host(home(tmp_path, "unrelated"))


def test_a_directory_that_only_starts_like_an_abi_name_decides_nothing(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="cannot tell"):
        find_host(home(tmp_path, "unrelated", name="cxx_abi_10"))


def test_a_home_without_the_library_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"there is no .*lib/libatb\.so; source the set_env\.sh"):
        find_host({"ATB_HOME_PATH": str(tmp_path)})


def test_a_host_of_another_architecture_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="not for this machine"):
        find_host(home(tmp_path, GATE[1], machine=OTHER))


def test_the_interface_generation_and_symbolic_binding_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "lib" / "libatb.so"
    library(path, GATE[1], "_ZN3atb5Probe12UpdateConfigEv", symbolic=True)
    host = find_host({"ATB_HOME_PATH": str(tmp_path)})
    assert host.recent
    assert "-Bsymbolic" in host.warnings[0]


@pytest.mark.parametrize(("choice", "abi"), [({}, 1), ({"HOSTATB_CXX_ABI": "0"}, 0)])
def test_the_embedded_library_stands_in_when_no_home_is_set(
    tmp_path: Path, choice: dict[str, str], abi: int
) -> None:
    for each in (0, 1):
        library(tmp_path / "hostatb" / f"cxx_abi_{each}" / "lib" / "libatb.so", GATE[each])
    host = find_host({"AIT_LLM_LIB_DIR": str(tmp_path), **choice})
    assert (host.path.parts[-3], host.abi, host.embedded) == (f"cxx_abi_{abi}", abi, True)


def test_the_packaged_probe_of_the_hosts_abi_is_chosen(tmp_path: Path) -> None:
    for abi in (0, 1):
        library(tmp_path / f"libatb_probe_abi{abi}.so", GATE[abi], WRITER[abi])
        probe = find_probe(abi, {"AIT_LLM_LIB_DIR": str(tmp_path)})
        assert (probe.path.name, probe.packaged) == (f"libatb_probe_abi{abi}.so", True)


def test_a_probe_of_the_users_own_is_checked_and_marked(tmp_path: Path) -> None:
    own = library(tmp_path / "own.so", GATE[0], WRITER[0])
    assert not find_probe(0, {}, own).packaged
    with pytest.raises(ProbeError, match=r"built for C\+\+ ABI 0 but the host's .* ABI 1"):
        find_probe(1, {}, own)


def test_a_probe_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"--probe-lib .* does not exist"):
        find_probe(1, {}, tmp_path / "none.so")


def test_a_library_that_is_no_probe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="is not an ATB probe"):
        check_probe(library(tmp_path / "x.so", GATE[1]), 1)


def test_a_probe_of_another_architecture_is_refused(tmp_path: Path) -> None:
    path = library(tmp_path / "x.so", GATE[1], WRITER[1], machine=OTHER)
    with pytest.raises(ProbeError, match="not this machine"):
        check_probe(path, 1)


@pytest.mark.parametrize("mode", [0o646, 0o666, 0o757])
def test_a_probe_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = library(tmp_path / "x.so", GATE[1], WRITER[1])
    path.chmod(mode)
    with pytest.raises(ProbeError, match=r"can be changed by other users.*chmod go-w"):
        check_probe(path, 1)


def test_a_writer_that_others_can_change_is_refused(tmp_path: Path) -> None:
    path = library(tmp_path / "x.so", GATE[1], WRITER[1])
    writer = tmp_path / "ait_probe_writer"
    writer.write_bytes(b"")
    writer.chmod(0o757)
    with pytest.raises(ProbeError, match=r"ait_probe_writer can be changed by other users"):
        check_probe(path, 1)


def test_a_probe_in_a_folder_that_anyone_can_write_to_is_refused(tmp_path: Path) -> None:
    path = library(tmp_path / "shared" / "lib" / "x.so", GATE[1], WRITER[1])
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(ProbeError, match=r"shared can be written to by all users.*chmod o-w"):
        check_probe(path, 1)


def test_a_folder_in_which_only_owners_rename_is_fine(tmp_path: Path) -> None:
    path = library(tmp_path / "shared" / "lib" / "x.so", GATE[1], WRITER[1])
    (tmp_path / "shared").chmod(0o1777)
    check_probe(path, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("part", ["lib/x.so", "lib/ait_probe_writer", "lib", "."])
def test_a_probe_of_another_user_is_refused(part: str, tmp_path: Path) -> None:
    path = library(tmp_path / "other" / "lib" / "x.so", GATE[1], WRITER[1])
    path.with_name("ait_probe_writer").write_bytes(b"")
    os.chown(tmp_path / "other" / part, 12345, -1)
    with pytest.raises(ProbeError, match=r"belongs to user 12345, who could put another library"):
        check_probe(path, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_the_owner_of_this_package_may_own_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = library(tmp_path / "lib" / "x.so", GATE[1], WRITER[1])
    for part in (path, path.parent):
        os.chown(part, 12345, -1)
    monkeypatch.setattr("ait_llm.__path__", [str(path.parent)])
    check_probe(path, 1)


def test_a_text_file_is_refused_as_a_probe(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_text("hello")
    with pytest.raises(ProbeError, match="is not an ELF file"):
        check_probe(path, 1)


def test_a_plain_path_is_preloaded_as_it_is(tmp_path: Path) -> None:
    path = library(tmp_path / "x.so", GATE[1])
    with preloadable(path) as usable:
        assert usable == path


@pytest.mark.parametrize("folder", ["a b", "a:b", "a$ORIGIN"])
def test_a_path_that_the_variable_cannot_carry_is_reached_through_a_link(
    tmp_path: Path, folder: str
) -> None:
    path = library(tmp_path / folder / "x.so", GATE[1])
    (path.parent / "writer").write_text("beside")
    with preloadable(path) as usable:
        assert not set(str(usable)) & set(": $")
        assert usable.samefile(path)
        assert (usable.parent / "writer").read_text() == "beside"
    assert not usable.exists()
    assert path.exists()
