"""A register behind HTTP, in the standard library alone. It does not know the harness.

The primary keeps the value in a file. The other nodes ask the primary; with `--stale`, they
remember the value for a second.
"""

import argparse, os, threading, time, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

options = argparse.ArgumentParser()
for name in ("--host", "--port", "--data", "--primary"):
    options.add_argument(name)
options.add_argument("--stale", action="store_true")
args = options.parse_args()
path = os.path.join(args.data, "value")
lock = threading.Lock()
seen: dict[str, Any] = {"value": "null", "until": 0.0}


def primary(method: str, data: bytes) -> str:
    with lock:
        if method == "PUT":
            with open(path + ".new", "wb", buffering=0) as file:
                file.write(data)
                os.fsync(file.fileno())
            os.replace(path + ".new", path)
        return open(path).read() if os.path.exists(path) else "null"


def follower(method: str, data: bytes) -> str:
    if method == "GET" and args.stale and time.monotonic() < seen["until"]:
        return seen["value"]
    request = urllib.request.Request(f"http://{args.primary}/", data or None, method=method)
    with urllib.request.urlopen(request, timeout=2) as reply:
        seen.update(value=reply.read().decode(), until=time.monotonic() + 1)
    return seen["value"]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, body = 200, (follower if args.primary else primary)(self.command, data)
        except OSError as error:
            status, body = 503, str(error)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_PUT = do_GET


ThreadingHTTPServer((args.host, int(args.port)), Handler).serve_forever()
