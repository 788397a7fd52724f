from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torchair_tree import changes, module

from ait_llm.dump import torchair_dump
from ait_llm.dumps import open_dump
from ait_llm.errors import FormatError, MissingDependencyError, UsageError

ROOT = Path(__file__).parents[2]
RECORDED: dict[str, Any] = json.loads(
    (ROOT / "tests" / "data" / "torchair" / "options.json").read_text()
)
OLDEST, OLD, NEW, NEWEST = RECORDED  # as in ORIGIN.md
WHEEL = os.environ.get("AIT_LLM_TORCH_NPU_WHEEL", "")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes ``import torchair`` give the options of one generation."""

    def install(generation: str) -> ModuleType:
        torchair = module(RECORDED[generation])
        monkeypatch.setitem(sys.modules, "torchair", torchair)
        return torchair

    return install


@pytest.fixture
def switches(tmp_path: Path) -> Path:
    path = tmp_path / "fusion.cfg"
    path.write_text('{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}')
    return path


@pytest.mark.parametrize("generation", RECORDED)
def test_ge_dump_sets_what_every_torchair_takes(
    generation: str, install: Any, tmp_path: Path, switches: Path
) -> None:
    install(generation)
    config = torchair_dump.get_ge_dump_config(
        tmp_path / "dumps", dump_mode="output", fusion_switch_file=switches
    )
    folder = config.dump_config.dump_path.value
    path = "path" if generation == OLDEST else "_path"  # the property of new ones sets it too
    assert changes(config) == {
        "debug.graph_dump.type": "txt",
        f"debug.graph_dump.{path}": folder,
        "dump_config.enable_dump": True,
        "dump_config.dump_mode": "output",
        "dump_config.dump_path": folder,
        "fusion_config.fusion_switch_file": str(switches),
    }
    assert Path(folder).parent == tmp_path / "dumps"
    assert Path(folder).stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("generation", [OLD, NEW, NEWEST])
def test_steps_and_operators_are_joined_as_torchair_wants_them(
    generation: str, install: Any, tmp_path: Path
) -> None:
    install(generation)
    config = torchair_dump.get_ge_dump_config(
        tmp_path, dump_token=[0, "2-5", 7], dump_layer=["Mul_1", "Add1Cast_2", "a/b.c"]
    )
    assert config.dump_config.dump_step.value == "0|2-5|7"
    assert config.dump_config.dump_layer.value == "Mul_1 Add1Cast_2 a/b.c"


@pytest.mark.parametrize("argument", ["dump_token", "dump_layer"])
def test_a_torchair_without_an_option_is_told_to_be_too_old(
    argument: str, install: Any, tmp_path: Path
) -> None:
    install(OLDEST)
    with pytest.raises(MissingDependencyError, match=f"{argument} needs the option dump_config"):
        torchair_dump.get_ge_dump_config(tmp_path, **{argument: ["1"]})
    assert list(tmp_path.iterdir()) == []


def test_two_calls_within_one_second_get_different_folders(
    install: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(NEWEST)
    monkeypatch.setattr(torchair_dump.time, "strftime", lambda _: "dump_20240301_120000")
    folders = [
        Path(torchair_dump.get_ge_dump_config(tmp_path).dump_config.dump_path.value).name
        for _ in range(3)
    ]
    fx = Path(torchair_dump.get_fx_dump_config(tmp_path).debug.data_dump.path).name
    assert folders == ["dump_20240301_120000", "dump_20240301_120000_1", "dump_20240301_120000_2"]
    assert fx == "dump_20240301_120000_3"


def test_a_link_in_the_place_of_the_new_folder_is_not_followed(
    install: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(NEWEST)
    monkeypatch.setattr(torchair_dump.time, "strftime", lambda _: "dump_now")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dump_now").symlink_to(tmp_path / "elsewhere")
    config = torchair_dump.get_ge_dump_config(tmp_path)
    assert config.dump_config.dump_path.value == str(tmp_path / "dump_now_1")


def test_a_given_configuration_is_changed_and_returned(install: Any, tmp_path: Path) -> None:
    given = install(NEWEST).CompilerConfig()
    given.debug.run_eagerly = False
    assert torchair_dump.get_ge_dump_config(tmp_path, compiler_config=given) is given
    assert given.dump_config.enable_dump.value == "1"


@pytest.mark.parametrize("generation", RECORDED)
def test_fx_dump_without_a_path_only_sets_its_type(generation: str, install: Any) -> None:
    install(generation)
    assert changes(torchair_dump.get_fx_dump_config()) == {"debug.data_dump.type": "npy"}


@pytest.mark.parametrize("generation", [NEW, NEWEST])
def test_fx_dump_goes_to_a_folder_of_its_own(generation: str, install: Any, tmp_path: Path) -> None:
    install(generation)
    config = torchair_dump.get_fx_dump_config(tmp_path / "fx")
    assert Path(config.debug.data_dump.path).is_dir()
    assert Path(config.debug.data_dump.path).parent == tmp_path / "fx"
    assert config.debug.data_dump.type.value == "npy"


@pytest.mark.parametrize("generation", [OLDEST, OLD])
def test_fx_dump_of_an_old_torchair_cannot_be_moved(
    generation: str, install: Any, tmp_path: Path
) -> None:
    install(generation)
    with pytest.raises(MissingDependencyError, match="leave out dump_path, or install a newer"):
        torchair_dump.get_fx_dump_config(tmp_path / "fx")
    assert not (tmp_path / "fx").exists()


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("mode", "reduce-overhead", "GE runs in mode max-autotune only"),
        ("debug.data_dump.type", "npy", "an FX dump runs the model without GE"),
        ("debug.run_eagerly", True, "would run without GE"),
        ("debug.fx_summary.type", "csv", "skips the compilation"),
        ("dump_config.dump_config_path", "acl.json", "from one place only"),
    ],
)
def test_configurations_under_which_ge_dumps_nothing_are_refused(
    option: str, value: Any, reason: str, install: Any, tmp_path: Path
) -> None:
    given = install(NEWEST).CompilerConfig()
    *groups, name = option.split(".")
    group = given
    for part in groups:
        group = getattr(group, part)
    setattr(group, name, value)
    with pytest.raises(UsageError, match=rf"compiler_config\.{option} is .*{reason}"):
        torchair_dump.get_ge_dump_config(tmp_path / "dumps", compiler_config=given)
    assert not (tmp_path / "dumps").exists()


def test_ge_and_fx_dump_in_one_configuration_are_refused(install: Any, tmp_path: Path) -> None:
    install(NEWEST)
    given = torchair_dump.get_ge_dump_config(tmp_path)
    with pytest.raises(UsageError, match=r"compiler_config\.dump_config\.enable_dump is '1'"):
        torchair_dump.get_fx_dump_config(compiler_config=given)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"dump_mode": "both"}, "dump_mode is 'both'; it can be input, output, all"),
        ({"dump_token": [-1]}, "dump_token has -1"),
        ({"dump_token": ["5-2"]}, "dump_token has '5-2'"),
        ({"dump_token": [True]}, "dump_token has True"),
        ({"dump_token": "0"}, "dump_token is '0'; it must be a list"),
        ({"dump_token": 0}, "dump_token is 0; it must be a list"),
        ({"dump_layer": ["Mul,Add"]}, "dump_layer has 'Mul,Add'"),
        ({"dump_layer": ["Mul Add"]}, "dump_layer has 'Mul Add'"),
        ({"dump_layer": [3]}, "dump_layer has 3"),
        ({"compiler_config": {}}, "compiler_config is of the type dict"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: dict[str, Any], reason: str, install: Any, tmp_path: Path
) -> None:
    install(NEWEST)
    with pytest.raises(UsageError) as caught:
        torchair_dump.get_ge_dump_config(tmp_path / "dumps", **arguments)
    assert reason in str(caught.value)
    assert not (tmp_path / "dumps").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "has no object 'Switch'"),
        ('{"Switch": {"UBFusion": "off"}}', "'UBFusion' is not an object"),
        ('{"Switch": {"UBFusion": {"ALL": false}}}', "UBFusion.ALL is False"),
    ],
)
def test_a_file_that_is_no_fusion_switch_file_is_refused(
    text: str, reason: str, install: Any, tmp_path: Path
) -> None:
    install(NEWEST)
    path = tmp_path / "switch.json"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        torchair_dump.get_ge_dump_config(tmp_path / "dumps", fusion_switch_file=path)
    assert reason in caught.value.reason
    assert not (tmp_path / "dumps").exists()


def test_a_missing_fusion_switch_file_is_named(install: Any, tmp_path: Path) -> None:
    install(NEWEST)
    with pytest.raises(FormatError, match=r"none\.json: cannot be read: No such file"):
        torchair_dump.get_ge_dump_config(tmp_path, fusion_switch_file=tmp_path / "none.json")


def test_a_folder_that_cannot_be_made_is_named(install: Any, tmp_path: Path) -> None:
    install(NEWEST)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/dumps: no folder for the dump can be created"):
        torchair_dump.get_ge_dump_config(tmp_path / "file" / "dumps")


def test_without_torchair_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module_name in ("torchair", "torch_npu"):
        monkeypatch.setitem(sys.modules, module_name, None)
    with pytest.raises(MissingDependencyError, match=r"pip install torch_npu==.* and CANN"):
        torchair_dump.get_ge_dump_config(tmp_path / "dumps")
    assert not (tmp_path / "dumps").exists()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('libhccl.so: cannot open shared object file')", "libhccl.so: cannot"),
        ("import a_package_that_is_missing", "No module named 'a_package_that_is_missing'"),
    ],
)
def test_a_torch_npu_that_cannot_be_imported_is_told_with_its_reason(
    source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch_npu.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError) as caught:
        torchair_dump.get_fx_dump_config()
    assert "torch_npu is installed and cannot be imported" in str(caught.value)
    assert reason in str(caught.value)


def test_torchair_inside_torch_npu_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = ModuleType("torch_npu")
    dynamo = ModuleType("torch_npu.dynamo")
    for name, part in (
        ("torch_npu", package),
        ("torch_npu.dynamo", dynamo),
        ("torch_npu.dynamo.torchair", module(RECORDED[NEW])),
    ):
        monkeypatch.setitem(sys.modules, name, part)
    config = torchair_dump.get_fx_dump_config(tmp_path)
    assert config.debug.data_dump.type.value == "npy"


@pytest.mark.skipif(not WHEEL, reason="AIT_LLM_TORCH_NPU_WHEEL names no torch_npu wheel")
def test_the_real_package_takes_the_configuration_and_passes_it_to_ge(
    tmp_path: Path, switches: Path
) -> None:
    """The package of a released wheel; only the module that loads its C++ library is left out."""
    program = f"""
        import json, sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT / "scripts")!r})
        from record_torchair_options import load_config, unpack
        load_config(unpack(Path({WHEEL!r}), Path({str(tmp_path / "wheel")!r})))
        from ait_llm.dump import torchair_dump
        ge = torchair_dump.get_ge_dump_config(
            {str(tmp_path)!r}, "input", {str(switches)!r}, [0, "2-5"], ["Mul_1", "Add1"]
        )
        try:
            torchair_dump.get_fx_dump_config(compiler_config=ge)
        except Exception as error:
            refused = type(error).__name__
        debug = ge.debug
        print(json.dumps([ge.as_dict()[1], debug.graph_dump.full_path("graph"), refused]))
    """
    printed = subprocess.check_output(
        [sys.executable, "-c", textwrap.dedent(program)], text=True, timeout=120
    )
    options, graph, refused = json.loads(printed.splitlines()[-1])
    (folder,) = tmp_path.glob("dump_*")
    assert options["ge.exec.enableDump"] == "1"
    assert options["ge.exec.dumpMode"] == "input"
    assert options["ge.exec.dumpStep"] == "0|2-5"
    assert options["ge.exec.dumpLayer"] == "Mul_1 Add1"
    assert options["ge.fusionSwitchFile"] == str(switches)
    assert options["ge.exec.dumpPath"].startswith(str(folder))
    assert Path(graph).parent == folder
    assert graph.endswith(".txt")
    assert refused == "UsageError"


@pytest.mark.skipif(
    f"torch_npu-{torch.__version__.partition('+')[0]}-" not in WHEEL,
    reason="AIT_LLM_TORCH_NPU_WHEEL names no torch_npu wheel of this torch version",
)
def test_the_real_backend_writes_its_fx_dump_where_it_was_told(tmp_path: Path) -> None:
    """torchair compiles and runs a model; what needs CANN is replaced by objects without effect."""
    program = f"""
        import sys, warnings
        from pathlib import Path
        from unittest.mock import MagicMock
        import torch
        sys.path.insert(0, {str(ROOT / "scripts")!r})
        from record_torchair_options import unpack
        sys.path.insert(0, str(unpack(Path({WHEEL!r}), Path({str(tmp_path / "wheel")!r}))))
        warnings.simplefilter("ignore")
        core = ("_torchair", "_abi_compat_ge_apis", "_npu_graph_executor", "_npu_utils")
        npu = ("torch_npu", "torch_npu.npu", "torch_npu.utils", "torch_npu.utils._error_code")
        for name in (*(f"torchair.core.{{part}}" for part in core), *npu):
            sys.modules[name] = MagicMock(__path__=[], __spec__=None)
        import torchair
        from ait_llm.dump import torchair_dump
        config = torchair_dump.get_fx_dump_config({str(tmp_path / "fx")!r})
        config.experimental_config.pattern_fusion_pass = False  # it looks for operators of the NPU
        backend = torchair.get_npu_backend(compiler_config=config)
        model = torch.compile(torch.nn.Linear(4, 2), backend=backend)
        with torch.no_grad():
            print(model(torch.ones(3, 4)).shape)
        print(config.debug.data_dump.path)
    """
    printed = subprocess.check_output(
        [sys.executable, "-c", textwrap.dedent(program)], text=True, timeout=240, cwd=tmp_path
    )
    folder = Path(printed.splitlines()[-1])
    assert folder.parent == tmp_path / "fx"
    files = [path.name for path in folder.rglob("addmm-aten.addmm.default.OUTPUT.0.*.npy")]
    assert len(files) == 1
    operations = [operation.name for operation in open_dump(folder).operations()]
    assert operations[-1] == "addmm"
