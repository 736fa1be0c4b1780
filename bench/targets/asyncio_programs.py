"""Measures simulations of unmodified asyncio programs, also by other simulators of asyncio.

    python -m bench.targets.asyncio_programs seeds --program raft --seeds 200
    python -m bench.targets.asyncio_programs peers --python /path/to/python3.13

`seeds` tries one seed after another until a race that is planted in the program shows. Then it runs
each seed of the correct program twice, and compares the digests of the two runs. The programs come
from `examples/asyncio_service`.

`peers` runs two examples from simloop's documentation (a lost update between two clients, and
exchanges over one connection) under simloop, simloom and the harness. `--python` is an interpreter,
3.12 or later, in which both packages are installed. It prints one row per simulator: exchanges per
CPU second, CPU time per seed, and how many seeds find the lost update. In simloom, clients reach a
server only by the name that it binds, so the programs bind such a name there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import shutil
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
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "asyncio_service"
SERVICES: Final = ("aiohttp", "plain", "raft")
_CALM: Final = ("--time-limit", "0.6", "--rate", "40", "--interval", "0.4", "--duration", "0.2")
_BUSY: Final = ("--time-limit", "1", "--rate", "300", "--concurrency", "12")


def declared(program: str, folder: Path, *, race: bool = False) -> Path:
    """Write the declaration for one of the programs, next to a copy of the program's modules."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in EXAMPLE.glob("*.py"):
        shutil.copy(module, folder)
    text = (EXAMPLE / "service.toml").read_text().replace("aiohttp_service", f"{program}_service")
    if program == "raft":
        text = text.replace('quorum = "all"', 'quorum = "majority"')
    if race:
        text = text.replace("--data {data}", "--data {data} --race")
    file = folder / f"{program}{'-race' if race else ''}.toml"
    file.write_text(text)
    return file


def run(system: Path, seed: int, store: str, *arguments: str) -> dict[str, Any]:
    words = ["run", "--env", "sim", "--system", str(system), "--json"]
    words += ["--store", store, "--seed", str(seed), "--cas-percent", "60", *arguments]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        harness(words)
    return json.loads(output.getvalue())  # type: ignore[no-any-return]


def seeds(program: str, count: int, store: str) -> None:
    system = declared(program, Path(store) / "programs")
    begun = time.process_time()
    verdicts: dict[str, list[int]] = {}
    different = []
    for seed in range(1, count + 1):
        first, second = (
            run(system, seed, store, "--nemesis", "partition-halves", *_CALM) for _ in range(2)
        )
        verdicts.setdefault(first["verdict"], []).append(seed)
        keys = ("trace_digest", "history_sha256", "verdict")
        if any(first[key] != second[key] for key in keys):
            different.append(seed)
        counts = {verdict: len(each) for verdict, each in verdicts.items()}
        print(
            f"{program}: {seed} of {count} seeds, each run twice: {len(different)} differ "
            f"{different[:5]}, verdicts {counts}, {time.process_time() - begun:.0f} CPU s",
            flush=True,
        )
    print(f"{program}: the invalid seeds are {verdicts.get('invalid', [])}", flush=True)


def race(program: str, count: int, store: str) -> None:
    system = declared(program, Path(store) / "programs", race=True)
    for seed in range(1, count + 1):
        report = run(system, seed, store, *_BUSY)
        if report["verdict"] == "invalid":
            print(f"{program} --race: found by seed {seed}", flush=True)
            return
    print(f"{program} --race: not found by any of {count} seeds", flush=True)


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
    # the cluster offers no event to wait for
    while any(  # noqa: ASYNC110
        session.cluster.state(name) is not NodeState.DOWN for name in names
    ):
        await asyncio.sleep(0.1)


async def final_count(session: Any) -> int:
    """Wait until both increments are done, and ask for the counter."""
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
    for_seeds.add_argument("--program", choices=SERVICES, required=True)
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
        race(options.program, options.seeds, store)
        seeds(options.program, options.seeds, store)


if __name__ == "__main__":
    sys.exit(main())
