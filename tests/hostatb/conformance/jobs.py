"""Runs programs in child processes of one preloaded process.

Ids and caches of the runtime count per process, so each job needs its own; forking one process that
has imported everything is much faster than starting one per job.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Program = Callable[[dict[str, Any]], object]


def run_jobs(programs: Mapping[str, Program]) -> int:
    """Run the jobs of the file named on the command line; the number of jobs that failed.

    A job has ``name``, ``program``, ``environment`` and anything the program wants to know. What
    the program returns is written to ``result`` as JSON, if the job has that.
    """
    failed = 0
    for job in json.loads(Path(sys.argv[1]).read_text()):
        child = os.fork()
        if child == 0:
            _run_and_exit(programs[job["program"]], job)
        if os.waitpid(child, 0)[1] != 0:
            sys.stderr.write(f"job {job['name']} failed\n")
            failed += 1
    return failed


def _run_and_exit(program: Program, job: dict[str, Any]) -> None:
    try:
        os.environ.update(job["environment"])
        result = program(job)
        if "result" in job:
            Path(job["result"]).write_text(json.dumps(result))
    except BaseException:  # noqa: BLE001  # the child ends here, whatever it was
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)
