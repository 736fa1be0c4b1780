"""Declarations of Kudu's servers as nodes: their commands, flags and environment variables.

A server binds its own node's host, but advertises an address that is the same for all nodes,
because masters and tablet servers pass on addresses to each other and to clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path  # determinism: no node runs this module
from types import MappingProxyType
from typing import Final

from harness.cluster import NodeSpec, ReadyPort, Variant
from harness.errors import UsageError
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.system import MASTER_PORT, TSERVER_PORT

MASTER_PAGES_PORT: Final = 8051
TSERVER_PAGES_PORT: Final = 8050
_FLAGS: Final[Mapping[str, str]] = {
    "fs_wal_dir": "{data}/wal",
    "fs_data_dirs": "{data}/data",
    "logtostderr": "true",
    "webserver_interface": "{host}",
    "unlock_unsafe_flags": "true",
    "unlock_experimental_flags": "true",
    # NTP is not needed, because all servers read the same clock, that of this machine.
    "time_source": "system_unsync",
    "rpc_encryption": "disabled",
    "rpc_authentication": "disabled",
    # Let any user ask a leader to step down, since the harness may run as another user.
    "superuser_acl": "*",
    "enable_minidumps": "false",
    "log_preallocate_segments": "false",
    # By default, each new log segment takes 64 MB, too much for many short tables.
    "log_container_preallocate_bytes": "0",
}
_MASTERS: Final = "master_addresses"
IMAGE_PLACE: Final = Path("/opt/apache-kudu")
UPGRADED: Final = "upgraded"
"""The variant of a node that runs the newer release."""
_START_S: Final = 60.0
_START_MASTER: Final = """\
list=$("$0" pbc dump --json "$1" 2>/dev/null | grep -o '"host":"[^"]*","port":[0-9]*' \
  | sed 's/"host":"//; s/","port":/:/' | paste -sd,)
[ -n "$list" ] || list=$2
shift 2
exec "$@" "--master_addresses=$list"
"""
"""A shell script that starts a master with its stored members, or else with a list.

A master exits if its list differs from the stored one, which changes when masters are added or
removed. Administrators then update each master's flag; the script does the same.
"""
_STORED_MEMBERS: Final = f"{{data}}/wal/consensus-meta/{SYSTEM_TABLET_ID}"
_FLAG: Final = re.compile(r"([a-z][a-z0-9_]*)=([^,]*)")


def parse_flags(text: str) -> dict[str, str]:
    """Parse flags of the form `NAME=VALUE,NAME=VALUE`. Raises `UsageError` for any other form.

    The servers themselves refuse unknown flags and bad values when they start.
    """
    flags: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _FLAG.fullmatch(part)
        if match is None:
            raise UsageError(
                f"--kudu-flag has {part!r}; write flags as NAME=VALUE,NAME=VALUE, such as "
                "raft_heartbeat_interval_ms=200"
            )
        flags[match[1]] = match[2]
    return flags


def server_nodes(
    place: Path,
    masters: Sequence[str],
    tservers: Sequence[str],
    flags: Mapping[str, str],
    *,
    spares: Sequence[str] = (),
    members_change: bool = False,
    image: bool = False,
    newer: Path | None = None,
    master_flags: Mapping[str, str] = MappingProxyType({}),
) -> list[NodeSpec]:
    """Declare the servers that run the programs in `place`.

    `flags` override the usual flags. `spares` are masters that wait to be added. With
    `members_change`, masters start with the members that they have stored. With `image`, the
    servers run in an image built from `place`. With `newer`, all nodes have a variant that runs the
    programs in that folder. `master_flags` are additional flags for masters only.
    """

    def addresses_of(names: Sequence[str]) -> str:
        return ",".join(f"{{address:{name}:{MASTER_PORT}}}" for name in names)

    def server(name: str, role: str, port: int, pages: int, more: Mapping[str, str]) -> NodeSpec:
        def command(programs: Path) -> tuple[str, ...]:
            values = {
                **_FLAGS,
                "webserver_doc_root": f"{programs}/www",
                "webserver_port": f"{{port:{pages}}}",
                "rpc_bind_addresses": f"{{host}}:{{port:{port}}}",
                "rpc_advertised_addresses": f"{{address:{name}:{port}}}",
                **more,
                **flags,
            }
            listed = values.pop(_MASTERS, "") if members_change else ""
            words = [f"--{flag}={value}" for flag, value in values.items()]
            program = str(programs / "bin" / f"kudu-{role}")
            if not listed:
                return (program, *words)
            tool = str(programs / "bin" / "kudu")
            start = ("/bin/sh", "-c", _START_MASTER, tool, _STORED_MEMBERS, listed)
            return (*start, program, *words)

        variants = {}
        if newer is not None:
            programs = IMAGE_PLACE if image else newer
            variants[UPGRADED] = Variant(
                command=command(programs),
                environment=_environment(programs),
                dockerfile=str(newer),
            )
        programs = IMAGE_PLACE if image else place
        return NodeSpec(
            name=name,
            role=role,
            ports=(port, pages),
            dockerfile=str(place),
            command=command(programs),
            environment=_environment(programs),
            ready=ReadyPort(port, within_s=_START_S),
            variants=variants,
        )

    def master(name: str) -> NodeSpec:
        listed = addresses_of([*masters, name] if name in spares else masters)
        more = {_MASTERS: listed, **master_flags}
        if members_change:
            # A spare must not join on its own: an operation adds it later.
            more["master_auto_join_cluster"] = "false"
        return server(name, "master", MASTER_PORT, MASTER_PAGES_PORT, more)

    def tserver(name: str) -> NodeSpec:
        more = {"tserver_master_addrs": addresses_of([*masters, *spares])}
        return server(name, "tserver", TSERVER_PORT, TSERVER_PAGES_PORT, more)

    return [*map(master, (*masters, *spares)), *map(tserver, tservers)]


def _environment(programs: Path) -> dict[str, str]:
    return {"SASL_PATH": f"{programs}/lib/sasl2"}
