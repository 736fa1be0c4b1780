"""JUnit files, step summaries, annotations and progress of a soak with hostile texts."""

import datetime as dt
import fcntl
import io
import os
import pty
import re
import struct
import termios
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cli.soak.options import check_writable, parse_soak
from harness.cli.soak.progress import FAILURES_SHOWN_MAX, SoakProgress, duration_text
from harness.cli.status_line import StatusLine, fitting
from harness.errors import InfrastructureError, UsageError
from harness.soak import CheckerVerdict, SeedResult, Tally, junit
from harness.soak import result as result_module
from harness.soak.github import ANNOTATIONS_MAX, error_annotations, step_summary
from harness.soak.junit import JunitCases, write_junit, xml_text
from harness.soak.result import REASON_CHARACTERS_MAX, failure_groups, shortened
from harness.verdict.known import KnownFailure, KnownFailures
from tests.tiers import examples

HOSTILE = (
    '<script>alert("1")</script> ]]> &amp; \x00\x1b[2J\ud800\ufffe \u2028 %0A::error::x\r\n\n# `x`'
)


def valid(seed):
    return SeedResult(seed=seed, verdict="valid", reason="", run=f"seed-{seed}", wall_s=0.25)


def invalid(seed, reason="it lied", signature="stale-read · kill"):
    said = (
        CheckerVerdict("linearizable", "invalid", reason),
        CheckerVerdict("liveness", "unknown", "out of time"),
        CheckerVerdict("stats", "valid", ""),
    )
    return SeedResult(
        seed=seed,
        verdict="invalid",
        reason=reason,
        checker="linearizable",
        signature=f"linearizable · {signature}",
        checkers=said,
    )


def crash(seed, reason="it fell"):
    return SeedResult(seed=seed, verdict="crash", reason=reason)


def tally_of(results):
    tally = Tally()
    for result in results:
        tally.take(result)
    return tally


def replay(result):
    return f"harness run --seed {result.seed} --name '<&>'"


def written(path, results, folder="", **properties):
    cases = JunitCases(replay=replay, folder=lambda result: folder or result.run or "")
    write_to(path, lambda: cases.by_seed(results), properties)
    return ET.fromstring(path.read_bytes()).find("testsuite")


def write_to(path, cases, properties):
    started = dt.datetime(2026, 11, 26, 8, 30, tzinfo=dt.UTC)
    write_junit(path, cases, suite="soak.n", started=started, wall_s=4.5, properties=properties)


def test_a_seed_is_one_case_of_one_name_whatever_became_of_it(tmp_path):
    suite = written(tmp_path / "j.xml", [valid(1), invalid(2), crash(3)], version="0.1", code="ab")
    assert suite.attrib == {
        "name": "soak.n",
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
        "timestamp": "2026-11-26T08:30:00",
        "time": "4.500",
    }
    said = [
        (case.get("name"), [child.tag for child in case if child.tag != "properties"])
        for case in suite.iter("testcase")
    ]
    assert said == [
        ("seed 1", []),
        ("seed 2", ["failure"]),
        ("seed 3", ["error"]),
    ]
    failure = suite.find("testcase/failure")
    assert failure.get("message") == "linearizable · stale-read · kill: it lied"
    assert failure.text.splitlines() == [
        "linearizable: invalid: it lied",
        "liveness: unknown: out of time",
        "signature: linearizable · stale-read · kill",
        f"replay: {replay(invalid(2))}",
    ]
    first = suite.find("testcase")
    assert {item.get("name"): item.get("value") for item in first.iter("property")} == {
        "seed": "1",
        "run": "seed-1",
    }
    assert suite.find("properties/property").attrib == {"name": "version", "value": "0.1"}


@settings(max_examples=examples(200), deadline=None)
@given(st.text() | st.just(HOSTILE), st.text())
def test_junit_holds_any_text(tmp_path_factory, reason, name):
    path = tmp_path_factory.getbasetemp() / "hostile.xml"
    suite = written(path, [invalid(1, reason), crash(2, reason)], label=name)
    assert suite.find("properties/property").get("value") == _as_attribute(name)
    failure, error = (suite.find(f".//{tag}").text for tag in ("failure", "error"))
    assert failure.startswith(f"linearizable: invalid: {_as_text(reason)}")
    assert error.startswith(_as_text(reason))
    assert len(list(suite.iter("testcase"))) == 2


