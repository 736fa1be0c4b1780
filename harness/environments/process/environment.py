"""Runs each node as a local process. Every link leads through a user-space proxy; root is not
needed.

A deployment creates, in this order: scratch folder, warden, link proxy, proxies, nodes.
`_Run.teardown` removes the nodes first. If the driver dies, the warden removes everything.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from harness.cluster import BASE, CLIENT, Capability, Fidelity, NodeSpec, ReadyCommand
from harness.environments import procfs
from harness.environments.callers import CallerBook, require_socket_owners
from harness.environments.fuse.available import why_missing
from harness.environments.host.capabilities import FOREIGN
from harness.environments.host.control import prove_clocks
from harness.environments.host.limits import check_declarations, require_limits
from harness.environments.host.logs import NodeLog
from harness.environments.host.session import RealRun, guarded_main, run_interruptible
from harness.environments.host.starvation import LINK_PROXY
from harness.environments.host.watch import Interference, full_disk
from harness.environments.process.addresses import Ports, Topology, shared_ports
from harness.environments.process.child import account_of
from harness.environments.process.cleaning import clean_dead_runs
from harness.environments.process.clocks import check_clocks, clock_files, remove_clocks
from harness.environments.process.cluster import CAPABILITIES, ENVIRONMENT, ProcessCluster
from harness.environments.process.linkproxy import LinkProxy
from harness.environments.process.links import LinkFaults
from harness.environments.process.node import ProcessNode
from harness.environments.scratch import SCRATCH_PREFIX, remove_signed, sign
from harness.environments.warden import HttpRequest, RemoveFolder, Warden
from harness.errors import InfrastructureError, UsageError, why_not_copied
from harness.nodes.deployment import forms_of, start_in_order
from harness.nodes.program import is_program, program_of
from harness.plugins import API_VERSION, DeploymentPlan, Environment, Session, override

T = TypeVar("T")
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SCRATCH_KEY: Final = "scratch"
_CALLERS: Final = "~callers"  # no node has a tilde in its name
_WATCH_INTERVAL_S: Final = 0.25

_log = logging.getLogger(__name__)


class ProcessEnvironment(Environment, reaches_foreign=FOREIGN, restores_data=True):
    """The environment that runs each node as a local process."""

    api_version = API_VERSION
    name = ENVIRONMENT
    doc = "local processes, links through a user-space proxy; no root, no containers"
    capabilities: Mapping[Capability, Fidelity] = CAPABILITIES

    @override
    def unavailable(self) -> str | None:
        if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
            return f"needs Linux (pidfd_open, /proc), not {sys.platform}; use --env sim"
        return None

    @override
    def why_no_faulty_disks(self) -> str | None:
        """Return the reason why foreign programs cannot run on a FUSE disk, or `None`."""
        return why_missing()

    def execute(self, plan: DeploymentPlan, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        _check(plan)
        require_limits(plan)

        async def body(interrupted: asyncio.Event) -> T:
            run = _Run(plan)
            return await guarded_main(run.run(main, interrupted), run.teardown)

        return run_interruptible(body)

    @override
    def clean(self) -> list[str]:
        return clean_dead_runs()


def _check(plan: DeploymentPlan) -> None:
    """Raise `UsageError` if the plan cannot be deployed as processes."""
    if not _RUN_ID.fullmatch(plan.run_id):
        raise UsageError(f"the run id {plan.run_id!r} must match {_RUN_ID.pattern}")
    check_declarations(plan.nodes)
    for spec in plan.nodes:
        if spec.container is not None:
            raise UsageError(
                f"node {spec.name!r} is a container of a Compose file, which processes cannot run; "
                "use --env docker, or declare the node with a `command`"
            )
        if spec.entry is None and not spec.command:
            raise UsageError(
                f"node {spec.name!r} has neither an entry nor a command, so it cannot run as a "
                "process; use --env docker for nodes that are only an image"
            )
        for name, form in forms_of(spec).items():
            same = msgspec.structs.replace(form, image=spec.image, dockerfile=spec.dockerfile)
            if name != BASE and same == spec:
                raise UsageError(
                    f"the variant {name!r} of node {spec.name!r} changes only its image, and "
                    "processes do not run in images; use --env docker"
                )
        # raises `UsageError` if this machine lacks the user
        account_of(spec.user)
    check_clocks(sorted(plan.clocks))
    shared = sorted(shared_ports(plan.nodes))
    if shared and plan.link_proxy is not None:
        node, port = shared[0]
        raise UsageError(
            f"--link-proxy {plan.link_proxy}: the nodes need {{address:{node}:{port}}}, which is "
            "one address for all callers, and a Toxiproxy cannot identify its callers; omit the "
            "option to use the harness's own link proxy, or use --env docker"
        )
    if shared:
        require_socket_owners()
    for spec in plan.nodes:
        _require_programs(spec)


def _require_programs(spec: NodeSpec) -> None:
    """Raise `UsageError` if this machine lacks a foreign program that the node runs.

    A path with a placeholder is not checked, so such a program may still fail to start.
    """
    asked = [(command, spec) for command in spec.setup]
    if isinstance(spec.ready, ReadyCommand):
        asked.append((spec.ready.command, spec))
    asked += [(form.command, form) for form in forms_of(spec).values() if form.entry is None]
    for command, form in asked:
        program = command[0]
        if is_program(form) and command is form.command:
            program_of(form)  # raises `UsageError` for a malformed command
            continue
        path = form.environment.get("PATH", os.environ.get("PATH"))
        if "{" in program or shutil.which(program, path=path) is not None:
            continue
        package = spec.debian_package
        fix = "install it" if package is None else f"install Debian's package {package}"
        others = " or ".join(filter(None, (spec.instead, "--env docker")))
        raise UsageError(
            f"node {spec.name!r} runs {program!r}, which this machine lacks; {fix}, or use {others}"
        )


class _Run(RealRun):
    """One deployment of a plan. If the driver dies, the warden undoes it, the last step first."""

    def __init__(self, plan: DeploymentPlan) -> None:
        super().__init__(plan)
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{plan.run_id}-"))
        self._warden: Warden | None = None
        self._ports: Ports | None = None
        self._link_proxy: LinkProxy | None = None
        self._destinations: Mapping[tuple[str, int], str] = {}
        self._links: LinkFaults | None = None
        self._nodes: dict[str, ProcessNode] = {}
        self._logs: list[NodeLog] = []

    async def run(
        self, main: Callable[[Session], Coroutine[Any, Any, T]], interrupted: asyncio.Event
    ) -> T:
        plan = self._plan
        self._own_scratch()
        warden = self._warden = self._start_warden()
        # The warden learns of the scratch folder first, so it removes this folder last.
        files = clock_files(self._scratch, plan.clocks)
        warden.guard(_SCRATCH_KEY, RemoveFolder(str(self._scratch), files))
        ports = self._ports = Ports(plan.nodes)
        proxy = self._link_proxy = await self._start_link_proxy(warden)
        topology = Topology(plan.nodes, ports, clients=plan.ends, shared=shared_ports(plan.nodes))
        if not proxy.ours:
            self._guard_proxies(warden, proxy)
        callers = self._caller_book()
        await topology.build(plan.run_id, proxy.client, callers)
        self._destinations = topology.destinations()
        links = self._links = LinkFaults(
            topology, proxy.client, warden, ours=proxy.ours, tell=self._tell
        )
        for spec in plan.nodes:
            node_log = self._node_log(spec.name)
            self._logs.append(node_log)
            self._nodes[spec.name] = ProcessNode(
                spec,
                run_id=plan.run_id,
                seed=plan.seed,
                folder=self._scratch,
                log=node_log,
                bus=self._bus,
                warden=warden,
                ports=ports,
                topology=topology,
                callers=callers,
                faked_clock=spec.name in plan.clocks,
            )
        await self._restore()
        await self._mount_disks()
        await start_in_order(
            {spec.name: spec for spec in plan.nodes},
            lambda name: self._nodes[name].start(),
            lambda name: self._nodes[name].require_ready(),
        )
        await prove_clocks(
            (node.control for node in self._nodes.values()),
            lambda name: self._nodes[name].wait_ready(),
        )
        cluster = ProcessCluster(
            self._nodes, plan.ends, links, self._bus, real_toxiproxy=not proxy.ours
        )
        return await self._drive(
            main,
            cluster,
            interrupted,
            data=self._scratch / CLIENT,
            connect={end: topology.connect_map(end) for end in plan.ends},
            look=self._interferences,
            look_interval_s=_WATCH_INTERVAL_S,
            pids=self._pids,
        )

    async def _restore(self) -> None:
        """Copy the initial data into the nodes' data folders, if the plan has any."""
        data = self._plan.data
        if data is None:
            return
        for name, node in self._nodes.items():
            to = node.data_folder
            try:
                await asyncio.to_thread(shutil.copytree, data / name, to, dirs_exist_ok=True)
            except OSError as error:
                raise InfrastructureError(
                    f"cannot copy {data / name} into the data folder of {name}: "
                    f"{why_not_copied(error)}; make room in {to.parent}, or correct the cause"
                ) from error

    async def _mount_disks(self) -> None:
        """Mount a FUSE disk for each node that declares `faulty_disk`, if FUSE disks work here."""
        for node in self._nodes.values():
            if node.spec.faulty_disk and why_missing() is None:
                await node.mount(self._failed)

    async def _interferences(self) -> dict[str, Interference | None]:
        looks = {name: node.interference() for name, node in self._nodes.items()}
        proxy = self._link_proxy
        if proxy is not None:
            looks[""] = proxy.interference()
            for (host, port), node in self._destinations.items():
                looks[node] = looks[node] or proxy.withheld(f"{host}:{port}")
        if self._links is not None and looks[""] is None:
            looks[""] = await self._links.interference()
        if looks.get("") is None:
            looks[""] = full_disk(self._scratch)
        return looks

    def _tell(self, what: str) -> None:
        self._bus.publish("", "infrastructure", {"what": what})

    def _pids(self) -> dict[str, int]:
        watched = {LINK_PROXY: self._link_proxy, **self._nodes}
        pids = {name: None if each is None else each.pid for name, each in watched.items()}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def _own_scratch(self) -> None:
        if any(account_of(spec.user) is not None for spec in self._plan.nodes):
            self._scratch.chmod(0o711)  # other users may pass through the folder but not list it
        sign(self._scratch, self._plan.run_id, self._plan.link_proxy)

    async def _start_link_proxy(self, warden: Warden) -> LinkProxy:
        if self._plan.link_proxy is not None:
            return await LinkProxy.attach(self._plan.link_proxy)
        return await LinkProxy.start(
            self._plan.run_id,
            seed=self._plan.seed,
            folder=self._scratch,
            warden=warden,
            on_death=self._failed,
        )

    def _guard_proxies(self, warden: Warden, proxy: LinkProxy) -> None:
        plan = self._plan
        for name in Topology.proxy_names(plan.run_id, plan.nodes, plan.ends):
            request = HttpRequest("DELETE", proxy.client.url("proxies", name))
            warden.guard(f"proxy/{name}", request)

    def _caller_book(self) -> CallerBook:
        book = CallerBook(self._scratch / _CALLERS)
        book.folder.mkdir()
        # without its children, which are the nodes
        book.note(CLIENT, procfs.this_process(), alone=True)
        return book

    # --- teardown ------------------------------------------------------------------------------

    async def teardown(self) -> None:
        """Remove the deployment. The warden retries a removal that fails.

        Raises `InfrastructureError` with all failures of the first attempt.
        """
        self._ending = True
        failures: list[str] = []

        async def attempt(what: str, step: Coroutine[Any, Any, Any]) -> None:
            try:
                await step
            except Exception as error:  # noqa: BLE001 - collected; the other steps must follow
                failures.append(f"{what}: {error!r}")

        if self._env is not None:
            await attempt("clients", self._env.close())
        await asyncio.gather(*(attempt(name, node.kill()) for name, node in self._nodes.items()))
        for name, node in self._nodes.items():
            if node.disk is not None:
                await attempt(f"disk of {name}", node.disk.close())
        if self._link_proxy is not None:
            await attempt("link proxy", self._link_proxy.close(self._plan.run_id))
        for log in self._logs:
            log.close()
        if self._ports is not None:
            self._ports.close()
        await attempt("clocks", asyncio.to_thread(remove_clocks, self._scratch))
        await attempt("scratch folder", asyncio.to_thread(remove_signed, self._scratch))
        if self._warden is not None:
            await attempt("warden", asyncio.to_thread(self._warden.close))
        if failures:
            raise InfrastructureError("; ".join(failures))
