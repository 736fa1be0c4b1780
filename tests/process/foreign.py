"""A foreign program that serves an HTTP register, and can also read a peer's register."""

import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

name, host, port, peer, data = sys.argv[1:]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/peer/"):
            _, _, for_s, *bound = self.path.split("/")
            where = f"127.0.0.1:{bound[0]}" if bound else peer
            body = urllib.request.urlopen(f"http://{where}/", timeout=float(for_s)).read()
        else:
            file = Path(data, "value")
            body = f"{name}={file.read_text() if file.exists() else ''}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        Path(data, "value").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()


print("serving", flush=True)
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