def _as_attribute(text):
    # \t, \n and \r survive in attributes, because they are written as entities
    return xml_text(text)


def _as_text(text):
    return xml_text(text).replace("\r\n", "\n").replace("\r", "\n")


def test_characters_that_xml_cannot_hold_are_named():
    assert xml_text("a\x00b\x1b\ud800\ufffe\t\n") == r"a\u{0}b\u{1b}\u{d800}\u{fffe}" + "\t\n"


def test_junit_has_a_bound_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(junit, "CASES_MAX", 5)
    results = [*(valid(seed) for seed in range(10)), crash(20), crash(21)]
    suite = written(tmp_path / "j.xml", results)
    names = [case.get("name") for case in suite.iter("testcase")]
    assert names == ["seed 0", "seed 1", "seed 2", "seed 20", "seed 21"]
    assert (suite.get("tests"), suite.get("errors")) == ("5", "2")
    assert suite.find("properties/property").get("value").startswith("7 valid seeds")


def test_junit_is_whole_or_not_there(tmp_path):
    with pytest.raises(InfrastructureError, match="choose another --junit"):
        written(tmp_path, [valid(1)])
    assert list(tmp_path.iterdir()) == []

    def torn():
        yield valid(1)
        raise OSError(28, "No space left on device")

    with pytest.raises(InfrastructureError, match="No space left"):
        write_to(
            tmp_path / "j.xml", lambda: JunitCases(replay=replay, folder=str).by_seed(torn()), {}
        )
    assert list(tmp_path.iterdir()) == []


def test_pages_of_failing_runs_are_attached(tmp_path):
    for name in ("report.html", "counterexample.html", "run.json"):
        (tmp_path / name).touch()
    suite = written(tmp_path / "j.xml", [valid(1), invalid(2)], folder=str(tmp_path))
    (out,) = suite.findall("testcase/system-out")
    pages = (tmp_path / name for name in ("report.html", "counterexample.html"))
    assert out.text.splitlines() == [f"[[ATTACHMENT|{page}]]" for page in pages]


def test_a_signature_is_one_case_if_asked(tmp_path):
    known = KnownFailures(
        (
            KnownFailure("linearizable · rare", "T-1", fails=False),
            KnownFailure("linearizable · fixed", "T-2"),
        )
    )
    failing = [invalid(2), invalid(3), invalid(4, signature="rare · kill"), crash(5)]
    cases = JunitCases(replay=replay, folder=lambda _: "", known_failures=known)
    groups = failure_groups(failing)
    write_to(tmp_path / "j.xml", lambda: cases.by_signature(groups, passing=7), {})
    suite = ET.fromstring((tmp_path / "j.xml").read_bytes()).find("testsuite")
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == [*"5111"]
    tags = {
        case.get("name"): [part.tag for part in case if part.tag != "properties"]
        for case in suite
        if case.tag == "testcase"
    }
    assert tags == {
        "passing seeds": [],
        "linearizable · fixed": [],
        "invalid: linearizable · stale-read · kill": ["failure"],
        "invalid: linearizable · rare · kill": ["skipped"],
        "crash: no signature": ["error"],
    }
    assert "2 seeds: 2, 3\n" in suite.find("testcase/failure").text


def test_failing_seeds_are_grouped_by_verdict_and_signature():
    results = [
        valid(1),
        crash(2),
        invalid(3, "a", "rare"),
        *(invalid(seed, "b", "often · kill · get") for seed in range(4, 20)),
        *(invalid(seed, "b", "often · kill · delete+get") for seed in range(20, 30)),
        SeedResult(seed=30, verdict="unknown", reason="?", signature="linearizable · often"),
    ]
    groups = failure_groups(results)
    assert [(group.verdict, group.signature, group.count) for group in groups] == [
        ("invalid", "linearizable · often · kill", 26),
        ("invalid", "linearizable · rare", 1),
        ("crash", "no signature", 1),
        ("unknown", "linearizable · often", 1),
    ]
    assert (groups[0].first.seed, groups[0].seeds) == (4, list(range(4, 30)))
    assert groups[0].shapes == {"get": 16, "delete+get": 10}
    assert groups[0].seeds_text == "26 seeds: 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 ..."


