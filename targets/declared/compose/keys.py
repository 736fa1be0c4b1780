"""The keys of Compose files: which are used, which have no effect, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

USED: Final = frozenset(
    {
        *("image", "build", "command", "entrypoint", "environment", "env_file", "volumes", "ports"),
        *("expose", "healthcheck", "depends_on", "user", "working_dir", "stop_signal", "mem_limit"),
        *("cpus", "deploy", "hostname", "container_name", "networks", "profiles"),
    }
)
FIXED_ADDRESS: Final = "networks.ipv4_address"
UDP: Final = "ports of UDP"
NOT_USED: Final[Mapping[str, str]] = {
    "restart": "a node stays down until the harness starts it",
    "logging": "the harness keeps the output of nodes",
    "labels": "",
    "annotations": "",
    "tty": "",
    "stdin_open": "",
    "init": "every container has an init process",
    "stop_grace_period": "",
    "pull_policy": "",
    "platform": "",
    "attach": "",
    "mem_reservation": "",
    "memswap_limit": "",
    "ulimits": "the engine's limits apply",
    "oom_score_adj": "",
    "develop": "",
    UDP: "clients speak TCP; nodes reach each other anyway",
    FIXED_ADDRESS: "the engine chooses addresses; use names",
}
NO_RIGHTS: Final = "containers have no capabilities; drop it, and use an image that needs none"
ONE_NETWORK: Final = "all nodes share the network of the run; drop it"
REFUSED: Final[Mapping[str, str]] = {
    "cap_add": NO_RIGHTS,
    "privileged": NO_RIGHTS,
    "devices": NO_RIGHTS,
    "device_cgroup_rules": NO_RIGHTS,
    "gpus": NO_RIGHTS,
    "security_opt": "containers run without new privileges; drop it",
    "network_mode": ONE_NETWORK,
    "links": "services reach each other by their names; drop it",
    "external_links": ONE_NETWORK,
    "extra_hosts": ONE_NETWORK,
    "dns": ONE_NETWORK,
    "dns_search": ONE_NETWORK,
    "domainname": ONE_NETWORK,
    "mac_address": ONE_NETWORK,
    "scale": "write one service per node, so that faults can name them",
    "extends": "copy the keys of the other service, or use an anchor",
    "secrets": "mount a file (./secret:/run/secrets/secret) or write it into `environment`",
    "configs": "mount a file: ./file.conf:/etc/file.conf:ro",
    "tmpfs": "drop it; the container's own file system is writable",
    "read_only": "drop it",
    "shm_size": "drop it",
    "sysctls": "set it on the host, and drop it",
    "pid": "every node has its own processes; drop it",
    "ipc": "every node has its own memory; drop it",
    "volumes_from": "every node has its own data; write its `volumes`",
    "group_add": "write `user: UID:GID`",
    "cap_drop": "containers have no capabilities already; drop it",
    "userns_mode": "drop it",
    "cgroup": "drop it",
    "runtime": "drop it",
}
TOP_NOT_USED: Final = frozenset({"version", "name", "networks", "volumes", "secrets", "configs"})
"""Top-level keys without an effect of their own. (Services that use secrets are refused.)"""
TOP_REFUSED: Final[Mapping[str, str]] = {
    "include": "copy the services of the other file",
}
