"""The output of a running container, or of a command in a container, as lines."""

from __future__ import annotations

import collections
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from harness.environments.host.lines import LINE_BYTES_MAX

if TYPE_CHECKING:
    from docker.types import CancellableStream

_TAIL_BYTES_MAX: Final = 500


class Exchange:
    """The input and output streams of a command that the engine executes."""

    # untyped: the type of the stream depends on the transport
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._response = getattr(stream, "_response", contextlib.nullcontext())
        # The SDK wraps a plain socket in a read-only file, and returns other sockets as they are.
        self._connection = getattr(stream, "_sock", stream)

    def say(self, data: bytes) -> None:
        self._connection.sendall(data)

    def __iter__(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        from docker.utils.socket import demux_adaptor, frames_iter

        frames = frames_iter(self._stream, tty=False)  # type: ignore[no-untyped-call]
        return (demux_adaptor(*frame) for frame in frames)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class Attachment:
    """The output of a running container. The caller must call `close`, even if it reads nothing."""

    def __init__(
        self,
        stream: CancellableStream[tuple[bytes | None, bytes | None]] | Exchange,
        translated: Callable[[], contextlib.AbstractContextManager[None]],
        tail: collections.deque[str],
    ) -> None:
        self._stream = stream
        self._translated = translated
        self._tail = tail

    def lines(self) -> Iterator[bytes]:
        """Yield lines, without line ends, until the container stops; an overlong line is split.

        Lines of standard output and of standard error may alternate, but a line comes from only one
        of them.
        """
        pending = [b"", b""]
        with self._translated():
            for parts in self._stream:
                for index, part in enumerate(parts):
                    *lines, pending[index] = (pending[index] + (part or b"")).split(b"\n")
                    if len(pending[index]) > LINE_BYTES_MAX:
                        lines.append(pending[index])
                        pending[index] = b""
                    for line in lines:
                        self._tail.append(line[:_TAIL_BYTES_MAX].decode("utf-8", "replace"))
                        yield line
        yield from (rest for rest in pending if rest)

    def close(self) -> None:
        """Close the connection, and return it to the SDK's pool; may be called twice."""
        with contextlib.suppress(OSError):  # the engine has already closed the connection
            self._stream.close()
        # The SDK does not close the file object over the socket, which keeps the socket open.
        response: Any = vars(self._stream)["_response"]
        response.close()