def test_beyond_a_bound_of_signatures_the_rest_is_one_group(monkeypatch):
    monkeypatch.setattr(result_module, "GROUPS_MAX", 3)
    groups = failure_groups([invalid(seed, signature=str(seed)) for seed in range(10)])
    assert sum(group.count for group in groups) == 10
    assert len(groups) == 4


def of_signatures(count):
    """Build failures with this number of different signatures, one seed each."""
    return failure_groups([invalid(seed, HOSTILE, f"{seed}") for seed in range(count)])


def summary(failing, bytes_max=900 * 1024):
    return step_summary(
        "Soak",
        ["all in all"],
        tally_of(failing),
        failure_groups(failing),
        replay,
        bytes_max=bytes_max,
    )


def test_a_summary_escapes_and_never_leaves_html():
    text = summary([invalid(7, HOSTILE, HOSTILE)])
    assert "<script" not in text
    assert "\n\n" not in text  # an empty line would end the block of HTML and begin Markdown
    assert [line for line in text.rstrip("\n").split("\n") if not line.startswith("<")] == []
    assert "<td>invalid</td><td><b>linearizable" in text
    ET.fromstring(f"<all>{xml_text(text.replace('<br>', '<br/>'))}</all>")


@pytest.mark.parametrize("bytes_max", [1000, 5000, 100_000])
def test_a_summary_stays_within_its_budget_and_says_what_it_cut(bytes_max):
    failing = [invalid(seed, "\u00e4" * 300, f"rule-{seed}") for seed in range(400)]
    text = summary(failing, bytes_max)
    assert len(text.encode()) <= bytes_max
    rows = text.count("<td><b>")
    assert f"{400 - rows} more of 400 signatures are left out" in text
    assert rows == len(re.findall(r"<br>\u00e4", text))
    assert len(text.encode()) > bytes_max - 1800


@pytest.mark.parametrize(
    ("failing", "entries", "headline"),
    [
        ([], ("other",), "1 seed: 1 valid"),
        ([invalid(2), invalid(3)], (), "2 of 3 seeds invalid: 1 signature"),
        ([invalid(2), crash(3)], ("rule",), "1 of 3 seeds invalid, 1 crash: 2 signatures, 2 new"),
        (
            [invalid(2), invalid(3, signature="new"), invalid(4)],
            ("linearizable · stale-read",),
            "3 of 4 seeds invalid: 2 signatures, 1 new, 1 known (T-1)",
        ),
    ],
)
def test_a_summary_begins_with_the_result_and_has_a_row_per_signature(failing, entries, headline):
    failures = KnownFailures(tuple(KnownFailure(entry, "T-1") for entry in entries))
    groups = failure_groups(failing)
    text = step_summary("Soak", [], tally_of([valid(1), *failing]), groups, replay, failures)
    assert text.startswith(f"<h3>{headline}</h3>\n")
    assert text.count("<td><b>linearizable") == len({r.signature for r in failing if r.signature})
    assert text.count("<td>known: T-1</td>") == headline.count("known")
    assert ("<th>new or known</th>" in text) == bool(entries and failing)


@pytest.mark.parametrize("count", [0, 1, ANNOTATIONS_MAX, ANNOTATIONS_MAX + 1, 400])
def test_annotations_are_few_and_one_line_each(count):
    lines = error_annotations(of_signatures(count), replay)
    assert len(lines) == min(count, ANNOTATIONS_MAX)
    for line in lines:
        assert re.fullmatch(r"::error title=[^:,\n\r]*(%3A)?[^:,\n\r]*::[^\n\r]*", line)
    if count > ANNOTATIONS_MAX:
        assert f"::{count - ANNOTATIONS_MAX + 1} more signatures" in lines[-1]
    for line in lines[: ANNOTATIONS_MAX - 1]:
        assert "%250A::error::x%0D%0A%0A#" in line
        assert "%0Areplay: harness run --seed" in line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119.4, "119 s"), (120, "2 min"), (7140, "119 min"), (7500, "2 h 05 min")],
)
def test_durations(seconds, text):
    assert duration_text(seconds) == text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_tells_failures_by_kind_and_what_is_left():
    tally = tally_of([valid(1), valid(2)])  # done in an earlier session
    progress = SoakProgress(tally, 10, io.StringIO())
    assert progress.line(5.0) == "2/10 seeds, all valid"
    for result in (valid(3), crash(4), invalid(5), invalid(6)):
        tally.take(result)
    # This session finished four seeds in eight seconds, so the last four should take as long.
    assert progress.line(8.0) == "6/10 seeds, 2 invalid, 1 crash, 0.5 seeds/s, about 8 s to go"
    # Runs in real environments are slow: their rate is not rounded to zero.
    assert progress.line(96.0) == "6/10 seeds, 2 invalid, 1 crash, 24 s per seed, about 96 s to go"
    for seed in (7, 8, 9, 10):
        tally.take(valid(seed))
    assert progress.line(8.0) == "10/10 seeds, 2 invalid, 1 crash, 1.0 seeds/s"


