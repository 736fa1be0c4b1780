"""Real etcd: three members in processes or Docker, used through their JSON gateway (README.md)."""

import json
from base64 import b64decode, b64encode
from typing import Any, Final

from harness.cluster import NodeSpec, ReadyHttp
from harness.env import Address
from harness.ops import Request
from harness.plugins import (
    Convergence,
    Deployment,
    NodeRole,
    Option,
    Roles,
    System,
    Target,
    override,
)
from harness.vocabularies.transactions import play
from harness.webclient import DeclinedError, Web, WebClient, agreement, ask_each

NAMES, KEY, TXN = ("n1", "n2", "n3"), "register", "/v3/kv/txn"
IMAGE = "{package:etcd_example}/etcd_example/etcd_image"  # a folder with a Dockerfile
MEMBERS = [Address(name, 2379) for name in NAMES]
COMMAND = (
    "etcd --name={name} --data-dir={data}/etcd --listen-client-urls=http://{host}:{port:2379}"
    " --listen-peer-urls=http://{host}:{port:2380} --advertise-client-urls=http://{address:ME:2379}"
    " --initial-advertise-peer-urls=http://{address:ME:2380}"
    " --initial-cluster=" + ",".join(f"{n}=http://{{address:{n}:2380}}" for n in NAMES)
)


def b64(value: Any) -> str:
    return b64encode(json.dumps(value).encode()).decode()


class EtcdSystem(System):
    def __init__(self, deployment: Deployment) -> None:
        self.env, self.settings = deployment.env, deployment.settings

    def client(self, process: int) -> WebClient:
        how = {"hello": "/version", "pinned": self.settings.options["pinned"]}
        return WebClient(self.env, process, MEMBERS, self.operate, **how)

    async def operate(self, web: Web, request: Request) -> Any:
        value = request.value
        if request.f == "read":
            return {"result": "ok", "value": (await self.read(web, [KEY]))[KEY][1]}
        if request.f in {"write", "cas"}:
            old = {"key": b64(KEY), "target": "VALUE", "value": b64(value.get("old"))}
            same, new = ([old], value["new"]) if request.f == "cas" else ([], value["value"])
            if await self.write(web, {KEY: new}, same):
                return {"result": "ok"}
            raise DeclinedError({"result": "mismatch"})
        while True:  # a transaction is written only if nothing changed since it was read
            seen = await self.read(web, [key for _, key, _ in value])
            answer, changed = play(value, {key: lists or [] for key, (_, lists) in seen.items()})
            if not changed or await self.write(web, changed, [same for same, _ in seen.values()]):
                return answer
            web.had_no_effect()

    async def read(self, web: Web, keys: list[str]) -> dict[str, tuple[dict[str, Any], Any]]:
        """Read keys at one moment; return each value with a comparison "not changed since"."""
        stale = "SERIALIZABLE-READS" in self.settings.bugs
        gets = [{"request_range": {"key": b64(key), "serializable": stale}} for key in keys]
        responses = (await web.ask("POST", TXN, {"success": gets}))["responses"]
        kvs = [each["response_range"].get("kvs", [{}])[0] for each in responses]
        values = [json.loads(b64decode(kv["value"])) if kv else None for kv in kvs]
        same = [{"target": "MOD", "mod_revision": kv.get("mod_revision", 0)} for kv in kvs]
        return {k: ({"key": b64(k), **s}, v) for k, s, v in zip(keys, same, values, strict=True)}

    async def write(self, web: Web, values: dict[str, Any], same: list[Any]) -> bool:
        puts = [{"request_put": {"key": b64(k), "value": b64(v)}} for k, v in values.items()]
        answer = await web.ask("POST", TXN, {"compare": same, "success": puts}, changes=True)
        return "succeeded" in answer

    def core(self, rng: Any) -> list[str]:
        return sorted(rng.sample(NAMES, 2))

    @override
    async def snapshot(self) -> dict[str, Any]:
        return await ask_each(self.env, MEMBERS, "POST", "/v3/maintenance/status", {})

    async def groups(self) -> dict[str, Roles]:
        roles = {}
        for name, state in (await self.snapshot()).items():
            leads = state.get("leader") == state["header"]["member_id"]
            roles[name] = NodeRole("leader" if leads else "follower", int(state["raftTerm"]))
        return {"etcd": Roles(roles, NAMES)}

    async def converged(self) -> Convergence:
        return agreement(await self.snapshot(), NAMES, "leader", "raftTerm", "raftAppliedIndex")

    ready = converged


BUGS: Final = {
    "SERIALIZABLE-READS": "a member answers reads from its own state, without a quorum",
    "NO-FSYNC": "members answer before they sync (etcd's --unsafe-no-fsync)",
}


class Etcd(Target):
    api_version, name, doc = 2, "etcd", "an example: three members of real etcd"
    vocabularies, profiles, open = frozenset({"register", "list-append"}), ("strict",), EtcdSystem
    bugs = BUGS
    options = (Option("image", "", "an image with `etcd` on its path; by default one is built"),
               Option("pinned", False, "clients stay with one member, even if it is down"))  # fmt: skip

    def nodes(self, settings: Any) -> list[NodeSpec]:
        image = settings.options["image"] or None
        cmd = COMMAND + " --unsafe-no-fsync" * ("NO-FSYNC" in settings.bugs)
        return [
            NodeSpec(
                name=name,
                role="member",
                ports=(2379, 2380),
                command=tuple(cmd.replace("ME", name).split()),
                image=image,
                dockerfile=None if image else IMAGE,
                debian_package="etcd-server",
                ready=ReadyHttp(2379, "/health"),
                faulty_disk=True,  # for power cuts
            )
            for name in NAMES
        ]
