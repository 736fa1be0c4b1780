"""A program that configures the Toxiproxy in a node's namespace for a fault.

The harness passes this source on a command line (`python3 -c`) into the node's keeper, the
container that owns the namespace. So it imports only the standard library. `lay PROXY...` creates
missing proxies, adds their toxics, and prints the rules that redirect connections to the proxies.
`streams.stream_command` writes each PROXY as JSON. `heal PATTERN...` removes the toxics whose names
contain one of the patterns. Both commands are idempotent.
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
_START_S: Final = 20.0  # on a loaded host, Toxiproxy takes seconds to start
_LOOK_S: Final = 0.05


class RefusedError(Exception):
    """Toxiproxy refused a request; the message has Toxiproxy's reason."""


def ask(method: str, *path: str, body: object = None, accept: int = 200) -> Any:
    """Send a request to Toxiproxy and return the decoded answer.

    Raises `RefusedError` for an error status other than `accept`, and `OSError` if there is no
    answer.
    """
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
    """Wait until Toxiproxy answers; returns its proxies by name."""
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
    """Create missing proxies and add toxics; returns the rules that redirect connections."""
    proxies, rules = wait_served(), []
    for proxy in wanted:
        name = proxy["name"]
        if name not in proxies:
            made = {key: proxy[key] for key in ("name", "listen", "upstream")}
            proxies[name] = ask("POST", "proxies", body=made)
        for toxic in proxy["toxics"]:
            ask("POST", "proxies", name, "toxics", body=toxic, accept=409)  # 409: it exists already
        port = proxies[name]["listen"].rpartition(":")[2]
        rules += [rule.replace("PROXY", port) for rule in proxy["rules"]]
    return rules


def heal(patterns: list[str]) -> None:
    """Remove the toxics whose names contain a pattern.

    Each name gets a quote at its end, because a pattern for rules may end with one.
    """
    for proxy, state in ask("GET", "proxies").items():
        for toxic in state["toxics"]:
            if any(pattern in f'{toxic["name"]}"' for pattern in patterns):
                ask("DELETE", "proxies", proxy, "toxics", toxic["name"], accept=404)


def main(words: list[str]) -> int:
    """Run the command `lay` or `heal` in `words`; returns the exit code."""
    try:
        if words[0] == "lay":
            print("\n".join(lay([json.loads(word) for word in words[1:]])))  # noqa: T201 - to a shell
        else:
            heal([word for word in words[1:] if word != "-e"])  # skip grep's option `-e`
            print(SERVED)  # noqa: T201
    except (OSError, RefusedError) as error:
        if words[0] == "heal" and isinstance(error, ConnectionRefusedError):
            return 0  # no Toxiproxy runs, so no toxic is left
        sys.stderr.write(f"toxiproxy in this namespace: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
