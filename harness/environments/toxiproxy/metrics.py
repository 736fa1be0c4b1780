"""Counters as Prometheus text (version 0.0.4). The server writes it and the client reads it.

`toxiproxy_proxy_received_bytes_total` and `toxiproxy_proxy_sent_bytes_total` are as in upstream.
Upstream lacks `harness_proxy_swallowed_bytes_total` and the gauge `harness_proxy_connections`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from harness.environments.toxiproxy.proxy import Proxy
from harness.support.exposition import Family, Sample, exposed

RECEIVED: Final = "toxiproxy_proxy_received_bytes_total"
SENT: Final = "toxiproxy_proxy_sent_bytes_total"
SWALLOWED: Final = "harness_proxy_swallowed_bytes_total"
CONNECTIONS: Final = "harness_proxy_connections"

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], value)


def _labels(proxy: Proxy, direction: str) -> dict[str, str]:
    return {
        "direction": direction,
        "listener": proxy.listen,
        "proxy": proxy.name,
        "upstream": proxy.upstream,
    }


def render_metrics(proxies: Sequence[Proxy]) -> str:
    """Return the answer to `/metrics`, with the counters of these proxies."""
    families = [
        Family(
            name,
            "counter",
            "",
            [
                (_labels(proxy, direction), getattr(counters, field))
                for proxy in proxies
                for direction, counters in proxy.counters.items()
            ],
        )
        for name, field in (
            (RECEIVED, "received_bytes"),
            (SENT, "sent_bytes"),
            (SWALLOWED, "swallowed_bytes"),
        )
    ]
    connections: list[Sample] = [({"proxy": proxy.name}, proxy.connections) for proxy in proxies]
    return exposed([*families, Family(CONNECTIONS, "gauge", "", connections)])


def parse_metrics(text: str, families: Iterable[str]) -> dict[tuple[str, str, str], float]:
    """Parse the samples of some families, by (family, proxy, direction or "").

    Raises `ValueError` for a line that is not a sample.
    """
    wanted = frozenset(families)
    samples: dict[tuple[str, str, str], float] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"{line[:200]!r} is not a sample of Prometheus' text format")
        family, labels_text, value = match[1], match[2] or "", match[3]
        if family in wanted:
            labels = {name: _unescape(raw) for name, raw in _LABEL.findall(labels_text)}
            key = (family, labels.get("proxy", ""), labels.get("direction", ""))
            samples[key] = samples.get(key, 0.0) + float(value)
    return samples
