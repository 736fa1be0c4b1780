"""The operations that a workload's generator produces, each completed before the next one."""

from typing import Any

from harness.case import stream
from harness.generator import Context, Draft, Emit, Generator, Pending, new_context
from harness.ops import Op, OpType


class Driver:
    """A driver that takes drafts from a generator and reports their completions to it."""

    def __init__(self, generator: Generator, *, threads: int = 4, seed: int = 1) -> None:
        self.generator = generator
        self.ctx: Context = new_context(threads, stream(seed, "test"))
        self.index = 0

    def next(self) -> Draft | None:
        """Return the next draft; `None` if the generator has none at this moment."""
        step = self.generator.op(self.ctx)
        if isinstance(step, Pending):
            return None
        assert isinstance(step, Emit)
        self.generator = step.next
        return step.draft

    def draft(self) -> Draft:
        """Return the next draft of a generator that does not wait."""
        draft = self.next()
        assert draft is not None
        return draft

    def event(self, draft: Draft, process: int, kind: OpType, value: Any = None) -> None:
        op = Op(self.index, self.index, process, kind, draft.f, value)
        self.index += 1
        self.generator = self.generator.update(self.ctx, op)

    def complete(self, draft: Draft, kind: OpType = OpType.OK, value: Any = None) -> None:
        process = draft.process if isinstance(draft.process, int) else 0
        self.event(draft, process, OpType.INVOKE, draft.value)
        self.event(draft, process, kind, value)

    def take(self, count: int) -> list[Draft]:
        """Return the next drafts, each completed at once."""
        drafts = []
        for _ in range(count):
            draft = self.draft()
            self.complete(draft)
            drafts.append(draft)
        return drafts


def take(generator: Generator, count: int, *, seed: int = 1, threads: int = 4) -> list[Draft]:
    """Return the first drafts of a generator, without reporting completions."""
    driver = Driver(generator, threads=threads, seed=seed)
    drafts = [driver.next() for _ in range(count)]
    assert None not in drafts
    return drafts  # type: ignore[return-value]
