"""A foreign program that serves its working directory over HTTP, and its environment under /env."""

import http.server
import os
import sys
import urllib.parse


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/env/"):
            text = os.environ.get(urllib.parse.unquote(self.path[5:]), "?")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())
        else:
            super().do_GET()


print("serving as", os.getuid(), *sys.argv[3:], flush=True)
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
