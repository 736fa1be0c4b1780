"""A soak as JUnit XML, which every CI system shows.

Every seed is one test case with a fixed name, so that CI systems can follow it. An invalid seed is
a `failure` with its signature, the findings of each checker and the replay command. An unknown or
crashed seed is an `error`, and a seed that a known failure excuses is `skipped`. Properties are
seed, version, code and run folder. The file is written as results are read, in constant memory;
beyond `CASES_MAX`, passing seeds are left out, with a note. An unfinished soak has one more test
case, an `error`, so that the file alone never looks passed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TextIO
from xml.sax.saxutils import escape, quoteattr

from harness.errors import InfrastructureError
from harness.ops import Verdict
from harness.soak.result import PASSING, SeedResult
from harness.support.atomic_file import replacing
from harness.verdict.known import NONE_KNOWN, KnownFailures

CASES_MAX: Final = 100_000
PASSED: Final = ""
_FORBIDDEN: Final = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def xml_text(text: str) -> str:
    """`text` with code points for characters that XML 1.0 cannot contain even if escaped."""
    return _FORBIDDEN.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def write_junit(
    path: Path,
    results: Callable[[], Iterable[SeedResult]],
    *,
    suite: str,
    properties: Mapping[str, str],
    replay: Callable[[SeedResult], str],
    folder: Callable[[SeedResult], str],
    known: KnownFailures = NONE_KNOWN,
    unfinished: str | None = None,
) -> None:
    """Write the whole file or nothing. `results` is read twice, since the counts come first in the
    file.

    `unfinished` is the reason why the soak is incomplete.
    """
    try:
        with replacing(path) as file:
            _write(file, results, suite, properties, replay, folder, known, unfinished)
    except OSError as error:
        raise InfrastructureError(
            f"cannot write the JUnit file {path}: {error.strerror}; choose another --junit"
        ) from error


def _write(
    file: TextIO,
    results: Callable[[], Iterable[SeedResult]],
    suite: str,
    properties: Mapping[str, str],
    replay: Callable[[SeedResult], str],
    folder: Callable[[SeedResult], str],
    known: KnownFailures,
    unfinished: str | None,
) -> None:
    tags = Counter(_tag(result, known) for result in results())
    passed = tags.pop(PASSED, 0)
    passing_max = max(0, CASES_MAX - tags.total())
    cut = max(0, passed - passing_max)
    counts = {
        "tests": tags.total() + passed - cut,
        "failures": tags["failure"],
        "errors": tags["error"],
        "skipped": tags["skipped"],
    }
    if unfinished is not None:
        counts["tests"] += 1
        counts["errors"] += 1
    attributes = " ".join(f'{name}="{count}"' for name, count in counts.items())
    listed = dict(properties)
    if cut:
        listed["left-out"] = f"{cut} valid seeds beyond the limit of {CASES_MAX} test cases"
    file.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n')
    file.write(f"<testsuite name={_attribute(suite)} {attributes}>\n")
    _properties(file, listed)
    passing = 0
    for result in results():
        passing += not result.failed
        if result.failed or passing <= passing_max:
            _case(file, result, suite, replay, folder, known)
    if unfinished is not None:
        file.write(
            f'<testcase classname={_attribute(suite)} name="whole soak">\n'
            f'<error type="unfinished" message={_attribute(unfinished)}/>\n</testcase>\n'
        )
    file.write("</testsuite>\n</testsuites>\n")


def _case(
    file: TextIO,
    result: SeedResult,
    suite: str,
    replay: Callable[[SeedResult], str],
    folder: Callable[[SeedResult], str],
    known: KnownFailures,
) -> None:
    """The test case of one seed, whose name does not depend on its result."""
    file.write(
        f"<testcase classname={_attribute(suite)} name={_attribute(f'seed {result.seed}')} "
        f'time="{result.wall_s:.3f}">\n'
    )
    fields = {"seed": str(result.seed), "run": folder(result)}
    if result.signature:
        fields["signature"] = result.signature
    if entry := known.of(result.signature):
        fields["known"] = entry.words
    _properties(file, fields)
    if tag := _tag(result, known):
        _outcome(file, tag, result, replay(result))
    file.write("</testcase>\n")


def _tag(result: SeedResult, known: KnownFailures) -> str:
    """The element that tells how a seed failed; `PASSED` if it did not."""
    if not result.failed:
        return PASSED
    if known.excuses(result.signature):
        return "skipped"
    return "failure" if result.verdict == Verdict.INVALID.value else "error"


def _outcome(file: TextIO, tag: str, result: SeedResult, replay: str) -> None:
    lines = [
        f"{verdict.checker}: {verdict.verdict}: {verdict.reason}"
        for verdict in result.checkers
        if verdict.verdict not in PASSING
    ] or [result.reason]
    text = "\n".join([*lines, f"signature: {result.signature}", f"replay: {replay}"])
    message = f"{result.signature}: {result.reason}" if result.signature else result.reason
    file.write(
        f"<{tag} type={_attribute(result.verdict)} message={_attribute(message)}>"
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