def test_progress_rewrites_a_line_on_a_terminal_and_writes_lines_elsewhere(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for stream, rewritten in ((Terminal(), True), (io.StringIO(), False)):
        tally = Tally()
        progress = SoakProgress(tally, 2, stream)
        progress._status._interval_s = 0.0
        for result in (valid(1), invalid(2, "first line\nsecond")):
            tally.take(result)
            progress.take(result)
            progress.show()
        progress.finish()
        text = stream.getvalue()
        assert ("\x1b[2K" in text) == rewritten
        assert rewritten or text.count("\n") == 3
        assert "seed 2: invalid: first line\n" in without_codes(text)
        assert "second" not in text


def test_progress_shows_few_failures_and_outlives_its_stream():
    stream = io.StringIO()
    tally = Tally()
    progress = SoakProgress(tally, 1000, stream)
    for seed in range(100):
        tally.take(crash(seed))
        progress.take(crash(seed))
    assert stream.getvalue().count("crash: it fell") == FAILURES_SHOWN_MAX
    assert stream.getvalue().count("more seeds fail") == 1
    stream.close()
    progress._status._interval_s = 0.0
    tally.take(valid(1))
    progress.take(valid(1))
    progress.show()
    progress.finish()


def test_a_line_fits_into_a_narrow_terminal(monkeypatch):
    # Only the last row of a wrapped line is cleared, so each update would leave the other rows
    # behind.
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    main_end, end = pty.openpty()
    with os.fdopen(end, "w") as stream:
        status = StatusLine(stream, pipe_interval_s=5.0)
        for columns in (20, 80, 1000, 1):
            fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            status.show("x" * 500)
            shown = ""
            while not shown:  # the terminal delivers the text in pieces
                shown = without_codes(os.read(main_end, 10_000).decode()).strip()
            assert shown == ("x" * 500 if columns > 500 else "x" * (columns - 1) + "\u2026")
        status.finish()
    os.close(main_end)


def without_codes(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_only_whole_parts_are_shown():
    assert fitting(["12.0 s", "chaos: 40 op/s", "m1 leads"], 22) == "12.0 s  chaos: 40 op/s"
    assert fitting(["12.0 s", "chaos: 40 op/s", "m1 leads"], 21) == "12.0 s"


def test_reasons_are_cut_and_say_so():
    assert shortened("a\ud800b") == "a\\ud800b"  # JSON cannot represent a lone surrogate
    assert shortened("x" * REASON_CHARACTERS_MAX) == "x" * REASON_CHARACTERS_MAX
    assert shortened("x" * (REASON_CHARACTERS_MAX + 7)).endswith("x ... (7 more characters)")


def parsed(*arguments):
    return parse_soak(["--seeds", "1..2", "--nemesis", "none", *arguments])


def test_one_file_for_two_outputs_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("out")
    both = ["--junit", str(tmp_path / "out"), "--summary-json"]
    for other in ("out", "link"):
        with pytest.raises(UsageError, match=r"--junit and --summary-json are both .* name two"):
            parsed(*both, str(tmp_path / other))
    parsed(*both, str(tmp_path / "other"))
    parsed("--junit", "/dev/null", "--summary-json", "/dev/null")


def test_whether_a_file_can_be_written_is_tried_without_harm_to_links(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "new" / "out")
    check_writable(parsed("--junit", str(link)))
    assert link.is_symlink()
    assert list((tmp_path / "new").iterdir()) == []
    check_writable(parsed("--summary-json", "/dev/stdout"))
    with pytest.raises(UsageError, match="Bad file descriptor"):
        check_writable(parsed("--summary-json", "/dev/fd/654321"))
