"""Commands of a user for processes and containers, and checks for leftovers."""

import asyncio
import contextlib
import json
import secrets
import signal
import socket
import sys
import tempfile
import urllib.request
from pathlib import Path

from harness.case import Case
from harness.cluster import CLIENT
from harness.environments import procfs
from harness.environments.host.env import RealClientEnv
from harness.environments.procfs import ProcessId
from harness.errors import EXIT_CRASH, EXIT_USAGE
from harness.ops import OpType
from harness.plugins import Deployment, Request, TargetSettings
from harness.plugins.options import with_defaults
from harness.registry import load_plugin
from tests.process.conftest import processes_of, roles_of
from tests.support.cleaning import kill_at_once, only_cleaner
from tests.support.programs import run_program
from tests.support.waiting import LIMIT_S

OPTIONS = with_defaults("target", "kudu", load_plugin("targets", "kudu").options, {})


class Up:
    """The clusters of a test, with a separate state folder."""

    def __init__(self, environment, home):
        self.environment, self.home = environment, home
        self.clusters = {}

    def program(self, *words):
        return [sys.executable, "-m", "harness", *words], {"XDG_STATE_HOME": str(self.home)}

    def call(self, *words, code=0, **variables):
        """Run a command that must exit with this code; return its output, parsed if it is JSON."""
        program, own = self.program(*words)
        done = run_program(*program, **own, **variables)
        assert done.returncode == code, done.stdout + done.stderr
        if code:
            return done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout

    def start(self, *words, name=None):
        """Start a cluster with a name that no other test uses."""
        name = name or f"t-{secrets.token_hex(4)}"
        self.clusters[name] = None
        self.clusters[name] = self.call(
            "up", "--env", self.environment, "--name", name, "--json", *words
        )
        return self.clusters[name]

    def down(self, name, *words):
        """Take the cluster down.

        No other test may clean meanwhile, since `down` looks at the whole machine.
        """
        with only_cleaner():
            return self.call("down", name, *words)

    def clean(self):
        with only_cleaner():
            return self.call("clean")

    def folder(self, name):
        return self.home / "catalog-harness" / "clusters" / name

    def close(self):
        for name in self.clusters:
            if self.folder(name).exists():
                self.down(name)


@contextlib.contextmanager
def clusters(environment, home):
    """Provide clusters that are removed at the end of any test."""
    up = Up(environment, home)
    try:
        yield up
    finally:
        up.close()


def holder_of(cluster):
    return ProcessId.parse(cluster["holder"])


def lose_holder(up, cluster, *, with_warden):
    """Kill the process that holds the cluster; `down`, or else `clean`, removes what it left."""
    name = cluster["name"]
    with only_cleaner():
        if with_warden:
            _kill_with_warden(cluster)
        else:
            procfs.send(holder_of(cluster), signal.SIGKILL)
        assert "has ended" in up.call("status", name, code=EXIT_CRASH)
        again = up.call("up", "--env", up.environment, "--name", name, code=EXIT_USAGE)
        assert "is dead" in again
        if len(up.clusters) > 1:  # with several clusters, the test itself inspects them
            assert f"{name}: dead" in up.call("status")
        up.call(*(["clean"] if with_warden else ["down", name]))


def _kill_with_warden(cluster):
    kill_at_once(holder_of(cluster).pid, roles_of(cluster["run_id"])["warden"])


def addresses_of(cluster):
    return {
        name: (text.rpartition(":")[0], int(text.rpartition(":")[2]))
        for node in cluster["nodes"]
        for name, text in node["addresses"].items()
    }


def see_pages(*urls):
    assert urls
    for url in urls:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            assert b"<html" in answer.read()


def left_of(cluster):
    """Return what remains of a cluster, except objects that only an engine knows."""
    found = [*map(str, processes_of(cluster["run_id"]))]
    if procfs.is_alive(holder_of(cluster)):
        found.append("its holder")
    found += [str(path) for path in Path(tempfile.gettempdir()).glob(f"*{cluster['run_id']}*")]
    mounts = Path("/proc/self/mounts").read_text()
    found += ["a mount"] if cluster["run_id"] in mounts else []
    for name, address in addresses_of(cluster).items():
        with contextlib.suppress(OSError), socket.create_connection(address, 1.0):
            found.append(f"the port of {name}")
    if Path(cluster["folder"]).exists():
        found.append(cluster["folder"])
    return found


def life_of_a_table(*, replicas=3):
    """Return one request of each kind; together they create, use and drop a table."""
    case = Case(seed=1, workload_options={"replicas": replicas})
    return load_plugin("workloads", "ddl").probe(case, 0, 0)


def keep_and_go_on(up, *words):
    """Keep a cluster with one table and restart it; return what remains in its folder.

    The restarted cluster serves the table, and new objects get new ids.
    """
    cluster = up.start("--masters", "1", "--tservers", "1")
    name = cluster["name"]
    one = {"masters": 1, "tservers": 1}
    created, done, *_ = life_of_a_table(replicas=1)
    before, _ = ask_from_outside(addresses_of(cluster), [created, done], **one)
    up.call("break", name, "kill all")
    up.down(name, "--keep-data")
    left = left_of(cluster)
    again = up.start(*words, name=name)
    got = Request("get", {"name": created.value["name"]})
    other = Request("create", {**created.value, "name": "other", "nonce": "other"})
    found, made = ask_from_outside(addresses_of(again), [got, other], **one)
    assert found["table_id"] == before["table_id"] != made["table_id"]
    up.down(name)
    fresh = up.start("--masters", "1", "--tservers", "1", "--fresh", name=name)
    (listed,) = ask_from_outside(addresses_of(fresh), [Request("list", {})], **one)
    assert listed["tables"] == []
    return left


def ask_from_outside(addresses, requests=None, **options):
    """Run operations of a client that knows only these addresses and the target's options."""

    async def main():
        with tempfile.TemporaryDirectory() as folder:
            env = RealClientEnv(
                seed=secrets.randbits(32),  # each time a different client with different ids
                data=Path(folder),
                connect={CLIENT: addresses},
                on_event=lambda kind, data: None,
                on_panic=lambda task, error: None,
            )
            settings = TargetSettings(profile="strict", bugs=(), options={**OPTIONS, **options})
            target = load_plugin("targets", "kudu")
            specs = {spec.name: spec for spec in target.nodes(settings)}
            system = target.open(Deployment(env, settings, specs))
            async with asyncio.timeout(LIMIT_S):
                while not (await system.ready()).ok:  # noqa: ASYNC110 - a remote fact
                    await asyncio.sleep(0.1)
            client = system.client(0)
            done = []
            for request in requests or life_of_a_table():
                completion = await client.invoke(request, timeout_s=20.0)
                async with asyncio.timeout(LIMIT_S):
                    while completion.type is not OpType.OK and "nonce" not in request.value:
                        await asyncio.sleep(0.05)  # the tablets of the table do not run yet
                        completion = await client.invoke(request, timeout_s=20.0)
                done.append((request.f, completion))
            await client.close()
            await env.close()
            return done

    done = asyncio.run(main())
    wrong = [(f, each.error) for f, each in done if each.type is not OpType.OK]
    assert wrong == [], wrong
    return [each.value for _, each in done]
