"""The example in docs/browse.md runs on a store made by the page's commands, with the same output.

The comparison ignores numbers, because they change with the target.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from harness.cli import main

CHEAP = ("--jobs", "1", "--reporters", "none")
"""Options added to the page's commands; workers and pages of runs change no table."""
PAGE = Path(__file__).parents[3] / "docs" / "browse.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def shape(text):
    """Replace numbers by #, to compare only the form of tables."""
    return re.sub(r"\d+(\.\d+)?", "#", text).split()


def printed_by(script):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(script, str(PAGE), "exec"), {})
    return printed.getvalue()


@pytest.mark.slow
def test_the_example_prints_the_output_on_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks("console") for line in block.splitlines()]
    soaks = [line.removeprefix("$ ") for line in lines if line.startswith("$ harness soak")]
    assert len(soaks) == 2
    codes = [main([*shlex.split(line)[1:], *CHEAP]) for line in soaks]
    assert codes == [0, 1]
    capsys.readouterr()
    (script, chosen, one_run), (expected,) = blocks("python"), blocks("text")
    text = printed_by(script)
    assert shape(text) == shape(expected)
    assert text.splitlines()[:4] == expected.splitlines()[:4]  # verdicts are exact
    assert "linearizable-catalog · stale-read" in printed_by(script + chosen)
    assert printed_by(one_run + "print(len(ops) > 100)") == "True\n"


def test_every_parameter_and_column_is_on_the_page():
    from harness.ops import History
    from results.serve.query import EXACT, LISTS, RANGES

    text = PAGE.read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", text))
    for name in (*EXACT, *LISTS, *RANGES, *History([]).to_pandas().columns):
        assert name in words, name
