"""``ait llm doctor`` prints findings and says by its exit code whether the default works."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ait_llm.cli import doctor as command
from ait_llm.cli.main import ait
from ait_llm.dump.checkup import Finding
from ait_llm.probe.library import find_packaged

GOOD = Finding("torch", "ok", "2.9 (/lib/torch)", essential=True)
OPTIONAL = Finding("torch_npu", "absent", "not installed", "capturing on an Ascend device")
BAD = Finding("hostatb", "broken", "it is damaged", "the demo", essential=True)


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(command, "check_machine", lambda _environ, _directory: request.param)


@pytest.mark.usefixtures("findings")
@pytest.mark.parametrize(
    ("findings", "code"), [([GOOD, OPTIONAL], 0), ([GOOD, BAD], 3)], indirect=["findings"]
)
def test_only_what_the_embedded_default_needs_decides_the_exit_code(code: int) -> None:
    assert CliRunner().invoke(ait, ["llm", "doctor"]).exit_code == code


@pytest.mark.usefixtures("findings")
@pytest.mark.parametrize("findings", [[GOOD, OPTIONAL, BAD]], indirect=True)
def test_each_finding_says_what_it_disables() -> None:
    output = CliRunner().invoke(ait, ["llm", "doctor"]).stdout.splitlines()
    assert output[:5] == [
        "ok  torch      2.9 (/lib/torch)",
        "--  torch_npu  not installed",
        "               disables: capturing on an Ascend device",
        "!!  hostatb    it is damaged",
        "               disables: the demo",
    ]


@pytest.mark.usefixtures("findings")
@pytest.mark.parametrize("findings", [[GOOD, OPTIONAL]], indirect=True)
def test_json_holds_every_finding() -> None:
    value = json.loads(CliRunner().invoke(ait, ["llm", "doctor", "--json"]).stdout)
    assert value["works"] is True
    assert [item["name"] for item in value["findings"]] == ["torch", "torch_npu"]
    assert value["findings"][1] == {
        "name": "torch_npu",
        "status": "absent",
        "detail": "not installed",
        "disables": "capturing on an Ascend device",
        "essential": False,
    }


@pytest.mark.native
def test_the_embedded_default_is_tried_for_real() -> None:
    if find_packaged("libatb_probe_abi1.so", os.environ) is None:
        pytest.skip("needs the compiled libraries")
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    findings = {item["name"]: item for item in json.loads(done.stdout)["findings"]}
    assert findings["capture"]["status"] == "ok", findings
    assert "tensors and was sealed" in findings["capture"]["detail"]
    assert done.returncode == 0
