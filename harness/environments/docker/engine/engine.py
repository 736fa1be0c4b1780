"""A thin typed wrapper around Docker's SDK, and the only module that talks to an engine.

The SDK is an optional dependency, so it is imported lazily. Every call has a timeout. Every
exception of the SDK becomes an `InfrastructureError` with the action, the container and its last
lines of output.

Calls marked `_repeated` are retried if the engine is unreachable for a moment. They are idempotent,
so a retry is harmless even if the first attempt was carried out. All calls block, so callers run
them in threads.

The engine stores no container output (log driver `none`). The harness attaches to the output before
it starts the container, so no line is lost or stored twice.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from harness.cluster import Usage
from harness.environments import procfs
from harness.environments.docker.engine.answers import Found, container_of, plain, usage_of
from harness.environments.docker.engine.archives import pack, unpack
from harness.environments.docker.engine.attachment import Attachment, Exchange
from harness.environments.host.lines import LINE_BYTES_MAX
from harness.errors import InfrastructureError

if TYPE_CHECKING:
    from docker import APIClient

CALL_TIMEOUT_S: Final = 60
REPEAT_S: Final = 10.0
"""For how long the harness retries calls to an engine that does not answer."""
_REPEAT_WAIT_S_MIN: Final = 0.05
_REPEAT_WAIT_S_MAX: Final = 1.0
_GATEWAY_STATUSES: Final = (502, 503, 504)  # status codes of a proxy whose engine is unreachable
_PING_TIMEOUT_S: Final = 5
_FREEZER_TRIES: Final = 10  # on a loaded host, runc may give up before all processes are frozen
_BUILD_TIMEOUT_S: Final = 900
_CPU_PERIOD_US: Final = 100_000
_END: Final = "\x04"
_WHOLE: Final = ("sh", "-c", '"$@" 2>&1; printf "\\004%s" $?', "exec")
"""A shell prefix that appends the exit code to a command's output, so that lost output is
noticed."""
_CONNECTIONS_MAX: Final = 64
_TAIL_LINES_MAX: Final = 20
_IN_MEMORY: Final = {"type": "tmpfs", "device": "tmpfs", "o": "mode=1777,size=64m"}


P = ParamSpec("P")
T = TypeVar("T")


class EngineUnreachableError(InfrastructureError):
    """The connection to the engine failed; the engine may have carried out the request anyway."""


def _repeated(
    call: Callable[Concatenate[Engine, P], T],
) -> Callable[Concatenate[Engine, P], T]:
    """Decorate an idempotent call: retry it for `REPEAT_S` while the engine is unreachable."""

    @functools.wraps(call)
    def repeat(engine: Engine, /, *arguments: P.args, **named: P.kwargs) -> T:
        import tenacity

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(EngineUnreachableError),
            stop=tenacity.stop_after_delay(REPEAT_S),
            wait=tenacity.wait_exponential(multiplier=_REPEAT_WAIT_S_MIN, max=_REPEAT_WAIT_S_MAX),
            reraise=True,
        )(call, engine, *arguments, **named)

    return repeat


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification of a container to create.

    `network` is a network's name, or `container:<name>` to share the address of another container.

    Without a `command`, the container runs its image's entry point and command. A `command`
    replaces both. With an `entrypoint`, or with `keeps_entrypoint` (the image's own), the entry
    point gets the command as its arguments.
    """

    name: str
    image: str
    command: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    keeps_entrypoint: bool = False
    working_folder: str | None = None
    labels: dict[str, str]
    network: str
    address: str | None = None
    hostname: str | None = None
    hosts: dict[str, str] = msgspec.field(default_factory=dict)
    listens: bool = False  # `Engine.say` may write to the container's standard input
    published: tuple[int, ...] = ()  # published on 127.0.0.1; the engine chooses the numbers
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    user: str | None = None
    stop_signal: str | None = None  # `None` means the image's stop signal
    capabilities: tuple[str, ...] = ()  # the only capabilities of the container
    no_new_privileges: bool = True
    read_only: bool = False
    memory_bytes_max: int
    processes_max: int
    cpus: float | None = None
    volumes: dict[str, str] = msgspec.field(default_factory=dict)  # volume: mount point


class ContainerState(NamedTuple):
    """The state of a container, according to the engine."""

    running: bool
    paused: bool
    exit_code: int
    ports: dict[int, int]  # declared port: published port on 127.0.0.1
    oom_killed: bool = False  # the OOM killer ended a process in the container
    pid: int | None = None  # pid of the first process; `None` if the engine is remote


class ExecResult(NamedTuple):
    """The exit code of a command in a container, and the output on both of its streams."""

    code: int
    output: str


