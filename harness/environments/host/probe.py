"""Tests once whether a port accepts connections, or whether a GET of a path has status 200.

For a process, the driver calls this module. For a container, the harness runs this source in the
node's network namespace (`python3 -c`), so it imports only the standard library.
"""

import socket
import sys

TIMEOUT_S = 5.0


def missing(host: str, port: int, path: str = "") -> str | None:
    """Test the port. Returns `None` if it is ready, else the reason."""
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as link:
            if not path:
                return None
            link.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
            with link.makefile("rb") as answer:
                status = answer.readline(1000).decode("latin-1").strip()
    except OSError as error:
        return str(error)
    return None if status.split()[1:2] == ["200"] else f"the answer was {status!r}"


if __name__ == "__main__":
    reason = missing(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
    sys.stdout.write(reason or "")
    sys.exit(reason is not None)
