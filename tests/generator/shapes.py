"""Short forms of ops, and small operations to build generators from."""

from collections.abc import Iterable
from typing import Any

from harness.generator import Context, Draft, Generator, repeat
from harness.ops import Op, Process

S = 1_000_000_000


def short(ops: Iterable[Op]) -> list[tuple[int, Process, str, Any]]:
    """(time, process, f, value) of each op."""
    return [(op.time, op.process, op.f, op.value) for op in ops]


def names(ops: Iterable[Op]) -> list[str]:
    return [op.f for op in ops]


def times(ops: Iterable[Op]) -> list[int]:
    return [op.time for op in ops]


def processes(ops: Iterable[Op]) -> list[Process]:
    return [op.process for op in ops]


def forever(f: str) -> Generator:
    return repeat(Draft(f))


def numbered(f: str, count: int) -> list[Draft]:
    return [Draft(f, value) for value in range(count)]


def draw(ctx: Context) -> Draft:
    return Draft("draw", ctx.random.randrange(100))
