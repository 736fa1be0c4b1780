"""A soak as JUnit XML, which every CI system shows.

A seed that was valid is one test case; of one that was not, each checker is, and a crash is one.
Invalid is a `failure` that carries the command to replay it, unknown and crash are an `error`.
Properties tell seed, version, code and run folder. Written as it is read, so its size in memory is
constant; beyond `CASES_MAX` passing seeds are left out, which it says. A soak that did not come to
its end has one more test case, an `error`: who reads but this file must not take it for good.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TextIO
from xml.sax.saxutils import escape, quoteattr

from harness.errors import InfrastructureError
from harness.ops import Verdict
from harness.soak.outfile import replacing
from harness.soak.result import CRASH, CheckerVerdict, SeedResult, Tally

__all__ = ["CASES_MAX", "write_junit", "xml_text"]

CASES_MAX: Final = 100_000
_FORBIDDEN: Final = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def xml_text(text: str) -> str:
    """`text` without what XML 1.0 cannot hold, even escaped: it is written as its code point."""
    return _FORBIDDEN.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def write_junit(
    path: Path,
    results: Callable[[], Iterable[SeedResult]],
    tally: Tally,
    *,
    suite: str,
    properties: Mapping[str, str],
    replay: Callable[[SeedResult], str],
    folder: Callable[[SeedResult], str],
    unfinished: str | None = None,
) -> None:
    """Write the file, whole or not at all. `results` is read twice: counts come first in it.

    `unfinished` says why the soak did not come to its end.
    """
    try:
        with replacing(path) as file:
            _write(file, results, tally, suite, properties, replay, folder, unfinished)
    except OSError as error:
        raise InfrastructureError(
            f"cannot write the JUnit file {path}: {error.strerror}; choose another --junit"
        ) from error


def _write(
    file: TextIO,
    results: Callable[[], Iterable[SeedResult]],
    tally: Tally,
    suite: str,
    properties: Mapping[str, str],
    replay: Callable[[SeedResult], str],
    folder: Callable[[SeedResult], str],
    unfinished: str | None,
) -> None:
    passing_max = max(0, CASES_MAX - tally.failed)
    cut = max(0, tally.seeds - tally.failed - passing_max)
    counts = _counts(results(), passing_max)
    if unfinished is not None:
        counts["tests"] += 1
        counts["errors"] += 1
    attributes = " ".join(f'{name}="{count}"' for name, count in counts.items())
    given = dict(properties)
    if cut:
        given["left-out"] = f"{cut} valid seeds, beyond the {CASES_MAX} test cases of this file"
    file.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n')
    file.write(f"<testsuite name={_attribute(suite)} {attributes}>\n")
    _properties(file, given)
    passing = 0
    for result in results():
        if not result.failed:
            passing += 1
            if passing > passing_max:
                continue
        own = {"seed": str(result.seed), "run": folder(result)}
        time_s = f"{result.wall_s:.3f}"
        for name, said in _cases(result):
            file.write(
                f"<testcase classname={_attribute(suite)} name={_attribute(name)} "
                f'time="{time_s}">\n'
            )
            _properties(file, own)
            if said is not None and said.verdict != Verdict.VALID.value:
                _outcome(file, said, replay(result))
            file.write("</testcase>\n")
            time_s = "0.000"  # its checkers judge one run: it is counted once
    if unfinished is not None:
        file.write(
            f'<testcase classname={_attribute(suite)} name="whole soak">\n'
            f'<error type="unfinished" message={_attribute(unfinished)}/>\n</testcase>\n'
        )
    file.write("</testsuite>\n</testsuites>\n")


def _cases(result: SeedResult) -> list[tuple[str, CheckerVerdict | None]]:
    """The test cases of one seed: name, and what was said where it did not just pass."""
    name = f"seed {result.seed}"
    if not result.failed:
        return [(name, None)]
    if not result.checkers:
        return [(name, CheckerVerdict(result.checker or "-", result.verdict, result.reason))]
    return [(f"{name} {said.checker}", said) for said in result.checkers]


def _counts(results: Iterable[SeedResult], passing_max: int) -> dict[str, int]:
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    passing = 0
    for result in results:
        passing += not result.failed
        if not result.failed and passing > passing_max:
            continue
        for _, said in _cases(result):
            counts["tests"] += 1
            if said is not None and said.verdict == Verdict.INVALID.value:
                counts["failures"] += 1
            elif said is not None and said.verdict in {Verdict.UNKNOWN.value, CRASH}:
                counts["errors"] += 1
    return counts


def _outcome(file: TextIO, said: CheckerVerdict, replay: str) -> None:
    tag = "failure" if said.verdict == Verdict.INVALID.value else "error"
    text = f"{said.reason}\nreplay: {replay}"
    file.write(
        f"<{tag} type={_attribute(said.verdict)} message={_attribute(said.reason)}>"
        f"{escape(xml_text(text))}</{tag}>\n"
    )


def _properties(file: TextIO, properties: Mapping[str, str]) -> None:
    if properties:
        file.write("<properties>\n")
        file.writelines(
            f"<property name={_attribute(name)} value={_attribute(value)}/>\n"
            for name, value in properties.items()
        )
        file.write("</properties>\n")


def _attribute(text: str) -> str:
    return quoteattr(xml_text(text))
