"""`harness doctor`: shows which parts work on this machine, and how to fix the rest."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harness import __version__
from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cli.styles import styled, table
from harness.errors import UsageError
from harness.registry import GROUPS, ExtraMissingError, load_all, plugin_names, taken_names

if TYPE_CHECKING:
    from rich.text import Text

FREE_MB_MIN: Final = 500


class Finding(msgspec.Struct, frozen=True):
    """One line of the report. If `ok` is false, `detail` says how to fix it."""

    ok: bool
    what: str
    detail: str
    optional: bool = False  # the harness works without it
    note: bool = False  # information only: not a failure


def main(arguments: Sequence[str]) -> int:
    """Print the report; return 1 if a required part or every real environment fails, else 0."""
    parser = Parser(
        prog="harness doctor",
        description="Show what works on this machine and how to fix the rest.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse_args(list(arguments))
    findings = [_python(), _disk(), *_environments(), *_optional(), *_plugins(), *_taken_names()]
    if parsed.json:
        say(msgspec.json.encode({"schema_version": 1, "findings": findings}).decode())
    else:
        rows = [(_mark(finding), finding.what, finding.detail) for finding in findings]
        say(table(rows))
    usable = [item for item in findings if item.what.startswith("environment ") and item.ok]
    broken = [
        item
        for item in findings
        if not (item.ok or item.optional or item.what.startswith("environment "))
    ]
    return 0 if len(usable) > 1 and not broken else 1


def _mark(finding: Finding) -> Text:
    if finding.ok:
        return styled("note", "cyan") if finding.note else styled("ok", "green")
    return styled("none", "yellow") if finding.optional else styled("FIX", "bold red")


def _python() -> Finding:
    version = platform.python_version()
    return Finding(
        sys.version_info >= (3, 11),
        "python",
        f"{version} (harness {__version__}, {os.cpu_count()} cores)",
    )


def _disk() -> Finding:
    free_mb = shutil.disk_usage(Path.cwd()).free // 2**20
    text = f"{free_mb} MB free here"
    if free_mb < FREE_MB_MIN:
        text += f"; free at least {FREE_MB_MIN} MB or give --store another disk"
    return Finding(free_mb >= FREE_MB_MIN, "disk", text)


def _environments() -> list[Finding]:
    findings = []
    for name, environment in load_all("environments"):
        reason = (
            str(environment) if isinstance(environment, UsageError) else environment.unavailable()
        )
        findings.append(Finding(reason is None, f"environment {name}", reason or environment.doc))
    return findings


def _optional() -> list[Finding]:
    """Return findings about optional tools. Diagnosis plug-ins that do not load are skipped."""
    findings = [_faketime()]
    for name, diagnosis in load_all("diagnoses"):
        with contextlib.suppress(UsageError):
            if not isinstance(diagnosis, UsageError):
                ok, detail = diagnosis.look()
                findings.append(Finding(ok, name, detail, optional=True))
    return findings


def _faketime() -> Finding:
    from harness.environments.host.faketime import find_library

    library = find_library()
    lack = "clock faults of foreign programs in --env process need it: apt-get install libfaketime"
    return Finding(library is not None, "libfaketime", str(library or lack), optional=True)


def _taken_names() -> list[Finding]:
    """Return findings about plug-in names that several packages use."""
    return [
        Finding(
            True,
            f"plug-ins {group}",
            f"{name} is {'the built-in one' if ours else 'ambiguous'}; {', '.join(others)} "
            f"{'is another' if len(others) == 1 else 'are others'}",
            note=True,
        )
        for group, name, ours, others in taken_names()
    ]


def _plugins() -> list[Finding]:
    findings = []
    for group in GROUPS:
        names = plugin_names(group)
        errors = [plugin for _, plugin in load_all(group) if isinstance(plugin, UsageError)]
        broken = [str(error) for error in errors if not isinstance(error, ExtraMissingError)]
        detail = "; ".join(broken) or f"{len(names)} found"
        findings.append(Finding(bool(names) and not broken, f"plug-ins {group}", detail))
        findings += [
            Finding(False, f"plug-ins {group}", str(error), optional=True)
            for error in errors
            if isinstance(error, ExtraMissingError)
        ]
    return findings
