"""Output is plain in pipes and coloured on terminals. Its last line contains the verdict."""

import io
import re

import pytest

from harness.cli import main, styles
from harness.cli.output import say
from harness.cli.run.progress import Progress
from harness.cli.run.verdict_text import described, in_numbers, verdict_line
from harness.cli.styles import drawn, joined, styled, table
from harness.ops import NEMESIS, CheckResult, Op, OpType, Verdict
from harness.verdict.judge import Judgement

RUN = ["run", "--env", "sim", "--target", "toy-register", "--workload", "register", "--seed", "1"]
RUN += ["--time-limit", "2", "--quiet"]
TITLE = "certificate (what this run really did):"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(styles, "width_of", lambda _: 60)
    return Terminal()


def test_a_terminal_has_colours_and_a_pipe_has_none(terminal):
    assert COLOUR.search(drawn(styled("valid", "green"), terminal))
    assert drawn(styled("valid", "green"), io.StringIO()) == "valid"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_switched_off(name, value, terminal, monkeypatch):
    monkeypatch.setenv(name, value)
    assert drawn(styled("valid", "green"), terminal) == "valid"


def test_colours_can_be_asked_for_in_a_pipe(terminal, monkeypatch):
    del terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert COLOUR.search(drawn(styled("valid", "green"), io.StringIO()))


def test_text_of_others_is_neither_markup_nor_obeyed(capsys):
    text = "[bold red]x[/] \x1b[2J :smile:"
    say(text, styled(text, "bold"), table([["a", text]]))
    escaped = text.replace("\x1b", "\\u001b")
    assert capsys.readouterr().out.splitlines() == [escaped, escaped, f"a  {escaped}"]


def test_a_table_is_as_wide_as_the_terminal_and_unwrapped_in_a_pipe(terminal):
    words = " ".join(["word"] * 40)
    rows = table([["checker", joined(styled("valid", "green")), words]])
    assert max(len(COLOUR.sub("", line)) for line in drawn(rows, terminal).splitlines()) <= 60
    assert drawn(rows, io.StringIO()) == f"checker  valid  {words}"


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_verdict_is_first_in_its_line(verdict):
    line = drawn(verdict_line(verdict, "3 operations", "; page: p"), io.StringIO())
    assert line.startswith(f"{verdict.value.upper()}  3 operations: ")
    assert line.endswith("; page: p")


@pytest.mark.parametrize(
    ("more", "verdict", "code"),
    [
        ([], "VALID", 0),
        pytest.param(
            ["--target", "kudu", "--workload", "ddl", "--bug", "NO-LEASE", "--nemesis",
             "partition-leader", "--time-limit", "20"],
            "INVALID", 1, marks=pytest.mark.slow,
        ),
        (["--rate", "1"], "UNKNOWN", 2),
    ],
)  # fmt: skip
def test_the_last_line_is_the_verdict_and_where_to_go(more, verdict, code, tmp_path, capsys):
    assert main([*RUN, *more, "--store", str(tmp_path)]) == code
    out = capsys.readouterr().out
    assert "\x1b" not in out
    last = out.splitlines()[-1]
    assert last.startswith(f"{verdict}  ")
    (page,) = tmp_path.glob("*/2*/report.html")
    assert last.endswith(f"page: {page}")


def test_the_certificate_is_there_when_asked_for(tmp_path, capsys):
    words = [*RUN, "--reporters", "none", "--store", str(tmp_path)]
    assert main(words) == 0
    brief = capsys.readouterr().out
    assert main([*words, "-v"]) == 0
    full = capsys.readouterr().out
    assert (TITLE in brief, TITLE in full) == (False, True)
    assert ("SHA-256" in brief, "SHA-256" in full) == (False, True)


@pytest.mark.parametrize(
    ("operations", "changes", "words"),
    [
        (1, 1, "1 operation, no fault, 1 leader change"),
        (2, "at least 1", "2 operations, no fault, at least 1 leader change"),
        (2, "at least 11", "2 operations, no fault, at least 11 leader changes"),
        (2, "not observed", "2 operations, no fault"),
    ],
)
def test_nouns_of_a_summary_agree_with_their_numbers(operations, changes, words):
    certificate = {"operations": {"ok": operations}, "changes_of_leader": changes}
    result = CheckResult("stats", Verdict.VALID, "", details={"certificate": certificate})
    assert in_numbers(Judgement((result,))) == words


def test_unusual_facts_are_reported_unasked():
    idle = {"nemesis": "kill-leader", "targets": ["m1"], "bite": {"count": 0, "unit": "processes"}}
    hit = {"nemesis": "cut", "targets": ["m1"], "bite": {"count": 9, "unit": "frames"}}
    certificate = {
        "operations": {"ok": 10, "info": 5},
        "too_few_processors": "for 3.0 s",
        "longest_outage": "2.0 s",
    }
    details = {"faults": [idle, hit], "certificate": certificate}
    result = CheckResult("stats", Verdict.VALID, "", details=details)
    text = "\n".join(styles.plain(described(Judgement((result,)))))
    for words in (
        "2 faults, 1 of them hit",
        "longest outage 2.0 s",
        "too few processors for 3.0 s",
        "1 fault of kill-leader hit nothing",
        "5 of 15 operations have an unknown outcome",
    ):
        assert words in text


def test_a_rate_is_per_second_of_the_run(monkeypatch):
    monkeypatch.setattr("harness.cli.status_line.StatusLine.due_s", lambda _: 1e-3)
    stream = io.StringIO()
    progress = Progress(stream, simulated=True)
    for number in range(1, 11):
        progress(Op(number, number * 500_000_000, 0, OpType.OK, "read"))
    assert "5.0 s simulated  setup: 2 op/s  10 ok" in stream.getvalue()


def test_no_word_of_a_status_is_cut(terminal, monkeypatch):
    monkeypatch.setattr("harness.cli.status_line.width_of", lambda _: 60)
    progress = Progress(terminal)
    progress._status._interval_s = 0.0
    value = {"action": "inject", "fault": "f", "targets": ["m1", "m2", "m3"], "note": "cut"}
    progress(Op(0, 0, NEMESIS, OpType.INFO, "partition-leader", value))
    progress(Op(1, 10**9, 0, OpType.FAIL, "read", error="TABLE_ALREADY_PRESENT: x"))
    progress.finish()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "0 ok, 1 fail, 0 info" in shown
    assert "TABLE_" not in shown
