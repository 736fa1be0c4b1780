"""The environment `docker`: deploys a plan, runs a session on it, and removes the deployment."""

from __future__ import annotations

import asyncio
import functools
import logging
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from harness.cluster import CLIENT, Capability, Fidelity, NodeSpec
from harness.environments.controller import this_controller
from harness.environments.docker import deploy
from harness.environments.docker.capabilities import CAPABILITIES, ENVIRONMENT
from harness.environments.docker.cluster import DockerCluster
from harness.environments.docker.engine.engine import ContainerSpec, Engine
from harness.environments.docker.engine.labels import CONTROLLER_LABEL, RUN_LABEL, container_name
from harness.environments.docker.image.dockerfiles import provide_images
from harness.environments.docker.image.image import build_image, image_exists, image_tag
from harness.environments.docker.network import netem
from harness.environments.docker.network.clients import start_relay
from harness.environments.docker.network.outsiders import Outsiders
from harness.environments.docker.node.disks import Disks, why_no_disks
from harness.environments.docker.removal import remove_dead_runs, remove_run
from harness.environments.docker.undo import undo_by
from harness.environments.host.capabilities import FOREIGN
from harness.environments.host.limits import require_limits
from harness.environments.host.session import RealRun, guarded_main, run_interruptible
from harness.environments.host.watch import Interference
from harness.environments.warden import Warden
from harness.errors import InfrastructureError
from harness.plugins import API_VERSION, DeploymentPlan, Diagnosis, Environment, Session, override

T = TypeVar("T")
_log = logging.getLogger(__name__)
_RUN_KEY: Final = "run"
_WATCH_INTERVAL_S: Final = 1.0


