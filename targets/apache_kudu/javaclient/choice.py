"""Checks whether a run can use `--client java`, both for real and for bundled servers."""

from __future__ import annotations

from typing import Final

from harness.errors import UsageError
from harness.plugins import TargetSettings
from targets.kudu.bugs import PROFILES, Bug

NATIVE: Final = "native"
JAVA: Final = "java"
JAVA_DOC: Final = "Kudu's Java client (harness fetch kudu-client), for ddl and rows"
_VOCABULARIES: Final = ("ddl", "rows")


def check_real(settings: TargetSettings) -> None:
    """Raise `UsageError` if this run cannot use the Java client on real servers."""
    _check_vocabulary(settings)
    if settings.environment == "docker":
        raise UsageError(
            "--client java with --env docker: the Java client runs on this machine, and cannot "
            "reach servers that advertise names of containers; give --env process"
        )


def check_bundled(settings: TargetSettings) -> None:
    """Raise `UsageError` if this run cannot use the Java client on bundled servers."""
    _check_vocabulary(settings)
    if settings.environment not in {None, "process"}:  # `None` in a dry run
        raise UsageError(
            f"--client java with --env {settings.environment}: the Java client runs on this "
            "machine, in real time; give --env process"
        )
    if Bug.KUDU_1537 not in PROFILES[settings.profile]:
        raise UsageError(
            f"--client java with --profile {settings.profile}: the Java client sends a change of "
            "the catalog again without an id, so the servers may execute it twice, which this "
            "profile does not permit; give --profile modern"
        )
    if settings.options.get("hms"):
        raise UsageError("--client java with --hms: the Java client does not use the metastores")


def _check_vocabulary(settings: TargetSettings) -> None:
    if settings.vocabulary not in {None, *_VOCABULARIES}:
        raise UsageError(
            f"--client java with the vocabulary {settings.vocabulary!r}: the Java client does "
            f"{' and '.join(_VOCABULARIES)}; give --client {NATIVE}, or --workload ddl"
        )
