"""Writes metrics in Prometheus's text format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


class Family(NamedTuple):
    """One metric with all its series. A `counter` never decreases while its process lives."""

    name: str
    kind: str  # "counter", "gauge"
    what: str
    samples: list[Sample]


def exposed(families: Iterable[Family]) -> str:
    """Return these families in Prometheus's text format."""
    lines: list[str] = []
    for name, kind, what, samples in families:
        lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
