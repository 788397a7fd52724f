"""docs/storage.md is true: its commands print what it shows, with a store that speaks S3."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click

from ait_llm.cli.llm import llm
from ait_llm.cli.params import input_path, output_path

PAGE = (Path(__file__).parents[2] / "docs" / "storage.md").read_text(encoding="utf-8")
_TIME = re.compile(r"20\d{12}")
_SERVER = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
import os
os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:%d" % server.get_host_and_port()[1]
import fsspec, shlex
from click.testing import CliRunner
from ait_llm.cli.main import ait
fsspec.filesystem("s3").mkdir("captures")
first, second = sys.argv[1:3]
exec(first, {})
for line in sys.argv[3:]:
    print(f"$ {line}")
    print(CliRunner().invoke(ait, shlex.split(line)[1:]).output, end="")
print("----")
exec(second, {})
server.stop()
"""


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    words = [line.removeprefix("$ ") for line in shown.splitlines() if line.startswith("$ ")]
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "something",
        "AWS_DEFAULT_REGION": "us-east-1",
        "TMPDIR": str(tmp_path),
    }
    ran = subprocess.run(
        [sys.executable, "-c", _SERVER, *programs, *words],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed, _, code = ran.stdout.partition("----\n")
    assert _TIME.sub("TIME", printed) == _TIME.sub("TIME", shown)
    assert code.startswith("Verdict.FAIL ")
    assert not list(tmp_path.glob("ait-*"))  # neither copies nor results are left


def test_the_table_has_every_option_that_takes_a_url() -> None:
    rows = re.findall(
        r"^\| (`[a-z].*?) \| (.*?) \|$", PAGE.partition("| command |")[2], re.MULTILINE
    )
    said = {
        name: set(re.findall(r"`(-[^`]+)`", options))
        for names, options in rows
        for name in re.findall(r"`([\w-]+)`", names)
    }
    context = click.Context(llm)
    for name in llm.list_commands(context):
        command = llm.get_command(context, name)
        assert command is not None
        for param in command.params:
            if param.callback in (input_path, output_path) and isinstance(param, click.Option):
                assert said[name] & set(param.opts), f"{name} {param.opts}"
