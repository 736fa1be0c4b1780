"""The notebook runs on a lake made by its own commands, and reproduces its stored outputs.

After a change, create that lake and run `jupyter execute --inplace` (`pip install nbclient
ipykernel`).
"""

import ast
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from harness.cli import main
from tests.support.notebooks import code_cells, run_cells

FOLDER = Path(__file__).parents[3] / "docs" / "notebooks"
PAGE = FOLDER / "five-questions.ipynb"
MARIMO = FOLDER / "failing_runs.py"
CHEAP = ("--jobs", "1", "--reporters", "none", "--quiet", "--store", "store", "--time-limit", "8")
SIZE_MAX = 110_000  # bytes, with all outputs


def kept(cell, kind):
    for output in cell["outputs"]:
        if kind == "stream" and output["output_type"] == "stream":
            return "".join(output["text"])
        if kind in output.get("data", {}):
            return "".join(output["data"][kind])
    return ""


@pytest.mark.lake
@pytest.mark.slow
@pytest.mark.process
def test_the_notebook_answers_its_questions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    soaks = re.findall(r"^ *\"    (harness soak .*?)\\n\"", text, re.MULTILINE)
    assert len(soaks) == 2
    for line in soaks:
        words = shlex.split(line.replace("1..8", "1..2"))
        assert main([*words[1:], *CHEAP]) in {0, 1, 2}
    with pd.option_context(
        "display.max_colwidth", 50, "display.width", 80
    ):  # options that the notebook changes
        cells = list(run_cells(PAGE))
    assert "not linearizable" in cells[3]["stream"]
    for cell, found in zip(code_cells(PAGE), cells, strict=True):
        shown = found["text/plain"]
        assert bool(shown) == bool(kept(cell, "text/plain"))
        assert bool(found["stream"]) == bool(kept(cell, "stream"))
        header = kept(cell, "text/plain").split("\n")[0].split()
        assert found["columns"] in ([], header)  # the header of a data frame
        assert bool(found["text/html"]) == bool(kept(cell, "text/html"))
        assert ("<svg" in found["text/html"]) == ("<svg" in kept(cell, "text/html"))

    timeline, findings, named = run_marimo_cells(monkeypatch)[2:]
    assert "<svg" in timeline._repr_html_()
    assert "stale-read" in set(findings["rule"])
    assert {"latency_ns", "asked_name"} <= {*named.columns}
    assert len(named) > 0


def run_marimo_cells(monkeypatch):
    """Run the cells of a marimo file, which share their variables; return the results."""
    choose = SimpleNamespace(dropdown=lambda _, *, value, label: SimpleNamespace(value=value))
    stand_in = SimpleNamespace(ui=choose, stop=lambda stops, _: None)
    monkeypatch.setitem(sys.modules, "marimo", stand_in)
    monkeypatch.setattr("sys.argv", ["failing_runs.py", "lake"])
    names, shown = {}, []
    for cell in ast.parse(MARIMO.read_text("utf-8")).body:
        if isinstance(cell, ast.FunctionDef):
            *body, last = [part for part in cell.body if not isinstance(part, ast.Return)]
            exec(compile(ast.Module(body, []), str(MARIMO), "exec"), names)
            shown.append(eval(compile(ast.Expression(last.value), str(MARIMO), "eval"), names))
    return shown


def test_its_outputs_are_kept_and_small():
    assert len(PAGE.read_bytes()) < SIZE_MAX
    numbers = [cell["execution_count"] for cell in code_cells(PAGE)]
    # the cells were run once, from top to bottom
    assert numbers == list(range(1, len(numbers) + 1))
    assert not any("Traceback" in str(cell["outputs"]) for cell in code_cells(PAGE))
