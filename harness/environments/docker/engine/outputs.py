"""The output of a container, until it has exited.

The end of the stream is how an exit is noticed. But only a container that the engine shows as
exited has exited: a stream may break for reasons of its own, and is then attached again, which is
told as a failure of the infrastructure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.environments.docker.engine.attachment import Attachment
from harness.environments.docker.engine.engine import (
    ContainerState,
    Engine,
    EngineUnreachableError,
)
from harness.errors import InfrastructureError

_SETTLE_S: Final = 2
"""How long after the end of its output the engine may still show a container as running."""
_ATTACHMENTS_MAX: Final = 20


def follow(
    engine: Engine,
    container: str,
    attachment: Attachment,
    take: Callable[[bytes], None],
    broke_off: Callable[[str], None],
) -> ContainerState:
    """Hand on the output until the container has exited; how it did. Blocks, so it needs a thread.

    `broke_off` gets the reason when the output was attached again. Raises `InfrastructureError` if
    the engine cannot be asked, or has no such container.
    """
    for _ in range(_ATTACHMENTS_MAX):
        broken: InfrastructureError | None = None
        try:
            for line in attachment.lines():
                take(line)
        except InfrastructureError as error:
            broken = error
        finally:
            attachment.close()
        again = _attach_again(engine, container)
        if isinstance(again, ContainerState):
            return again
        attachment = again
        broke_off("it ended" if broken is None else str(broken))
    attachment.close()
    raise InfrastructureError(
        f"docker: the output of {container} broke off {_ATTACHMENTS_MAX} times while it ran"
    )


def _attach_again(engine: Engine, container: str) -> Attachment | ContainerState:
    """A new attachment to a container that still runs, or how it exited."""
    refusal: InfrastructureError | None = None
    for _ in range(_ATTACHMENTS_MAX):
        state = engine.wait(container, timeout_s=_SETTLE_S)
        while state is not None and state.paused:  # a frozen container cannot be attached to
            state = engine.wait(container, timeout_s=_SETTLE_S)
        if state is None:
            raise InfrastructureError(f"docker: {container} is gone")
        if not state.running:
            return state
        try:
            attachment = engine.attach(container)
        except EngineUnreachableError:
            raise
        except InfrastructureError as error:  # frozen in this very moment
            refusal = error
            continue
        # It may have exited before that: such an attachment would wait for its next start.
        state = engine.state(container)
        if state is not None and state.running:
            return attachment
        attachment.close()
    raise refusal or InfrastructureError(f"docker: cannot attach to {container}")
