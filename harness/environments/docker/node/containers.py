"""Creates, starts and replaces the containers of nodes, their volumes and their keepers.

A keeper is the container that owns a node's network namespace. The node's data folder is a volume,
so it outlives the container. The container is replaced when the node starts as another variant, or
its disk is wiped. A set-up command runs in a container of its own, with the same specification,
volume and network namespace; only its writes to the volume remain. Calls block, so the cluster
makes them in threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.cluster import BASE
from harness.environments.docker.deploy import USER_ID, Blueprint
from harness.environments.docker.engine.attachment import Attachment
from harness.environments.docker.engine.engine import ContainerSpec, Engine
from harness.environments.docker.image.sources import data_folder_of
from harness.environments.docker.node import clocks
from harness.environments.host import probe
from harness.environments.host.foreignclock import PROCESSES
from harness.environments.host.readiness import COMMAND_S, SETUP_S
from harness.errors import InfrastructureError

_LOOK_S: Final = 2
_READ_S: Final = 10.0
_TIMED: Final = (
    "sh",
    "-c",
    f'if command -v timeout >/dev/null; then exec timeout {COMMAND_S:.0f} "$@"; fi; exec "$@"',
    "timed",
)
_TIMED_OUT: Final = 124  # the exit code of timeout(1)
_PROBE_USER: Final = f"{USER_ID}:{USER_ID}"


class Failed(NamedTuple):
    """A set-up command that did not exit with 0. `code` is `None` if it took too long."""

    command: tuple[str, ...]
    code: int | None
    output: str


class Containers:
    """The containers and volumes of a run's nodes."""

    def __init__(self, engine: Engine, blueprint: Blueprint) -> None:
        self.engine = engine
        self.blueprint = blueprint
        self._probe = Path(probe.__file__).read_text(encoding="utf-8")
        self.ending = False  # true at the end of a run, which kills set-up commands
        self._library: bytes | None = None

    def keep(self, node: str) -> dict[int, int]:
        """Start a node's keeper. Returns a map from declared ports to ports on 127.0.0.1."""
        keeper, clock = self.keeper(node), self.blueprint.places[node].clock
        if clock:
            self.engine.create_volume(clock, self.blueprint.labels(node), in_memory=True)
        self.engine.create(self.blueprint.keeper(node))
        self.engine.start(keeper)
        if clock:
            clocks.prepare(self.engine, keeper)
            self._library = self._library or clocks.library(self.engine, keeper)
        state = self.engine.state(keeper)
        return state.ports if state is not None and state.running else {}

    def provide_proxy(self, node: str) -> None:
        """Start a Toxiproxy in the node's network namespace unless one is running."""
        spec = self.blueprint.proxy(node)
        state = self.engine.state(spec.name)
        if state is None:
            self.engine.create(spec)
            self.engine.put_archive(spec.name, "/", self.blueprint.proxy_code())
        if state is None or not state.running:
            self.engine.start(spec.name)

    def keeper(self, node: str) -> str:
        return self.blueprint.places[node].keeper

    def create(self, node: str, variant: str = BASE) -> None:
        """Create the node's container with its code, on the data folder that already exists."""
        if node not in self.blueprint.disks:
            volume = self.blueprint.places[node].volume
            self.engine.create_volume(volume, self.blueprint.labels(node))
        self._fill(node, self.blueprint.container(node, variant))

    def restore(self, node: str) -> None:
        kept = self.blueprint.kept_data(node)
        if kept is not None:
            container = self.blueprint.places[node].container
            folder = data_folder_of(self.blueprint.specs[node])
            self.engine.copy_in(kept, container, folder, USER_ID)

    def _fill(self, node: str, spec: ContainerSpec) -> None:
        """Create a container, and copy the files into it that are the same at every start."""
        self.engine.create(spec)
        self.engine.put_archive(spec.name, "/", self.blueprint.code)
        if self._library is not None and self.blueprint.places[node].clock:
            self.engine.put_archive(spec.name, "/", self._library)
        folder = self.blueprint.data_folder(node)
        if folder is not None:
            self.engine.put_archive(spec.name, "/", folder)
        files = self.blueprint.files(node)
        if files is not None:
            self.engine.put_archive(spec.name, "/", files)

    def replace(self, node: str, variant: str) -> None:
        """Replace the node's container with one for this variant, on the same data folder."""
        self.engine.remove(self.blueprint.places[node].container)
        self.create(node, variant)

    def wipe(self, node: str, variant: str) -> None:
        """Replace the node's container and volume; the caller must empty a FUSE disk."""
        place = self.blueprint.places[node]
        self.engine.remove(place.container)
        if node not in self.blueprint.disks:
            self.engine.remove_volume(place.volume)
        self.create(node, variant)

    def begin(self, node: str, node_file: bytes) -> Attachment:
        """Start the node's container with `node_file`, and attach to its output."""
        container = self.blueprint.places[node].container
        self.engine.put_archive(container, "/", node_file)
        files = self.blueprint.files(node)
        if files is not None:
            self.engine.put_archive(container, "/", files)
        attachment = self.engine.attach(container)
        try:
            self.engine.start(container)
        except InfrastructureError:
            attachment.close()
            raise
        return attachment

    # --- set-up and readiness ----------------------------------------------------------------

    def set_up(self, node: str, variant: str, take: Callable[[bytes], None]) -> Failed | None:
        """Run the set-up commands in order. Returns the first that fails, or `None`.

        `take` gets each line of output.
        """
        for words in self.blueprint.specs[node].setup:
            spec = self.blueprint.setup(node, variant, words)
            self.engine.remove(spec.name)
            self._fill(node, spec)
            try:
                code, output = self._run(spec, take)
            finally:
                self.engine.remove(spec.name)
            if code != 0:
                return Failed(spec.command, code, output)
        return None

    def _run(self, spec: ContainerSpec, take: Callable[[bytes], None]) -> tuple[int | None, str]:
        lines: list[bytes] = []
        attachment = self.engine.attach(spec.name)

        def read() -> None:
            try:
                for line in attachment.lines():
                    lines.append(line)
                    take(line)
            except InfrastructureError as error:
                lines.append(f"harness: the rest of this output is lost: {error}".encode())

        reader = threading.Thread(target=read, name=f"setup-{spec.name}", daemon=True)
        try:
            self.engine.start(spec.name)
            reader.start()
            code = self._wait(spec.name)
            reader.join(_READ_S)
        finally:
            attachment.close()
        return code, b"\n".join(lines).decode("utf-8", "replace")

    def _wait(self, container: str) -> int | None:
        deadline_s = time.monotonic() + SETUP_S
        while time.monotonic() < deadline_s and not self.ending:
            state = self.engine.wait(container, timeout_s=_LOOK_S)
            if state is None:
                raise InfrastructureError(f"docker: {container} is gone")
            if not state.running:
                return state.exit_code
        self.engine.kill(container)
        return None

    def port(self, node: str, port: int, path: str) -> str | None:
        """Test a port of the node. Returns `None` if it is ready, else the reason.

        The test (`probe.missing`) runs in the node's network namespace: from outside, the engine's
        proxy accepts connections to the published port even while the node is down.
        """
        place = self.blueprint.places[node]
        asked = [place.address, str(port), *([path] if path else [])]
        command = ["python3", "-I", "-c", self._probe, *asked]
        result = self.engine.exec(place.keeper, command, user=_PROBE_USER)
        return None if result.code == 0 else result.output

    def command(self, node: str, words: Sequence[str]) -> tuple[int | None, str]:
        """Run a command in the node's container, as the node's user.

        Returns the exit code (`None` after a timeout) and the output.
        """
        command = [*_TIMED, *self.blueprint.filled(node, words)]
        place = self.blueprint.places[node]
        environment = clocks.NO_PRELOAD if place.clock else None
        result = self.engine.exec(place.container, command, user="", environment=environment)
        return None if result.code == _TIMED_OUT else result.code, result.output


class DockerClock:
    """The driver's access to the libfaketime of one node (see `foreignclock.Reach`)."""

    def __init__(
        self, node: str, containers: Containers, in_thread: Callable[..., Awaitable[Any]]
    ) -> None:
        self._node = node
        self._containers = containers
        self._engine = containers.engine
        self._keeper = containers.keeper(node)
        self._in_thread = in_thread

    async def write(self, line: str) -> None:
        await self._in_thread(clocks.write, self._engine, self._keeper, line)

    async def was_read(self) -> bool:
        when: str = await self._in_thread(
            clocks.run_in_keeper, self._engine, self._keeper, clocks.WHEN_READ
        )
        return when.strip() != "0"

    async def processes(self) -> str:
        _, output = await self.ask([*PROCESSES, "1"])
        return output.partition("\n")[2] if output.startswith("process 1 ") else output

    async def ask(self, command: Sequence[str]) -> tuple[int | None, str]:
        try:
            answer: tuple[int | None, str] = await self._in_thread(
                self._containers.command, self._node, command
            )
        except InfrastructureError as error:
            return 1, str(error)
        return answer