class _Unless(contextlib.AbstractContextManager[None, bool]):
    """Suppresses API errors with the given statuses, which mean that there was nothing to do."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = statuses

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        import docker.errors

        return isinstance(error, docker.errors.APIError) and error.status_code in self._statuses


class Engine:
    """A connection to the engine that the environment variables `DOCKER_*` name."""

    def __init__(self) -> None:
        try:
            import docker
        except ImportError as error:
            raise InfrastructureError(
                f"the Docker SDK cannot be imported ({error}); "
                "install it: pip install 'catalog-harness[docker]'"
            ) from error
        self._tails: dict[str, collections.deque[str]] = {}
        with self._translated("reach the engine"):
            client = docker.DockerClient.from_env(
                timeout=CALL_TIMEOUT_S, max_pool_size=_CONNECTIONS_MAX
            )
        self._api: APIClient = client.api

    @contextlib.contextmanager
    def _translated(self, action: str, container: str | None = None) -> Iterator[None]:
        """Turn SDK exceptions into `InfrastructureError` with the container's last output."""
        import docker.errors
        import requests
        import urllib3

        foreign = (
            docker.errors.DockerException,
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        )
        try:
            yield
        except foreign as error:
            where = f" {container}" if container else ""
            tail = self.tail(container) if container else []
            text = f"docker: cannot {action}{where}: {error}"
            status = getattr(error, "status_code", None)
            if isinstance(error, docker.errors.APIError) and status not in _GATEWAY_STATUSES:
                raise InfrastructureError(text, output=tail) from error
            fix = "; once the engine is back, `harness clean` removes what it still runs"
            raise EngineUnreachableError(text + fix, output=tail) from error

    @contextlib.contextmanager
    def _patient(self, timeout_s: int) -> Iterator[None]:
        """Wait up to `timeout_s` for each answer of the engine inside this context."""
        before_s, self._api.timeout = self._api.timeout, timeout_s
        try:
            yield
        finally:
            self._api.timeout = before_s

    @classmethod
    @contextlib.contextmanager
    def connected(cls) -> Iterator[Engine]:
        """Connect to the engine; raises `InfrastructureError` if it does not answer soon."""
        engine = cls()
        try:
            with engine._translated("reach the engine"), engine._patient(_PING_TIMEOUT_S):
                engine._api.ping()
            yield engine
        finally:
            engine.close()

    def tail(self, container: str) -> list[str]:
        """Return the last lines that an attached container wrote."""
        return list(self._tails.get(container, ()))

    # --- the engine itself -------------------------------------------------------------------

    @property
    def is_local(self) -> bool:
        """Whether the engine is reached through a Unix socket of this machine."""
        return str(self._api.base_url).startswith(("http+docker://localhost", "http+unix://"))

    def close(self) -> None:
        self._api.close()

    # --- images ------------------------------------------------------------------------------

    @_repeated
    def image_id(self, tag: str) -> str | None:
        """Return the id of an image; `None` if no image has that name."""
        with self._translated(f"inspect the image {tag}"), _Unless(404):
            return str(self._api.inspect_image(tag)["Id"])  # type: ignore[no-untyped-call]
        return None

    def tag(self, image: str, repository: str, tag: str) -> None:
        """Give an image one more name. An image that had this name before loses it."""
        with self._translated(f"tag {image}"):
            self._api.tag(image, repository, tag)

    def pull(self, image: str, *, timeout_s: int) -> None:
        """Pull an image. `timeout_s` limits each wait for the engine's next message."""
        from docker.utils import parse_repository_tag

        with self._translated(f"pull {image}"), self._patient(timeout_s):
            repository, tag = parse_repository_tag(image)
            self._checked(self._api.pull(repository, tag=tag or "latest", stream=True, decode=True))

    def import_image(self, archive: IO[bytes], repository: str, tag: str) -> None:
        with self._translated(f"import {repository}:{tag}"), self._patient(_BUILD_TIMEOUT_S):
            self._api.import_image_from_data(archive, repository=repository, tag=tag)

    def build(
        self,
        context: IO[bytes],
        tag: str,
        *,
        network: str,
        arguments: dict[str, str],
        labels: dict[str, str],
        progress: Callable[[str], None],
    ) -> None:
        """Build an image from `context`, an archive that contains a Dockerfile."""
        with self._translated(f"build {tag}"):
            stream = self._api.build(
                fileobj=context,
                custom_context=True,
                tag=tag,
                network_mode=network,
                buildargs=arguments,
                labels=labels,
                rm=True,
                forcerm=True,
                decode=True,
                timeout=_BUILD_TIMEOUT_S,
            )
            self._checked(stream, progress)

    @staticmethod
    def _checked(
        stream: Iterator[dict[str, Any]], progress: Callable[[str], None] | None = None
    ) -> None:
        """Read all progress messages; raises `InfrastructureError` for an error in them."""
        output: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES_MAX)
        rest = ""
        for item in stream:
            *lines, rest = (rest + plain(str(item.get("stream", "")))).split("\n")
            if rest and ("error" in item or len(rest) > LINE_BYTES_MAX):
                lines, rest = [*lines, rest], ""
            for line in filter(None, map(str.strip, lines)):
                output.append(line)
                if progress is not None:
                    progress(line)
            if "error" in item:
                raise InfrastructureError(
                    f"docker: {plain(str(item['error']))}", output=tuple(output)
                )

    # --- networks ----------------------------------------------------------------------------

    def create_network(
        self, name: str, *, subnet: str, gateway: str, labels: dict[str, str]
    ) -> bool:
        """Create a bridge network. Returns false if the subnet overlaps one that is in use."""
        import docker.errors
        from docker.types import IPAMConfig, IPAMPool

        pool = IPAMPool(subnet=subnet, gateway=gateway)
        with self._translated(f"create the network {name}"):
            try:
                self._api.create_network(
                    name,
                    driver="bridge",
                    ipam=IPAMConfig(pool_configs=[pool]),
                    check_duplicate=True,
                    labels=labels,
                )
            except docker.errors.APIError as error:
                if "overlap" in str(error.explanation):
                    return False
                raise
        return True

    @_repeated
    def remove_network(self, network: str) -> bool:
        """Remove a network; returns false if the network is already gone."""
        with self._translated(f"remove the network {network}"), _Unless(404):
            self._api.remove_network(network)
            return True
        return False

    @_repeated
    def networks(self, *labels: str) -> list[Found]:
        """Return the networks that have all of these labels (`name` or `name=value`)."""
        with self._translated("list networks"):
            rows = self._api.networks(filters={"label": list(labels)})
        return [Found(row["Id"], row["Name"], row.get("Labels") or {}) for row in rows]

    # --- volumes -----------------------------------------------------------------------------

    @_repeated
    def create_volume(self, name: str, labels: dict[str, str], *, in_memory: bool = False) -> None:
        """Create a volume, unless a volume with that name exists.

        A volume in memory has the mode of `/dev/shm`, and loses its content when no running
        container uses it.
        """
        with self._translated(f"create the volume {name}"):
            options = _IN_MEMORY if in_memory else {}
            self._api.create_volume(name, driver="local", driver_opts=options, labels=labels)

    @_repeated
    def remove_volume(self, name: str) -> bool:
        """Remove a volume that no container uses; returns false if the volume is already gone."""
        with self._translated(f"remove the volume {name}"), _Unless(404):
            self._api.remove_volume(name)
            return True
        return False

    @_repeated
    def volumes(self, *labels: str) -> list[Found]:
        """Return the volumes that have all of these labels (`name` or `name=value`)."""
        with self._translated("list volumes"):
            rows: list[dict[str, Any]] = (
                self._api.volumes(filters={"label": list(labels)}).get("Volumes") or []
            )
        try:
            return [Found(row["Name"], row["Name"], row.get("Labels") or {}) for row in rows]
        except (KeyError, TypeError) as error:
            raise InfrastructureError(
                f"docker: the engine listed volumes without names: {rows!r:.200}"
            ) from error

    # --- containers --------------------------------------------------------------------------

    def create(self, spec: ContainerSpec) -> None:
        from docker.types import LogConfig

        with self._translated("create the container", spec.name):
            host = self._api.create_host_config(
                network_mode=spec.network,
                cap_drop=["ALL"],
                cap_add=list(spec.capabilities),
                security_opt=["no-new-privileges"] if spec.no_new_privileges else [],
                read_only=spec.read_only,
                mem_limit=spec.memory_bytes_max,
                memswap_limit=spec.memory_bytes_max,
                pids_limit=spec.processes_max,
                cpu_period=None if spec.cpus is None else _CPU_PERIOD_US,
                cpu_quota=None if spec.cpus is None else round(spec.cpus * _CPU_PERIOD_US),
                binds=[f"{name}:{where}" for name, where in spec.volumes.items()],
                log_config=LogConfig(type="none"),
                extra_hosts=spec.hosts or None,
                # A pid 1 without a handler ignores SIGTERM. So Docker's init is pid 1 and forwards
                # the signal.
                init=True,
                port_bindings={f"{port}/tcp": ("127.0.0.1", None) for port in spec.published},
            )
            networking = None
            if spec.address is not None:
                endpoint = self._api.create_endpoint_config(ipv4_address=spec.address)
                networking = self._api.create_networking_config({spec.network: endpoint})  # type: ignore[arg-type]
            self._api.create_container(
                spec.image,
                list(spec.command) or None,
                name=spec.name,
                hostname=spec.hostname,
                user=spec.user,
                stop_signal=spec.stop_signal,
                environment=spec.environment,
                stdin_open=spec.listens,
                labels=spec.labels,
                ports=[(port, "tcp") for port in spec.published],
                host_config=host,
                networking_config=networking,
                # The engine closes the input of a container that is not detached when its first
                # attachment ends.
                detach=True,
                working_dir=spec.working_folder,
                # The entry point of a foreign image would take the command as arguments.
                entrypoint=list(spec.entrypoint)
                if spec.entrypoint or (spec.command and not spec.keeps_entrypoint)
                else None,
            )

    @_repeated
    def start(self, container: str) -> None:
        with self._translated("start", container):
            self._api.start(container)

    @_repeated
    def stop(self, container: str, *, grace_s: int) -> None:
        """Send the container's stop signal, and SIGKILL after `grace_s`."""
        with self._translated("stop", container):
            self._api.stop(container, timeout=grace_s)

    @_repeated
    def kill(self, container: str) -> bool:
        """Send SIGKILL to a container; returns false if the container is not running."""
        with self._translated("kill", container), _Unless(404, 409):
            self._api.kill(container)
            return True
        return False

    def pause(self, container: str) -> bool:
        """Pause a container; returns false if it is not running or is already paused."""
        return self._freezer("pause", container)

    def unpause(self, container: str) -> bool:
        """Resume a container; returns false if it is not paused."""
        return self._freezer("unpause", container)

    @_repeated
    def _freezer(self, verb: str, container: str) -> bool:
        import docker.errors

        call = self._api.pause if verb == "pause" else self._api.unpause
        for tries_left in reversed(range(_FREEZER_TRIES)):
            with self._translated(verb, container):
                try:
                    call(container)
                except docker.errors.APIError:
                    # Engines answer 500 for a container in the wrong state. So the state shows
                    # whether to ignore it.
                    state = self.state(container)
                    if state is None or not state.running or state.paused == (verb == "pause"):
                        return False
                    if not tries_left:
                        raise
                else:
                    break
        return True

    @_repeated
    def say(self, container: str, line: bytes) -> None:
        """Write a line to the standard input of a running container whose spec has `listens`.

        The line may arrive late or twice, so its reader must tolerate that.
        """
        with self._translated("speak to", container):
            stream: Any = self._api.attach_socket(container, params={"stdin": 1, "stream": 1})
            # The SDK wraps a plain socket in a read-only file, and returns other sockets as they
            # are. It also keeps the HTTP response, which holds the connection.
            connection = getattr(stream, "_sock", stream)
            response = getattr(stream, "_response", None)
            try:
                connection.sendall(line)
            finally:
                for each in (response, connection):
                    if each is not None:
                        each.close()

    @_repeated
    def state(self, container: str) -> ContainerState | None:
        with self._translated("inspect", container), _Unless(404):
            answer = self._api.inspect_container(container)
            bound = answer["NetworkSettings"]["Ports"] or {}
            ports = {
                int(port.partition("/")[0]): int(binding["HostPort"])
                for port, bindings in bound.items()
                for binding in bindings or ()
                if binding["HostIp"] == "127.0.0.1"
            }
            state = answer["State"]
            return ContainerState(
                state["Running"],
                state["Paused"],
                state["ExitCode"],
                ports,
                bool(state.get("OOMKilled")),
                state["Pid"] if procfs.is_of_container(state["Pid"], answer["Id"]) else None,
            )
        return None

    def stopped(self, container: str) -> int | None:
        """Return the host pid of a stopped process in the container; `None` without one."""
        with self._translated("list the processes of", container), _Unless(404, 409):
            rows = self._api.top(container, "-o pid,stat")["Processes"] or ()
            return next((int(row[0]) for row in rows if row[1][:1] in procfs.STOPPED), None)
        return None

    @_repeated
    def limit_processor(self, container: str, share: float | None) -> None:
        """Limit a container's CPU time to `share` CPUs; `None` removes the limit.

        The limit takes effect at once, and stays when the container restarts.
        """
        quota_us = -1 if share is None else round(share * _CPU_PERIOD_US)
        with self._translated("limit the processor of", container):
            answer = self._api.update_container(
                container, cpu_period=_CPU_PERIOD_US, cpu_quota=quota_us
            )
        if warnings := answer.get("Warnings"):
            raise InfrastructureError(
                f"docker: cannot limit the CPU of {container}: {'; '.join(warnings)}"
            )

    @_repeated
    def usage(self, container: str) -> Usage:
        """Return a container's memory use without page cache, and the bytes written to devices."""
        statistics: dict[str, Any] = {}
        with self._translated("measure", container), _Unless(404):
            statistics = self._api.stats(container, stream=False, one_shot=True)
        return usage_of(statistics)

    def wait(self, container: str, *, timeout_s: int) -> ContainerState | None:
        # The SDK does not tell a timeout from a lost connection, so ask for the state in both
        # cases.
        with (
            contextlib.suppress(EngineUnreachableError),
            self._translated("wait for", container),
            _Unless(404),
        ):
            self._api.wait(container, timeout=timeout_s)
        return self.state(container)

    @_repeated
    def attach(self, container: str) -> Attachment:
        """Attach to a container's standard output and error, even before the container starts."""
        with self._translated("attach to", container):
            stream = self._api.attach(
                container, stdout=True, stderr=True, stream=True, logs=False, demux=True
            )
        tail = self._tails.setdefault(container, collections.deque(maxlen=_TAIL_LINES_MAX))
        return Attachment(stream, lambda: self._translated("read the output of", container), tail)

    @_repeated
    def exec(
        self,
        container: str,
        command: Sequence[str],
        *,
        user: str = "0",
        environment: dict[str, str] | None = None,
    ) -> ExecResult:
        """Run an idempotent command in a running container that has a shell.

        The command is retried if its output is incomplete, so every run must print the same text. A
        busy engine may lose all or part of the output and still report success (moby/moby#27289,
        docker/docker-py#2042).
        """
        with self._translated(f"run {command[0]!r} in", container):
            made = self._api.exec_create(
                container, [*_WHOLE, *command], user=user, environment=environment
            )
            stream = self._api.exec_start(made["Id"]).decode("utf-8", "replace")
        output, end, code = stream.rpartition(_END)
        if not end or not code.isdigit():
            raise EngineUnreachableError(
                f"docker: the output of {command[0]!r} in {container} broke off: {stream!r}"
            )
        return ExecResult(int(code), output)

    @_repeated
    def watch(self, container: str, command: Sequence[str]) -> Attachment:
        """Start a command as root in a container, and attach to its output.

        The command must read one byte before it prints anything: output in the same packet as the
        engine's HTTP response would be lost.
        """
        with self._translated(f"run {command[0]!r} in", container):
            made = self._api.exec_create(container, list(command), user="0", stdin=True)
            exchange = Exchange(self._api.exec_start(made["Id"], socket=True))
            exchange.say(b"\n")
        read = functools.partial(self._translated, "read the output of a command in", container)
        return Attachment(exchange, read, collections.deque(maxlen=_TAIL_LINES_MAX))

    @_repeated
    def put_archive(self, container: str, folder: str, archive: bytes) -> None:
        """Unpack a tar archive in a container, running or stopped."""
        with self._translated(f"copy files to {folder} of", container):
            self._api.put_archive(container, folder, archive)

    @_repeated
    def copy_in(self, folder: Path, container: str, to: str, owner: int) -> None:
        """Copy a local folder's content into a container; the user id `owner` owns the copy."""
        with (
            self._translated(f"copy to {to} of", container),
            tempfile.TemporaryFile() as spool,
        ):
            pack(folder, to.strip("/"), owner, spool)
            spool.seek(0)
            self._api.put_archive(container, "/", spool)

    def copy_out(self, container: str, folder: str, to: Path) -> None:
        with self._translated(f"copy {folder} of", container), tempfile.TemporaryFile() as spool:
            for piece in self._api.get_archive(container, folder)[0]:
                spool.write(piece)
            spool.seek(0)
            unpack(spool, to)

    @_repeated
    def remove(self, container: str) -> bool:
        """Kill and remove a container with its anonymous volumes; returns false if it is gone."""
        # Status 409 means that another client is already removing the container.
        with self._translated("remove", container), _Unless(404, 409):
            self._api.remove_container(container, force=True, v=True)
            return True
        return False

    @_repeated
    def containers(self, *labels: str) -> list[Found]:
        """Return the containers, in any state, with all these labels (`name` or `name=value`)."""
        with self._translated("list containers"):
            rows = self._api.containers(all=True, filters={"label": list(labels)})
        return [container_of(row) for row in rows]
