"""The notebook runs on a lake made by the commands that it names, and shows what is kept in it.

After a change: make that lake, and `jupyter execute --inplace` (`pip install nbclient ipykernel`).
"""

import re
import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from harness.cli import main
from tests.support.notebooks import code_cells, run_cells

PAGE = Path(__file__).parents[3] / "docs" / "notebooks" / "five-questions.ipynb"
CHEAP = ("--jobs", "1", "--reporters", "none", "--quiet", "--store", "store", "--time-limit", "8")
SIZE_MAX = 60_000  # bytes, with all outputs


def kept(cell, kind):
    """An output that is kept in the file."""
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
    with pd.option_context("display.max_colwidth", 50, "display.width", 80):  # which it changes
        cells = list(run_cells(PAGE))
    assert "not linearizable" in cells[3]["stream"]
    for cell, found in zip(code_cells(PAGE), cells, strict=True):
        shown = found["text/plain"]
        assert bool(shown) == bool(kept(cell, "text/plain"))
        assert bool(found["stream"]) == bool(kept(cell, "stream"))
        header = kept(cell, "text/plain").split("\n")[0].split()
        assert found["columns"] in ([], header)  # of a data frame
        assert bool(found["columns"]) == bool(kept(cell, "text/html"))
        if found["image/svg+xml"]:
            for picture in (found["image/svg+xml"], kept(cell, "image/svg+xml")):
                lines = ET.fromstring(picture).findall("{*}polyline")
                assert len(lines) >= 2
                assert all(len(line.get("points").split()) == 101 for line in lines)


def test_its_outputs_are_kept_and_small():
    assert len(PAGE.read_bytes()) < SIZE_MAX
    numbers = [cell["execution_count"] for cell in code_cells(PAGE)]
    assert numbers == list(range(1, len(numbers) + 1))  # run once, from above
    assert not any("Traceback" in str(cell["outputs"]) for cell in code_cells(PAGE))
