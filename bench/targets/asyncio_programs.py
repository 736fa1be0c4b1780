"""Replays unmodified asyncio programs seed by seed, and compares with other simulators of asyncio.

    python -m bench.targets.asyncio_programs seeds --target consensual --seeds 200
    python -m bench.targets.asyncio_programs peers --python /path/to/python3.13

`seeds` runs each seed twice and compares the digests of the two runs, byte for byte. Then it looks
for the program's planted race, from the first seed on. The targets are those of
`examples/asyncio_service`.

`peers` runs two examples of simloop's documentation (a lost update between two clients, and
exchanges over one connection) under simloop, simloom and the harness. `--python` is an interpreter
3.12 or later that has both packages. It prints one row per simulator: exchanges per CPU
second, CPU time per seed, and how many seeds find the lost update. simloom finds a server only by
the name that it binds, so the programs bind it there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from harness.cli import main as harness
from harness.cluster import NodeSpec, NodeState
from harness.env import Address
from harness.environments.sim import SimEnvironment
from harness.plugins import DeploymentPlan

PROGRAMS: Final = Path(__file__).with_name("asyncio_peers")
TARGETS: Final = {"aiohttp-register": "--race", "consensual": "--local-reads"}
_CALM: Final = ("--time-limit", "0.6", "--rate", "40", "--interval", "0.4", "--duration", "0.2")
_BUSY: Final = {
    "aiohttp-register": ("--time-limit", "1", "--rate", "300", "--concurrency", "12"),
    "consensual": ("--time-limit", "1", "--rate", "60"),
}


def run(target: str, seed: int, store: str, *arguments: str) -> dict[str, Any]:
    words = ["run", "--env", "sim", "--target", target, "--workload", "register", "--json"]
    words += ["--store", store, "--seed", str(seed), "--cas-percent", "60", *arguments]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        harness(words)
    return json.loads(output.getvalue())  # type: ignore[no-any-return]


def seeds(target: str, count: int, store: str) -> None:
    begun = time.process_time()
    verdicts: dict[str, int] = {}
    different = []
    for seed in range(1, count + 1):
        first, second = (
            run(target, seed, store, "--nemesis", "partition-halves", *_CALM) for _ in range(2)
        )
        verdicts[first["verdict"]] = verdicts.get(first["verdict"], 0) + 1
        keys = ("trace_digest", "history_sha256", "verdict")
        if any(first[key] != second[key] for key in keys):
            different.append(seed)
        print(
            f"{target}: {seed} of {count} seeds, each run twice: {len(different)} differ "
            f"{different[:5]}, verdicts {verdicts}, {time.process_time() - begun:.0f} CPU s",
            flush=True,
        )


def race(target: str, count: int, store: str) -> None:
    for seed in range(1, count + 1):
        report = run(target, seed, store, TARGETS[target], *_BUSY[target])
        if report["verdict"] == "invalid":
            print(f"{target} {TARGETS[target]}: found by seed {seed}", flush=True)
            return
    print(f"{target} {TARGETS[target]}: not found by {count} seeds", flush=True)


# --- other simulators ---------------------------------------------------------------------------


_MODULE: Final = "python:bench.targets.asyncio_peers.programs"
_UNIFORM: Final = {"latency": "uniform", "latency_ms_min": 1.0, "latency_ms_max": 50.0}


def node(name: str, function: str, **environment: str) -> NodeSpec:
    command = (f"{_MODULE}:{function}",)
    return NodeSpec(
        name=name, role="program", ports=(8080,), command=command, environment=environment
    )


def world(nodes: tuple[NodeSpec, ...], seed: int, main: Any, **knobs: Any) -> Any:
    plan = DeploymentPlan(run_id="peers", nodes=nodes, seed=seed, knobs=knobs, folder=None)
    return SimEnvironment().execute(plan, main)


async def until_down(session: Any, *names: str) -> None:
    # The cluster has no event to wait for.
    while any(  # noqa: ASYNC110
        session.cluster.state(name) is not NodeState.DOWN for name in names
    ):
        await asyncio.sleep(0.1)


async def final_count(session: Any) -> int:
    """Wait for both increments, and ask the counter."""
    await until_down(session, "a", "b")
    address = session.env.endpoint(Address("counter", 8080))
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"get\n")
    return int(await reader.readline())


async def exchanged(session: Any) -> None:
    await until_down(session, "a")


def peers(python: str, count: int, exchanges: int) -> None:
    begun = time.process_time()
    spoken = (
        node("counter", "serve_echo"),
        node("a", "exchange_with_counter", EXCHANGES=str(exchanges)),
    )
    world(spoken, 1, exchanged)
    speed = exchanges / (time.process_time() - begun)
    updates = (
        node("counter", "serve"),
        node("a", "increment", START_S="1.0"),
        node("b", "increment", START_S="1.2"),
    )
    begun = time.process_time()
    lost = sum(world(updates, seed, final_count, **_UNIFORM) != 2 for seed in range(count))
    rows = [("harness", speed, (time.process_time() - begun) / count * 1e3, lost)]
    for name in ("simloop", "simloom"):
        words = [python, str(PROGRAMS / "others.py"), name, str(count), str(exchanges)]
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
        if answer.returncode:
            print(f"{name}: {answer.stderr.strip().splitlines()[-1]}")
            continue
        rows.append((name, *json.loads(answer.stdout)))
    print("simulator   exchanges per CPU s  CPU ms per seed  lost update found")
    for name, speed, each_ms, lost in rows:
        print(f"{name:10} {speed:20.0f} {each_ms:16.2f} {lost:>9} of {count}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for_seeds = commands.add_parser("seeds")
    for_seeds.add_argument("--target", choices=TARGETS, required=True)
    for_seeds.add_argument("--seeds", type=int, default=200)
    for_peers = commands.add_parser("peers")
    for_peers.add_argument("--python", required=True)
    for_peers.add_argument("--seeds", type=int, default=200)
    for_peers.add_argument("--exchanges", type=int, default=5000)
    options = parser.parse_args()
    if options.command == "peers":
        peers(options.python, options.seeds, options.exchanges)
        return
    with tempfile.TemporaryDirectory() as store:
        race(options.target, options.seeds, store)
        seeds(options.target, options.seeds, store)


if __name__ == "__main__":
    sys.exit(main())
