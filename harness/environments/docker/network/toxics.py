"""The program that has the Toxiproxy in a node's namespace do what a fault wants.

It runs in the node's keeper, as text on a command line, so it imports the standard library only.
`lay PROXY...` makes the proxies that are missing, adds their toxics, and prints the rules that
redirect connections to them; each PROXY is JSON as `streams.stream_command` writes it. `heal
PATTERN...` removes the toxics whose names have one of the patterns. Done again, both do nothing
more.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.parse
from typing import Any, Final

HOST, PORT = "127.0.0.1", 24_077
SERVED: Final = "proxy served"
_TIMEOUT_S: Final = 10.0
_START_S: Final = 20.0  # on a loaded host it takes seconds
_LOOK_S: Final = 0.05


class RefusedError(Exception):
    """The server does not do it, and says why."""


def ask(method: str, *path: str, body: object = None, accept: int = 200) -> Any:
    """The answer's content. Raises `RefusedError`, `OSError`."""
    url = "/" + "/".join(urllib.parse.quote(part, safe="") for part in path)
    connection = http.client.HTTPConnection(HOST, PORT, timeout=_TIMEOUT_S)
    try:
        connection.request(method, url, None if body is None else json.dumps(body))
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status >= 300 and response.status != accept:
        raise RefusedError(f"{method} {url}: status {response.status}: {content.decode()}")
    return json.loads(content) if content else None


def wait_served() -> dict[str, Any]:
    """The proxies, once the server answers."""
    deadline_s = time.monotonic() + _START_S
    while True:
        try:
            proxies: dict[str, Any] = ask("GET", "proxies")
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_LOOK_S)
        else:
            return proxies


def lay(wanted: list[dict[str, Any]]) -> list[str]:
    """Make the proxies, add the toxics; the rules."""
    proxies, rules = wait_served(), []
    for proxy in wanted:
        name = proxy["name"]
        if name not in proxies:
            made = {key: proxy[key] for key in ("name", "listen", "upstream")}
            proxies[name] = ask("POST", "proxies", body=made)
        for toxic in proxy["toxics"]:
            ask("POST", "proxies", name, "toxics", body=toxic, accept=409)  # it is there
        port = proxies[name]["listen"].rpartition(":")[2]
        rules += [rule.replace("PROXY", port) for rule in proxy["rules"]]
    return rules


def heal(patterns: list[str]) -> None:
    """Remove the toxics; a name ends with a quote, as a comment of a rule does."""
    for proxy, state in ask("GET", "proxies").items():
        for toxic in state["toxics"]:
            if any(pattern in f'{toxic["name"]}"' for pattern in patterns):
                ask("DELETE", "proxies", proxy, "toxics", toxic["name"], accept=404)


def main(words: list[str]) -> int:
    """Do one of the two; returns the exit code."""
    try:
        if words[0] == "lay":
            print("\n".join(lay([json.loads(word) for word in words[1:]])))  # noqa: T201 - to a shell
        else:
            heal([word for word in words[1:] if word != "-e"])  # as `grep` has them
            print(SERVED)  # noqa: T201
    except (OSError, RefusedError) as error:
        if words[0] == "heal" and isinstance(error, ConnectionRefusedError):
            return 0  # no server, so no toxic is left
        sys.stderr.write(f"toxiproxy in this namespace: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
