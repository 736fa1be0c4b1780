"""The tutorial's commands work as it says: they are executed, and what it prints must come out.

Numbers are left aside, since every change of the target or of a workload moves them; the words,
names and their order must be there. Commands that need minutes or another environment are given a
smaller run of the same options.
"""

import re
import shlex
from pathlib import Path

import pytest

from harness.cli import main
from harness.store import load_run
from results.page import read_results

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.md"
SMALLER = {
    "soak": ["--seeds", "1..1", "--time-limit", "2", "--jobs", "1", "--store", "soaked"],
    "--env process": ["--dry-run"],
    "--env docker": ["--dry-run"],
}


def blocks():
    """(command, lines of output) in the order of the tutorial."""
    found = []
    for text in re.findall(
        r"^```console\n(.*?)^```", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL
    ):
        for line in text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def masked(text):
    """Without what another version of the target or the workload may move."""
    return re.sub(r"\d+(\.\d+)*", "N", text).strip()


def shown_in_order(wanted, printed):
    """Whether `printed` has all of `wanted`, in its order; `...` stands for any lines."""
    rest = iter([masked(line) for line in printed])
    return [line for line in wanted if line != "..." and masked(line) not in rest]


def arguments_of(command):
    """What follows `harness` on the command line, made smaller where it would take too long."""
    program, *arguments = shlex.split(command)
    assert program == "harness"
    extra = [more for key, more in SMALLER.items() if key in command.replace("  ", " ")]
    return arguments + [argument for more in extra for argument in more]


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = blocks()
    assert len(commands) >= 6
    for command, wanted in commands:
        code = main(arguments_of(command))
        printed = capsys.readouterr().out.splitlines()
        assert shown_in_order(wanted, printed) == [], command
        said = {line.split("  ")[0] for line in wanted}
        # A smaller soak may find the bug or not; any verdict will do, but no error.
        assert code in ({1} if "INVALID" in said else {0, 1, 2} if "soak" in command else {0})
    # One number for an operation, in every sentence and list: the index of its invocation.
    for folder in sorted(tmp_path.glob("store/*/2*")):
        stored = load_run(folder)
        calls = {pair.invoke.index for pair in stored.history.pairs}
        answers = {op.index for op in stored.history if op.is_client} - calls
        for result in read_results(folder).checkers:
            text = " ".join((result.reason, *result.explanation))
            named = {int(number) for number in re.findall(r"\bop (\d+)\b", text)}
            assert named <= calls
            assert answers.isdisjoint(result.operations)
