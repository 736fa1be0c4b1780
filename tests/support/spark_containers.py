"""A standalone Spark cluster of containers that share a network and no file system.

| container | what runs in it |
|---|---|
| store | an S3-compatible server (`tests.support.object_store`); the host reaches it at a port |
| master, worker-N | Spark, from the executor image |
| driver | nothing until it is asked to: `harness soak`, `harness report` |

No container has a volume or a folder of the host, which `assert_nothing_shared` checks. Names and
labels are those of a run, so that `harness clean` removes leftovers of a killed process.
"""

import contextlib
import importlib.metadata
import io
import re
import secrets
import tarfile
from pathlib import Path

from harness.environments.controller import this_controller
from harness.environments.docker.engine.labels import CONTROLLER_LABEL, RUN_LABEL
from tests.support.object_store import BUCKET, options_for
from tests.support.waiting import wait_until

PORT = 9000
START_S = 180.0
SERVER = ("moto", "flask", "flask-cors", "boto3")
"""Installed packages, with their dependencies, that the store needs beyond the executor image."""
REQUIREMENT = re.compile(r"[\w.-]+")


def server_files():
    """Return the server's modules and all imported packages, by path in the container."""
    names, found = list(SERVER), {}
    for name in names:  # the list grows during the loop
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that the server does not need
        for line in distribution.requires or ():
            needed = REQUIREMENT.match(line)[0].lower()
            if needed not in names:
                names.append(needed)
        for file in distribution.files or ():
            path = Path(file.locate())
            if ".." not in file.parts and path.suffix != ".pyc" and path.is_file():
                found[str(file)] = path
    root = Path(__file__).parents[2]
    for module in ("__init__", "support/__init__", "support/object_store", "support/waiting"):
        found[f"tests/{module}.py"] = root / f"tests/{module}.py"
    return found


def archive_of(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in sorted(files.items()):
            tar.add(path, f"server/{name}", recursive=False)
    return buffer.getvalue()


class SparkContainers:
    def __init__(self, client, image, *, workers=2, worker_memory="1g"):
        self._client, self._image = client, image
        self._id = f"spark-{secrets.token_hex(4)}"
        self._labels = {RUN_LABEL: self._id, CONTROLLER_LABEL: str(this_controller())}
        self._network = client.networks.create(f"harness-{self._id}", labels=self._labels)
        self._containers = {}
        self._workers = [f"worker-{number}" for number in range(1, workers + 1)]
        self._memory = worker_memory
        self.uri = f"s3://{BUCKET}/lake"

    def start(self):
        store = self._made(
            "store", "python3", "-m", "tests.support.object_store", "serve", "0.0.0.0", str(PORT),
            environment={"PYTHONPATH": "/work/server"}, ports={f"{PORT}/tcp": ("127.0.0.1", None)},
        )  # fmt: skip
        store.put_archive("/work", archive_of(server_files()))
        store.start()
        self._made("master", "master").start()
        for worker in self._workers:
            self._made(
                worker, "worker", "--cores", "1", "--memory", self._memory, "spark://master:7077"
            )
            self.start_worker(worker)
        self._made("driver", "sleep", "infinity").start()
        store.reload()
        port = store.ports[f"{PORT}/tcp"][0]["HostPort"]
        self.options = options_for(f"http://127.0.0.1:{port}")
        wait_until(lambda: self.run("python3", "-c", MAKE_BUCKET)[0] == 0, START_S)

    def _made(self, name, *words, environment=None, ports=None):
        made = self._client.containers.create(
            self._image, list(words), name=f"harness-{self._id}-{name}", hostname=name,
            labels=self._labels, network=self._network.name, environment=environment or {},
            ports=ports or {}, networking_config=self._known_as(name), cpu_shares=256,
        )  # fmt: skip
        self._containers[name] = made
        return made

    def _known_as(self, name):
        endpoint = self._client.api.create_endpoint_config(aliases=[name])
        return {self._network.name: endpoint}

    def start_worker(self, worker):
        """Start or restart a worker, and return once the master has registered it."""
        container = self._containers[worker]
        told = "Successfully registered with master"
        before = container.logs().decode().count(told)
        container.start()
        wait_until(lambda: container.logs().decode().count(told) > before, START_S)

    def kill(self, worker):
        self._containers[worker].kill()

    @property
    def inside(self):
        """Return the store's settings for a program in a container."""
        return options_for(f"http://store:{PORT}")

    def run(self, *words):
        return self.run_in("driver", *words)

    def run_in(self, name, *words):
        code, (out, err) = self._containers[name].exec_run(
            list(words), environment=self.inside, demux=True, workdir="/work"
        )
        return code, (out or b"").decode(), (err or b"").decode()

    def copy_out(self, folder, to):
        """Copy a folder of the driver to this machine."""
        stream, _ = self._containers["driver"].get_archive(folder)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            tar.extractall(to, filter="data")

    def assert_nothing_shared(self):
        """Assert that containers share no volume, no folder of this machine, and no namespace."""
        for container in self._containers.values():
            container.reload()
            host = container.attrs["HostConfig"]
            assert (container.attrs["Mounts"], host["Binds"], host["VolumesFrom"]) == (
                [],
                None,
                None,
            )

    def logs(self, name):
        return self._containers[name].logs().decode(errors="replace")

    def remove(self):
        for container in self._containers.values():
            with contextlib.suppress(Exception):  # the other containers must be removed anyway
                container.remove(force=True, v=True)
        self._network.remove()


MAKE_BUCKET = f"""
import urllib.request
urllib.request.urlopen(
    urllib.request.Request("http://store:{PORT}/{BUCKET}", method="PUT"), timeout=5
)
"""


@contextlib.contextmanager
def spark_containers(image, **asked):
    import docker

    with contextlib.closing(docker.from_env()) as client:
        cluster = SparkContainers(client, image, **asked)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.remove()
