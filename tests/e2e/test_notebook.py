"""A notebook that captures two programs, compares them and shows what it found."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

SUPPORT = Path(__file__).resolve().parents[1] / "support"

CELLS = [
    f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n"
    "import ait_llm, torch\n"
    "from generating import PROMPT, model\n"
    "trusted, fast = model(), model()\n"
    "with torch.no_grad(): fast.model.layers[1].mlp.down_proj.weight.mul_(1.3)",
    "with ait_llm.capture(trusted) as golden:\n    trusted(PROMPT)\ngolden",
    "with ait_llm.capture(fast) as run:\n    fast(PROMPT)\nrun.to_pandas().head(3)",
    "report = run.compare(golden)\nreport",
    "%matplotlib inline\nreport.plot.error_by_layer();",
    "ait_llm.diff(trusted, fast, PROMPT)",
]


@pytest.fixture(scope="module", name="outputs")
def _outputs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What each cell shows, by MIME type."""
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, CELLS)])
    folder = tmp_path_factory.mktemp("notebook")
    # A kernel that is described nowhere: the Python of the tests.
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.km = client.create_kernel_manager()
    client.km._kernel_spec = _spec()
    with client.setup_kernel(env={**os.environ, "OMP_NUM_THREADS": "1"}):
        for place, cell in enumerate(notebook.cells):
            client.execute_cell(cell, place)
    shown = []
    for cell in notebook.cells:
        data = [dict(each["data"]) for each in cell.outputs if "data" in each]
        shown.append(data[0] if data else {})
    return shown


def _spec() -> object:
    import sys

    from jupyter_client.kernelspec import KernelSpec

    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    return KernelSpec(argv=command, display_name="tests", language="python")


def test_a_capture_shows_itself_as_a_small_table(outputs: list[dict[str, str]]) -> None:
    assert "<table>" in outputs[1]["text/html"]
    assert "1 process" in outputs[1]["text/html"]
    assert outputs[1]["text/plain"].startswith("<Run of torch in ")
    assert len(outputs[1]["text/html"]) < 2000


def test_the_tensors_of_a_capture_are_a_data_frame(outputs: list[dict[str, str]]) -> None:
    assert "22 columns" in outputs[2]["text/html"]


def test_a_report_shows_its_verdict_and_where_it_started(outputs: list[dict[str, str]]) -> None:
    assert "FAIL" in outputs[3]["text/html"]
    assert "started at root.model.layers.1.mlp.down_proj" in outputs[3]["text/html"]


def test_a_plot_is_shown_as_a_picture(outputs: list[dict[str, str]]) -> None:
    assert len(outputs[4]["image/png"]) > 5000


def test_diff_in_a_notebook_names_the_operator(outputs: list[dict[str, str]]) -> None:
    assert "root.model.layers.1.mlp.down_proj" in outputs[5]["text/html"]
