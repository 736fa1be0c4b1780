"""The command `python -m harness.environments.toxiproxy --listen HOST:PORT`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys

import msgspec

from harness.environments.toxiproxy.api import TOKEN_VARIABLE, Api
from harness.environments.toxiproxy.proxy import Withheld, split_address
from harness.support.http1 import HttpServer, Limits

_LIMITS = Limits(4 * 1024 * 1024, connections_max=4096, request_s=600.0, handler_s=25.0)


def _report(withheld: Withheld) -> None:
    sys.stdout.write(msgspec.json.encode(withheld).decode() + "\n")
    sys.stdout.flush()


async def _serve(host: str, port: int, *, seed: int, metrics: bool) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    token = os.environ.get(TOKEN_VARIABLE, "")
    api = Api(seed=seed, metrics=metrics, token=token, report=_report)
    server = HttpServer(api.handle, _LIMITS)
    bound_host, bound_port = await server.start(host, port)
    # the port may be 0 (any free port), so the first line on standard output is the API's URL
    sys.stdout.write(f"http://{bound_host}:{bound_port}\n")
    sys.stdout.flush()
    await stopped.wait()
    server.close()
    await api.close()


def main() -> int:
    """Parse the command line and serve the API until SIGTERM; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.environments.toxiproxy",
        epilog=f"If the variable {TOKEN_VARIABLE} is set, the server accepts only requests with "
        "the header `Authorization: Bearer TOKEN`. Otherwise it accepts every request.",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8474",
        metavar="HOST:PORT",
        help="address of the API; default: %(default)s",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the random numbers of all toxics; default: %(default)s",
    )
    parser.add_argument(
        "--proxy-metrics", action="store_true", help="serve counters of proxies at /metrics"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        host, port = split_address(arguments.listen)
        serving = _serve(host, port, seed=arguments.seed, metrics=arguments.proxy_metrics)
        asyncio.run(serving)
    except KeyboardInterrupt:
        return 130
    except (OSError, ValueError) as error:
        sys.stderr.write(f"cannot listen on {arguments.listen}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
