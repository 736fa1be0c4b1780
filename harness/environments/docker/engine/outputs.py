"""Follows the output of a container until the container exits.

The end of the output suggests that the container has exited, and the container's state confirms it.
If the output ends while the container runs, the harness attaches to it again and reports a failure
of the infrastructure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.environments.docker.engine.attachment import Attachment
from harness.environments.docker.engine.engine import ContainerState, Engine, EngineUnreachableError
from harness.errors import InfrastructureError

_SETTLE_S: Final = 2
"""For how long an engine may show a container as running after its output has ended."""
_ATTACHMENTS_MAX: Final = 20


def follow(
    engine: Engine,
    container: str,
    attachment: Attachment,
    take: Callable[[bytes], None],
    broke_off: Callable[[str], None],
) -> ContainerState:
    """Pass each line of output to `take` until the container has exited; returns its final state.

    The call blocks, so make it in a thread. `broke_off` gets the reason when the output breaks off
    and the harness attaches again. Raises `InfrastructureError` if the engine does not answer, the
    container is gone, or the output breaks off too often.
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
    refusal: InfrastructureError | None = None
    for _ in range(_ATTACHMENTS_MAX):
        state = engine.wait(container, timeout_s=_SETTLE_S)
        while state is not None and state.paused:  # engines refuse to attach to a paused container
            state = engine.wait(container, timeout_s=_SETTLE_S)
        if state is None:
            raise InfrastructureError(f"docker: {container} is gone")
        if not state.running:
            return state
        try:
            attachment = engine.attach(container)
        except EngineUnreachableError:
            raise
        except InfrastructureError as error:  # the container was paused after its state was read
            refusal = error
            continue
        # If the container exited before `attach`, this attachment would wait for the next start.
        state = engine.state(container)
        if state is not None and state.running:
            return attachment
        attachment.close()
    raise refusal or InfrastructureError(f"docker: cannot attach to {container}")
