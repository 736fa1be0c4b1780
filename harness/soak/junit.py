"""Writes a soak's results as JUnit XML, which every CI system can show.

One test case is either one seed, whose name is the same in every soak, or one signature. An invalid
seed is a `failure` with its signature, the findings of each checker and the replay command. An
unknown or crashed seed is an `error`, and a seed that a known failure excuses is `skipped`. The
pages of failing runs are attachments, in the form that Jenkins and GitLab read. The file is written
as results are read, in constant memory. Beyond `CASES_MAX`, passing seeds are left out, with a
note. An unfinished soak has one more test case, an `error`, so that the file never looks like a
success.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TextIO
from xml.sax.saxutils import escape, quoteattr

from harness.errors import InfrastructureError
from harness.ops import Verdict
from harness.soak.result import PASSING, FailureGroup, SeedResult
from harness.support.atomic_file import replacing
from harness.verdict.known import NONE_KNOWN, KnownFailures

CASES_MAX: Final = 100_000
PASSED: Final = ""
PAGES: Final = ("report.html", "counterexample.html")
_FORBIDDEN: Final = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def xml_text(text: str) -> str:
    """Replace each character that XML 1.0 forbids, even in escaped form, by its code in hex."""
    return _FORBIDDEN.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


class JunitCase(NamedTuple):
    """One test case. `tag` is the name of its failure element, or `PASSED`."""

    name: str
    wall_s: float | None
    properties: Mapping[str, str]
    tag: str = PASSED
    verdict: str = ""
    message: str = ""
    text: str = ""
    pages: Sequence[Path] = ()


@dataclass(frozen=True, kw_only=True)
class JunitCases:
    """Makes test cases from a soak's results.

    `folder` returns the folder with the files of a result's run, or "" if no files are kept.
    """

    replay: Callable[[SeedResult], str]
    folder: Callable[[SeedResult], str]
    known_failures: KnownFailures = NONE_KNOWN

    def by_seed(self, results: Iterable[SeedResult]) -> Iterator[JunitCase]:
        """Yield one test case per seed. Its name does not depend on the seed's result."""
        for result in results:
            name, properties = f"seed {result.seed}", {"seed": str(result.seed)}
            properties["run"] = self.folder(result)
            if result.failed:
                yield self._failing(name, properties, result, result.signature, result.wall_s)
            else:
                yield JunitCase(name, result.wall_s, properties)

    def by_signature(self, groups: Sequence[FailureGroup], *, passing: int) -> Iterator[JunitCase]:
        """Yield one test case per signature, with its first seed.

        Also yield one for all passing seeds together, and one per known failure that did not occur.
        """
        yield JunitCase("passing seeds", None, {"seeds": str(passing)})
        for entry in self.known_failures.gone(group.signature for group in groups):
            yield JunitCase(entry.signature, None, {"known": entry.words, "seeds": "0"})
        for group in groups:
            properties = {"seeds": str(group.count), "run": self.folder(group.first)}
            name = f"{group.verdict}: {group.signature}"
            yield self._failing(
                name, properties, group.first, group.signature, None, [group.seeds_text]
            )

    def _failing(
        self,
        name: str,
        properties: dict[str, str],
        result: SeedResult,
        signature: str,
        wall_s: float | None,
        more: Sequence[str] = (),
    ) -> JunitCase:
        if result.signature:
            properties["signature"] = signature
        if entry := self.known_failures.of(signature):
            properties["known"] = entry.words
        if self.known_failures.excuses(signature):
            tag = "skipped"
        else:
            tag = "failure" if result.verdict == Verdict.INVALID.value else "error"
        lines = [
            f"{verdict.checker}: {verdict.verdict}: {verdict.reason}"
            for verdict in result.checkers
            if verdict.verdict not in PASSING
        ] or [result.reason]
        lines += [*more, f"signature: {signature}", f"replay: {self.replay(result)}"]
        pages = [Path(properties["run"]) / page for page in PAGES]
        return JunitCase(
            name,
            wall_s,
            properties,
            tag,
            verdict=result.verdict,
            message=f"{signature}: {result.reason}" if signature else result.reason,
            text="\n".join(lines),
            pages=[page for page in pages if properties["run"] and page.is_file()],
        )


def write_junit(
    path: Path,
    cases: Callable[[], Iterable[JunitCase]],
    *,
    suite: str,
    started: dt.datetime,
    wall_s: float,
    properties: Mapping[str, str],
    unfinished: str | None = None,
) -> None:
    """Write a JUnit file completely or not at all.

    `cases` is called twice, because the file begins with the counts of cases. `started` and
    `wall_s` are the start and the duration of the whole soak. `unfinished` is the reason if the
    soak is incomplete.
    """
    attributes = {"timestamp": f"{started:%Y-%m-%dT%H:%M:%S}", "time": f"{wall_s:.3f}"}
    try:
        with replacing(path) as file:
            _write(file, cases, suite, attributes, properties, unfinished)
    except OSError as error:
        raise InfrastructureError(
            f"cannot write the JUnit file {path}: {error.strerror}; choose another --junit"
        ) from error


def _write(
    file: TextIO,
    cases: Callable[[], Iterable[JunitCase]],
    suite: str,
    attributes: Mapping[str, str],
    properties: Mapping[str, str],
    unfinished: str | None,
) -> None:
    tags = Counter(case.tag for case in cases())
    passed = tags.pop(PASSED, 0)
    passing_max = max(0, CASES_MAX - tags.total())
    cut = max(0, passed - passing_max)
    more = unfinished is not None
    counts = {
        "tests": tags.total() + passed - cut + more,
        "failures": tags["failure"],
        "errors": tags["error"] + more,
        "skipped": tags["skipped"],
    }
    listed = dict(properties)
    if cut:
        listed["left-out"] = f"{cut} valid seeds beyond the limit of {CASES_MAX} test cases"
    values = {"name": suite, **counts, **attributes}
    file.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n')
    file.write(f"<testsuite {' '.join(f'{k}={_attribute(str(v))}' for k, v in values.items())}>\n")
    _properties(file, listed)
    passing = 0
    for case in cases():
        passing += case.tag == PASSED
        if case.tag != PASSED or passing <= passing_max:
            _case(file, case, suite)
    if unfinished is not None:
        file.write(
            f'<testcase classname={_attribute(suite)} name="whole soak">\n'
            f'<error type="unfinished" message={_attribute(unfinished)}/>\n</testcase>\n'
        )
    file.write("</testsuite>\n</testsuites>\n")


def _case(file: TextIO, case: JunitCase, suite: str) -> None:
    time = "" if case.wall_s is None else f' time="{case.wall_s:.3f}"'
    file.write(f"<testcase classname={_attribute(suite)} name={_attribute(case.name)}{time}>\n")
    _properties(file, case.properties)
    if case.tag != PASSED:
        file.write(
            f"<{case.tag} type={_attribute(case.verdict)} message={_attribute(case.message)}>"
            f"{escape(xml_text(case.text))}</{case.tag}>\n"
        )
    if case.pages:
        lines = "\n".join(f"[[ATTACHMENT|{page}]]" for page in case.pages)
        file.write(f"<system-out>{escape(xml_text(lines))}</system-out>\n")
    file.write("</testcase>\n")


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
