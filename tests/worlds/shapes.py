"""Shapes of connections: the actions of caller and server, and what each must observe.

The module runs in tests, and as a program that needs only the standard library: a node that serves
at `HOST PORT` and makes calls on request. A connection begins with a line of JSON: its shape and
its name, or a command.
"""

import contextlib
import hashlib
import json
import socket
import struct
import sys
import threading
import time

WAIT_S = 30.0
IDLE_S = 0.7
SMALL = bytes(range(250)) * 4
LARGE = hashlib.shake_256(b"large").digest(3_000_000)
AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: close(2) resets

SHAPES = (
    *("send-and-close", "half-close", "reset", "data-then-reset", "idle", "large-both-ways"),
    *("close-together", "slow-reader", "server-closes-first", "early-answer", "server-resets"),
)


def read_all(conn):
    """Return the received data, by length and digest, and how the connection ended."""
    data = bytearray()
    end = "fin"
    try:
        while part := conn.recv(65536):
            data += part
    except TimeoutError:
        end = "nothing"
    except OSError:
        end = "reset"
    return summary(data, end)


def summary(data, end="fin"):
    return {"bytes": len(data), "sha": hashlib.sha256(data).hexdigest()[:12], "end": end}


def read_exactly(conn, size):
    data = b""
    while len(data) < size:
        part = conn.recv(size - len(data))
        if not part:
            raise ConnectionResetError("it ended early")
        data += part
    return data


def read_line(conn):
    line = b""
    while not line.endswith(b"\n"):
        line += read_exactly(conn, 1)
    return json.loads(line)


def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    conn.close()


def send_beside(conn, data):
    def send():
        with contextlib.suppress(OSError):
            conn.sendall(data)
            conn.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    return sender


def head(shape, name):
    return json.dumps({"shape": shape, "name": name}).encode() + b"\n"


def sent_bytes(name, shape):
    """Return the number of bytes that the caller sends, for shapes in which it sends little."""
    return len(head(shape, name)) + len(SMALL)


def call(shape, name, conn):
    """Play the caller's part; return what it saw of the server."""
    conn.sendall(head(shape, name))
    match shape:
        case "send-and-close":
            conn.sendall(SMALL)
        case "half-close" | "slow-reader":
            conn.sendall(SMALL)
            conn.shutdown(socket.SHUT_WR)
            if shape == "slow-reader":
                time.sleep(IDLE_S)
            return read_all(conn)
        case "reset":
            conn.sendall(SMALL)
            read_exactly(conn, 2)
            reset(conn)
        case "data-then-reset":
            conn.sendall(SMALL)
            reset(conn)
        case "idle":
            for _ in range(2):
                conn.sendall(SMALL)
                read_exactly(conn, len(SMALL))
                time.sleep(IDLE_S)
            conn.shutdown(socket.SHUT_WR)
            return read_all(conn)
        case "large-both-ways" | "close-together":
            data = LARGE if shape == "large-both-ways" else SMALL
            sender = send_beside(conn, data)
            seen = read_all(conn)
            sender.join()
            return seen
        case "server-closes-first" | "server-resets":
            return read_all(conn)
        case "early-answer":
            with contextlib.suppress(OSError):
                conn.sendall(SMALL * 400)
            # if `sendall` already got the reset error, the reads see a normal end
            return read_all(conn) | {"end": "either"}
    return None


def answer(shape, conn):
    """Play the server's part; return what it saw of the caller."""
    match shape:
        case "half-close" | "slow-reader":
            seen = read_all(conn)
            conn.sendall(SMALL if shape == "half-close" else LARGE)
            return seen
        case "reset":
            read_exactly(conn, len(SMALL))
            conn.sendall(b"ok")
            return read_all(conn)
        case "idle":
            for _ in range(2):
                conn.sendall(read_exactly(conn, len(SMALL)))
            return read_all(conn)
        case "large-both-ways" | "close-together":
            data = LARGE if shape == "large-both-ways" else SMALL
            sender = send_beside(conn, data)
            seen = read_all(conn)
            sender.join()
            return seen
        case "server-closes-first" | "early-answer":
            conn.sendall(SMALL)
        case "server-resets":
            conn.sendall(SMALL)
            reset(conn)
        case _:
            return read_all(conn)
    return None


EXPECTED = {
    # by shape: what the caller sees, what the server sees
    "send-and-close": (None, summary(SMALL)),
    "half-close": (summary(SMALL), summary(SMALL)),
    "reset": (None, summary(b"", "reset")),
    "data-then-reset": (None, summary(SMALL, "reset")),
    "idle": (summary(b""), summary(b"")),
    "large-both-ways": (summary(LARGE), summary(LARGE)),
    "close-together": (summary(SMALL), summary(SMALL)),
    "slow-reader": (summary(LARGE), summary(SMALL)),
    "server-closes-first": (summary(SMALL), None),
    "early-answer": (summary(SMALL, "either"), None),
    "server-resets": (summary(SMALL, "reset"), None),
}


def dial(address, name, shape, wait_s=WAIT_S):
    """Open a connection and play the caller's part; return what it saw, or the error."""
    try:
        with socket.create_connection(address, wait_s) as conn:
            if shape == "slow-reader":
                conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
            return call(shape, name, conn)
    except OSError as error:
        return {"error": type(error).__name__}


def dial_all(address, names, wait_s=WAIT_S):
    """Play many connections, given as `name: shape`, at once; return the caller's results."""
    seen = {}

    def one(name, shape):
        seen[name] = dial(address, name, shape, wait_s)

    threads = [threading.Thread(target=one, args=pair, daemon=True) for pair in names.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


class Server:
    """A server on one port that records what it saw, by the name of the connection."""

    def __init__(self, listener):
        self.seen = {}
        self.began = set()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            conn.settimeout(WAIT_S)
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        with conn, contextlib.suppress(OSError):
            first = read_line(conn)
            if "do" in first:
                self._obey(first, conn)
                return
            name = first["name"]
            assert name not in self.began, f"{name} came twice"
            self.began.add(name)
            try:
                self.seen[name] = answer(first["shape"], conn)
            except OSError as error:
                self.seen[name] = {"error": type(error).__name__}

    def _obey(self, command, conn):
        match command["do"]:
            case "dial":
                reply = dial_all(place(command["address"]), command["names"], command["wait_s"])
            case "dial-in-turn":
                where = place(command["address"])
                names = command["names"].items()
                reply = {name: dial(where, name, shape) for name, shape in names}
            case "seen":
                reply = self.seen
            case "began":
                reply = sorted(self.began)
            case "words":
                reply = sys.argv[3:]
            case "listen":
                Server(listen(command["address"]))
                reply = {}
        conn.sendall(json.dumps(reply).encode())


def place(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def listen(address):
    return socket.create_server(place(address), backlog=1024)


def ask(node, /, **command):
    """Have the node at this address carry out a command; return its reply."""
    with socket.create_connection(node, WAIT_S) as conn:
        conn.sendall(json.dumps(command).encode() + b"\n")
        text = b""
        while part := conn.recv(65536):
            text += part
    return json.loads(text)


if __name__ == "__main__":
    Server(listen(f"{sys.argv[1]}:{sys.argv[2]}"))
    threading.Event().wait()