class DockerEnvironment(Environment, reaches_foreign=FOREIGN, restores_data=True):
    """Nodes as containers on a private network."""

    api_version = API_VERSION
    name = ENVIRONMENT
    doc = "containers on a private network; packet-level link faults, kills by the engine"
    capabilities: Mapping[Capability, Fidelity] = CAPABILITIES

    @override
    def unavailable(self) -> str | None:
        try:
            with Engine.connected() as engine:
                return _missing_image(engine)
        except InfrastructureError as error:
            return (
                f"{error}; start an engine (dockerd, or Docker's own service), or name one with "
                "DOCKER_HOST, and make sure that this user may use it"
            )

    @override
    def prepare(self, progress: Callable[[str], None]) -> None:
        if self._engine_answers() and not image_exists():
            build_image(progress)

    @override
    def prepare_nodes(self, nodes: Sequence[NodeSpec], progress: Callable[[str], None]) -> None:
        """Build or pull the images that these nodes need and the engine lacks."""
        with Engine.connected() as engine:
            provide_images(engine, nodes, progress)

    @override
    def why_no_faulty_disks(self) -> str | None:
        """Return the reason why foreign programs cannot run on a FUSE disk, or `None`."""
        try:
            with Engine.connected() as engine:
                return why_no_disks(engine)
        except InfrastructureError as error:
            return str(error)

    def execute(self, plan: DeploymentPlan, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        deploy.check_plan(plan)
        require_limits(plan)

        async def body(interrupted: asyncio.Event) -> T:
            with Engine.connected() as engine, tempfile.TemporaryDirectory() as scratch:
                missing = _missing_image(engine)
                if missing is not None:
                    raise InfrastructureError(missing)
                await asyncio.to_thread(provide_images, engine, plan.nodes, _log.info)
                run = _Run(plan, engine, Path(scratch))
                return await guarded_main(run.run(main, interrupted), run.teardown)

        return run_interruptible(body)

    @override
    def clean(self) -> list[str]:
        if self._engine_answers():
            with Engine.connected() as engine:
                return remove_dead_runs(engine)
        return []

    @staticmethod
    def _engine_answers() -> bool:
        try:
            with Engine.connected():
                return True
        except InfrastructureError:
            return False


def _missing_image(engine: Engine) -> str | None:
    tag = image_tag()
    if engine.image_id(tag) is not None:
        return None
    return f"the node image {tag} is missing; run `harness image build`"


class LinkEmulator(Diagnosis):
    """A line of `harness doctor`: whether the engine's kernel supports netem."""

    api_version = 1
    name = "docker-links"
    doc = "links of containers that the kernel degrades (tc netem)"

    def look(self) -> tuple[bool, str]:
        try:
            with Engine.connected() as engine:
                missing = _missing_image(engine)
                why = missing or _why_no_netem(engine)
        except InfrastructureError as error:
            return False, str(error)
        if why is None:
            return True, "the engine's kernel has netem"
        fallback = "links of containers are degraded by a program in user space instead"
        fix = "" if missing else "; load the module sch_netem on the engine's host"
        return False, f"{why}: {fallback}{fix}"


def _why_no_netem(engine: Engine) -> str | None:
    """Try netem in a container without a network; returns the kernel's error, or `None`."""
    run_id = f"doctor-{uuid.uuid4().hex[:8]}"
    name = container_name(run_id, "netem")
    spec = ContainerSpec(
        name=name,
        image=image_tag(),
        command=("sleep", "60"),
        labels={RUN_LABEL: run_id, CONTROLLER_LABEL: str(this_controller())},
        network="none",
        capabilities=("NET_ADMIN",),
        no_new_privileges=False,
        memory_bytes_max=64 << 20,
        processes_max=32,
    )
    try:
        engine.create(spec)
        engine.start(name)
        result = engine.exec(name, netem.probe_command())
    finally:
        engine.remove(name)
    lines = result.output.strip().splitlines() or [f"code {result.code}"]
    return None if result.code == 0 else lines[0][:200].rstrip(".")


class _Run(RealRun):
    """One deployment of a plan. The warden, a separate process, can undo it if the harness dies."""

    def __init__(self, plan: DeploymentPlan, engine: Engine, scratch: Path) -> None:
        super().__init__(plan)
        self._engine = engine
        self._scratch = scratch
        self._controller = str(this_controller())
        self._warden: Warden | None = None
        self._cluster: DockerCluster | None = None
        self._disks: Disks | None = None
        self._outsiders: Outsiders | None = None

    async def run(
        self, main: Callable[[Session], Coroutine[Any, Any, T]], interrupted: asyncio.Event
    ) -> T:
        self._warden = self._start_warden()
        # Tell the warden about the run before anything is created, so that it can remove a partial
        # deployment.
        self._warden.guard(_RUN_KEY, undo_by("remove", self._plan.run_id, self._controller))
        network = await asyncio.to_thread(deploy.create_network, self._engine, self._plan.run_id)
        disks = self._disks = Disks(self._plan, self._warden)
        await disks.mount(self._engine, self._failed)
        blueprint = await asyncio.to_thread(
            deploy.Blueprint, self._plan, image_tag(), network, disks.paths()
        )
        by_client = await asyncio.to_thread(start_relay, self._engine, blueprint)
        self._cluster = DockerCluster(
            self._engine, blueprint, self._warden, self._bus, self._node_log, self._failed, disks
        )
        endpoints = await self._cluster.deploy()
        relay = blueprint.relay.container if by_client else None
        self._outsiders = Outsiders(self._engine, blueprint, self._plan.run_id, relay)
        await asyncio.to_thread(self._outsiders.begin)
        return await self._drive(
            main,
            self._cluster,
            interrupted,
            data=self._scratch,
            connect={CLIENT: endpoints, **by_client},
            look=self._interferences,
            look_interval_s=_WATCH_INTERVAL_S,
            pids=self._cluster.pids,
        )

    async def _interferences(self) -> dict[str, Interference | None]:
        """Map nodes to the interference found. Nodes whose state changed meanwhile are left out."""
        assert self._cluster is not None
        assert self._outsiders is not None
        before = self._cluster.idle()
        seen = await asyncio.to_thread(self._outsiders.look, before)
        if seen.ended is not None:
            self._failed(seen.ended)
        same = {each.node for each in before & self._cluster.idle()}
        certain = {
            node: each for node, each in seen.nodes.items() if node in same and each is not None
        }
        return {**seen.helpers, **certain}

    async def teardown(self) -> None:
        """Remove the deployment. The warden retries a removal that fails."""
        self._ending = True
        try:
            if self._env is not None:
                await self._env.close()
            if self._disks is not None:
                await self._disks.let_go()
            if self._outsiders is not None:
                self._outsiders.close()
            await self._remove()
            if self._outsiders is not None:
                await asyncio.to_thread(self._outsiders.join)
            if self._disks is not None:
                await self._disks.close()
        finally:
            if self._warden is not None:
                # The warden still knows the run if the removal failed, and then retries it on
                # `close`.
                await asyncio.to_thread(self._warden.close)

    async def _remove(self) -> None:
        remove = functools.partial(remove_run, self._engine, self._plan.run_id, self._controller)
        if self._cluster is not None:
            await self._cluster.close(lambda: remove(stragglers=False))
        elif self._warden is not None:
            # The run ended before it had a cluster, but the engine may still be creating the
            # network.
            await asyncio.to_thread(remove)
        if self._warden is not None:
            self._warden.release(_RUN_KEY)
