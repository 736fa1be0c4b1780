"""The verdict in words: checkers, counterexample, certificate. Everything shown has a bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.checking import Judgement
from harness.ops import Verdict

__all__ = ["EXPLANATION_LINES_MAX", "describe"]

EXPLANATION_LINES_MAX: Final = 6
LINE_CHARACTERS_MAX: Final = 400
FAULT_LINES_MAX: Final = 30


def describe(judgement: Judgement, *, certificate: bool = True) -> list[str]:
    """Lines for people, the verdict of each checker first, and what the run did if asked for."""
    lines = [
        _line(f"{result.checker:22} {result.verdict.value:9} {result.reason}")
        for result in judgement.results
    ]
    for result in judgement.results:
        if result.verdict is not Verdict.VALID and result.explanation:
            lines += ["", f"{result.checker}: {result.verdict.value}"]
            lines += _bounded([_line(line) for line in result.explanation], EXPLANATION_LINES_MAX)
    for result in judgement.results if certificate else ():
        done = result.details.get("certificate")
        if isinstance(done, Mapping):
            lines += ["", "certificate (what this run really did):", *_certificate(done)]
    return lines


def _line(text: str) -> str:
    """One line of an explanation, which may quote whole tables."""
    if len(text) <= LINE_CHARACTERS_MAX:
        return f"  {text}"
    return f"  {text[:LINE_CHARACTERS_MAX]}... (whole in results.json)"


def _certificate(certificate: Mapping[str, Any]) -> list[str]:
    """One line an entry; lists of entries one line each, up to a bound."""
    lines = []
    for name, value in certificate.items():
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            text = ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
            lines.append(f"  {label:24} {text}")
        elif isinstance(value, (list, tuple)):
            lines.append(f"  {label:24} {len(value) or 'none'}")
            lines += _bounded([f"    {_plain(item)}" for item in value], FAULT_LINES_MAX)
        else:
            lines.append(f"  {label:24} {_plain(value)}")
    return lines


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(_plain(item) for item in value)
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def _bounded(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[:most], f"  ... and {len(lines) - most} more, in results.json"]
