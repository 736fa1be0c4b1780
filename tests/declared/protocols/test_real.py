"""The defaults of every protocol against the real program, if it is installed."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from targets.declared.operations import Operations
from targets.declared.protocols import FAILURES, DeclinedError, protocol_of
from targets.hive.sql.server import SEARCH_PATH
from targets.hive.zookeeper.ensemble import JAR
from tests.declared.protocols.scenarios import SCENARIOS
from tests.declared.protocols.servers import NODE, Caller, env_at
from tests.support.waiting import LIMIT_S, POLL_S

PATH = f"{os.environ['PATH']}:/usr/sbin"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def needed(program, package):
    path = shutil.which(program, path=PATH)
    if path is None:
        pytest.skip(f"there is no {program}; apt-get install {package}")
    return path


@pytest.fixture
def start(tmp_path):
    running = []

    def go(*words, **options):
        with (tmp_path / "log").open("ab") as log:
            running.append(
                subprocess.Popen(
                    [*map(str, words)],
                    stdout=log,
                    stderr=log,
                    cwd=tmp_path,
                    start_new_session=True,
                    **options,
                )
            )

    yield go
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def serving(name, port, settings):
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                # a server that is still starting may accept a connection and stay silent
                async with asyncio.timeout(2):
                    session = await protocol_of(name, settings).open(env_at(port), NODE)
            except (*FAILURES, DeclinedError):
                await asyncio.sleep(POLL_S)
            else:
                return session


def check(name, port, settings=None, *, absent=()):
    settings = settings or {}
    speaks = Operations(protocol_of(name, settings), {}).vocabularies
    assert speaks == SCENARIOS.keys() - set(absent)

    async def main():
        session = await serving(name, port, settings)
        if protocol_of(name, settings).knows_leader:
            assert (await session.leadership())[0]
            identity = await session.server()
            assert identity == await session.server()
            assert (identity is None) == (name in {"mysql", "zookeeper"})
        await session.close()
        for vocabulary in sorted(speaks):
            async with Caller(name, env_at(port), settings, {}, vocabulary) as call:
                await call.speaker.prepare(call.session)
                await SCENARIOS[vocabulary](call)

    asyncio.run(main())


@pytest.mark.redis
def test_redis(start, tmp_path):
    port = free_port()
    start("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path)
    check("redis", port, absent={"inserts"})


@pytest.mark.process
def test_memcached(start):
    program, port = needed("memcached", "memcached"), free_port()
    user = ("-u", "root") if os.geteuid() == 0 else ()
    start(program, "-l", "127.0.0.1", "-p", port, *user)
    check("memcached", port, absent={"inserts", "lease"})


@pytest.mark.etcd
def test_etcd(start, tmp_path):
    port, peers = free_port(), f"http://127.0.0.1:{free_port()}"
    start(
        *("etcd", "--data-dir", tmp_path / "data", "--unsafe-no-fsync"),
        *("--listen-client-urls", f"http://127.0.0.1:{port}"),
        *("--advertise-client-urls", f"http://127.0.0.1:{port}"),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"default={peers}"),
    )
    check("etcd", port, absent={"inserts", "lease"})


@pytest.mark.zookeeper
def test_zookeeper(start, tmp_path):
    port = free_port()
    (tmp_path / "zoo.cfg").write_text(
        f"dataDir={tmp_path}/data\nclientPortAddress=127.0.0.1\nclientPort={port}\n"
        "admin.enableServer=false\n"
    )
    jars = f"{JAR}:{Path(JAR).parent / 'slf4j-simple.jar'}"
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    start("java", "-Xmx128m", "-cp", jars, main, tmp_path / "zoo.cfg")
    check("zookeeper", port, {"sync": True}, absent={"inserts", "lease"})


@pytest.mark.postgres
def test_postgres(start, tmp_path):
    port = free_port()
    initdb = shutil.which("initdb", path=SEARCH_PATH)
    server = Path(initdb).with_name("postgres")
    root = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    folder = tmp_path / "pg"
    folder.mkdir()
    if root:
        for above in (folder, *folder.parents[: len(folder.parts) - 2]):
            above.chmod(0o755)
        shutil.chown(folder, "postgres")
    words = [initdb, "-D", folder, "-U", "postgres", "-A", "trust", "--no-sync"]
    subprocess.run([*map(str, words)], check=True, stdout=subprocess.DEVNULL, cwd="/", **root)
    flags = ["-D", folder, "-p", port, "-k", folder, "-h", "127.0.0.1", "-F"]
    start(server, *flags, **root)
    check("postgres", port, absent={"queue", "lease", "logs"})


@pytest.mark.process
@pytest.mark.slow
def test_mysql(start, tmp_path):
    pytest.importorskip("aiomysql")
    program, port = needed("mariadbd", "mariadb-server"), free_port()
    data = tmp_path / "data"
    data.mkdir()
    start(
        *(program, "--no-defaults", f"--datadir={data}", f"--socket={tmp_path}/s"),
        *(f"--port={port}", "--bind-address=127.0.0.1", "--skip-grant-tables"),
        *("--skip-networking=0", "--user=root", "--innodb-flush-log-at-trx-commit=0"),
    )
    check("mysql", port, {}, absent={"queue", "ids", "lease", "logs"})
