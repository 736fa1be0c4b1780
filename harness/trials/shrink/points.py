"""Replaces faults at planned times by faults at points of the target's code.

A defect may show only if a fault begins within a window of a few milliseconds. In a smaller case, a
fault at a planned time nearly always misses this window. The logs of the failing run name the
points (`Env.point`) and events that each killed node passed just before its end. A fault that waits
for such a point, and then for the same delay, begins inside the window in many runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from harness.case import Case, Fault
from harness.run.announcements import DRIVER_KINDS, NODE_EXITED
from harness.trials.shrink.faults import FIRST_AT_NS, packed
from harness.trials.shrink.search import Search

VERBS: Final = ("kill", "power-cut", "restart")
"""The verbs of faults that end a process. The node's log shows the end."""
POINTS_MAX: Final = 8
"""How many points are tried at most per kind of fault."""
WITHIN_S: Final = 0.05
"""The longest time from a point to the end of its node, in seconds."""
_LOGGED: Final = re.compile(r"(\d+\.\d+) (\S+) (\{.*\})")
_ID: Final = re.compile(r"[0-9a-f]{8}")


def cases_at_points(search: Search, case: Case) -> Iterator[Case]:
    """Yield short cases with one fault at a point. Points closest to a node's end come first.

    `case` is the best case with its faults in plain words (`faults.in_plain_words`).
    """
    ending: dict[str, Fault] = {}
    for fault in case.faults or ():
        words = fault.nemesis.split()
        if words[0] in VERBS and "when" not in words:
            ending.setdefault(f"{words[0]} {'all' if 'all' in words else 'it'}", fault)
    if not ending or search.exhausted:
        return
    for point in points_before_ends(search.witness().logs)[:POINTS_MAX]:
        for verb, fault in ending.items():
            text = f"{verb} when event {point}"
            at_point = msgspec.structs.replace(fault, nemesis=text, at_ns=FIRST_AT_NS, args={})
            yield packed(case, [at_point])


def points_before_ends(logs: Iterable[Iterable[str]]) -> list[str]:
    """Return the last points before the ends of killed nodes: `appended group=master after=2ms`.

    Each log contains the lines of one simulated node. The shortest times come first.
    """
    passed: list[tuple[int, str]] = []
    for log in logs:
        last: tuple[float, str] | None = None
        for line in log:
            logged = _LOGGED.fullmatch(line.strip())
            if logged is None:
                continue
            at_s, kind, data = float(logged[1]), logged[2], json.loads(logged[3])
            if kind == NODE_EXITED and data.get("expected") and last is not None:
                waited_s = at_s - last[0]
                if waited_s <= WITHIN_S:
                    passed.append((max(1, round(waited_s * 1000)), last[1]))
            if kind in DRIVER_KINDS:
                last = None
                continue
            group = data.get("group")
            named = isinstance(group, str) and _ID.search(group) is None
            last = at_s, f"{kind} group={group}" if named else kind
    return list(dict.fromkeys(f"{words} after={wait_ms}ms" for wait_ms, words in sorted(passed)))
