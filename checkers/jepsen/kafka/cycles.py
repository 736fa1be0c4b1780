"""The rule G1c: no operation polls a message that was sent after it, even through other operations.

An operation precedes another if the other polls a message that it sent (wr), or if it ended before
the other began. A correct system has no cycle of such steps. Two kinds of cycles are enough: cycles
of wr steps alone, and chains of wr steps whose last operation ended before the first one began.
Every other cycle contains such a chain.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Mapping

import numpy as np

from checkers.elle.search.kernels import alike, strong_components
from checkers.jepsen.kafka.logs import Logs
from checkers.jepsen.kafka.reading import LogOp, Message
from checkers.verdict.findings import Findings
from harness.ops import OpType

Edge = tuple[int, str, Message]
Edges = Mapping[int, list[Edge]]


def judge_cycles(logs: Logs, findings: Findings) -> None:
    """Judge each poll of another operation's message: its sender must not come after the poll."""
    edges = _edges(logs)
    by_begin = {op.begin: op for op in logs.ops}
    findings.look("G1c", sum(map(len, edges.values())))
    order, cyclic = _sorted(edges)
    for start in cyclic:
        path = _path(start, cyclic[start], edges)
        text = f"{_shown(start, path, by_begin)}, so each precedes the other"
        findings.violate("G1c", text, *dict.fromkeys(edge[0] for edge in [*path[-1:], *path]))
    if cyclic:
        return
    # Map each operation to the earliest end among the operations that must follow it, and to the
    # first step of the chain that leads there.
    first_end: dict[int, tuple[float, Edge]] = {}
    for begin in order:
        for edge in edges.get(begin, ()):
            end = min(by_begin[edge[0]].end, first_end.get(edge[0], (by_begin[edge[0]].end,))[0])
            if begin not in first_end or end < first_end[begin][0]:
                first_end[begin] = (end, edge)
        if begin in first_end and first_end[begin][0] < begin:
            path = [first_end[begin][1]]
            while by_begin[path[-1][0]].end > first_end[begin][0]:
                path.append(first_end[path[-1][0]][1])
            text = f"{_shown(begin, path, by_begin)}, which ended before {by_begin[begin]} began"
            findings.violate("G1c", text, begin, *(edge[0] for edge in path))


def _edges(logs: Logs) -> dict[int, list[Edge]]:
    """Map each operation to the polls of its messages by other operations.

    Polls that ended before the operation began are left out: the rule `unexpected` judges them.
    """
    edges: dict[int, list[Edge]] = {}
    for name, readers in logs.readers.items():
        sender = logs.sender(name)
        if sender is None or sender.type is OpType.FAIL:
            continue
        for reader in readers:
            if reader.begin != sender.begin and sender.begin < reader.end:
                edges.setdefault(sender.begin, []).append((reader.begin, *name))
    return edges


def _sorted(edges: Edges) -> tuple[list[int], dict[int, set[int]]]:
    """Return the operations in topological order, and the strongly connected components.

    Each operation comes after the operations that poll its messages. A component of several
    operations is given by one of its operations.
    """
    polls = [(at, edge[0]) for at, each in edges.items() for edge in each]
    nodes = list(dict.fromkeys([*edges, *(target for _, target in polls)]))
    place = {node: number for number, node in enumerate(nodes)}
    source = np.array([place[at] for at, _ in polls], np.int32)
    target = np.array([place[at] for _, at in polls], np.int32)
    label = strong_components(len(nodes), source, target)
    components = [[nodes[at] for at in group] for group in alike(label)]
    cyclic = {min(each): set(each) for each in components if len(each) > 1}
    return list(itertools.chain.from_iterable(components)), cyclic


def _path(start: int, within: Collection[int], edges: Edges) -> list[Edge]:
    came: dict[int, tuple[int, Edge]] = {}
    queue = deque([start])
    while start not in came:
        at = queue.popleft()
        for edge in edges.get(at, ()):
            if edge[0] in within and edge[0] not in came:
                came[edge[0]] = (at, edge)
                queue.append(edge[0])
    path: list[Edge] = []
    at = start
    while not path or at != start:
        at, edge = came[at]
        path.append(edge)
    return path[::-1]


def _shown(start: int, path: list[Edge], by_begin: Mapping[int, LogOp]) -> str:
    steps = [f"{by_begin[at]} polls {message!r} of key {key}" for at, key, message in path]
    return f"{by_begin[start]} sent messages, and {'; '.join(steps)}"
