"""The targets of a fault: roles and counts, which select nodes only when the fault begins.

| nodes         | are                                                        | of         |
|---------------|------------------------------------------------------------|------------|
| `leader`      | the node that claims to lead in the highest term           | members    |
| `follower`    | one member that does not lead, at random                   | members    |
| `followers`   | every member that does not lead                            | members    |
| `minority`    | as many as a quorum can do without, at random              | members    |
| `majority`    | as many as a quorum needs, at random                       | members    |
| `one`         | one node, at random                                        | all nodes  |
| `half`        | half of the nodes, rounded down, at random                 | all nodes  |
| `all`         | every node                                                 | all nodes  |
| `members`     | every member                                               | members    |
| `others`      | all but the nodes on the other end of the links            | all nodes  |
| `node:m1`     | the node with this name                                    | all nodes  |
| `role:master` | every node with this role                                  | all nodes  |
| `it`          | the node whose event the fault waited for                  | all nodes  |
| `client`      | all of the harness's own clients, as an end of links       |            |
| `client:2`    | the client that is process 2, and its later replacements   |            |

Members are the nodes that can lead in the target's first replica group. `@` selects from another
set: members or other nodes (`one@members`, `one@nonmembers`), nodes of a declared role
(`majority@tserver`), a replica group (`leader@catalog`), or clients as link ends (`half@clients`).

Links are `A from B` (both directions), `A to B` (only messages that A sends), or one of the
partitions of Jepsen's `jepsen.nemesis`: `halves`, `ring` or `bridge`. A partition cuts clients off
from nodes only if `with clients` follows, as in `halves with clients`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from harness.cluster import CLIENT, Link, NodeSpec, client_end, is_client
from harness.errors import UsageError, choices_near
from harness.plugins import Scene

MEMBERS: Final = "members"
NONMEMBERS: Final = "nonmembers"
CLIENTS: Final = "clients"
_OF_MEMBERS: Final = ("leader", "follower", "followers", "minority", "majority", "members")
_OF_ALL: Final = ("one", "half", "all", "others")
OF_CLIENTS: Final = ("one", "half")
IT: Final = "it"
WORDS: Final = (*_OF_MEMBERS, *_OF_ALL, IT)
LINK_SHAPES: Final = ("halves", "ring", "bridge")
SHAPES_OF_CLIENTS: Final = ("halves", "bridge")
_NEED_LEADER: Final = ("leader", "follower", "followers")
_ONE_NODE: Final = ("leader", "follower", "one", "node", IT)
"""Words for one node. This node is chosen first, and the other end of the links excludes it."""
_DRAW: Final = ("follower", "minority", "majority", "one", "half")


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """A selector of nodes: a word such as `leader`, and the set that it chooses from."""

    word: str
    name: str = ""  # after `node:`, `role:` or `client:`
    among: str = ""  # the name of the set, after `@`

    @property
    def is_clients(self) -> bool:
        """Whether the selector selects clients rather than nodes."""
        return self.word == CLIENT or self.among == CLIENTS

    @property
    def single_clients(self) -> bool:
        """Whether it selects individual clients, which the environment must tell apart."""
        return self.is_clients and (self.word != CLIENT or bool(self.name))

    @property
    def needs_leader(self) -> bool:
        return self.word in _NEED_LEADER

    @property
    def draws(self) -> bool:
        return self.word in _DRAW

    @property
    def group(self) -> str:
        """The group whose leader the selector means, or ""."""
        return self.among if self.needs_leader else ""

    @property
    def names_it(self) -> bool:
        return self.word == IT


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """A selector of links: between two sets of nodes, or a partition of the whole cluster."""

    left: Nodes | None = None
    right: Nodes | None = None
    shape: str = ""
    with_clients: bool = False  # each side of the partition has some clients
    one_way: bool = False

    @property
    def ends(self) -> list[Nodes]:
        """The two sets of nodes; empty for a partition."""
        return [end for end in (self.left, self.right) if end is not None]

    @property
    def needs_leader(self) -> bool:
        return any(end.needs_leader for end in self.ends)

    @property
    def draws(self) -> bool:
        return bool(self.shape) or any(end.draws for end in self.ends)

    @property
    def group(self) -> str:
        """The group whose leader the selector means, or ""."""
        return next((end.group for end in self.ends if end.group), "")

    @property
    def names_it(self) -> bool:
        return any(end.names_it for end in self.ends)

    @property
    def single_clients(self) -> bool:
        """Whether it selects individual clients, which the environment must tell apart."""
        return self.with_clients or any(end.single_clients for end in self.ends)


def check_names(
    selector: Nodes | Links, specs: Mapping[str, NodeSpec], groups: Sequence[str]
) -> None:
    """Raise `UsageError` for a node, a role or a group that the target does not declare."""
    if isinstance(selector, Links):
        for end in selector.ends:
            check_names(end, specs, groups)
        return
    roles = sorted({spec.role for spec in specs.values()})
    if selector.word == "node" and selector.name not in specs:
        raise UsageError(f"no node {selector.name!r}; {choices_near(selector.name, specs)}")
    if selector.word == "role" and selector.name not in roles:
        raise UsageError(f"no role {selector.name!r}; {choices_near(selector.name, roles)}")
    if selector.among not in {"", MEMBERS, NONMEMBERS, CLIENTS, *roles, *groups}:
        sets = [MEMBERS, NONMEMBERS, *roles, *groups]
        raise UsageError(
            f"'@{selector.among}' is not a set of nodes; {choices_near(selector.among, sets)}"
        )


def may_mean(selector: Nodes, specs: Mapping[str, NodeSpec]) -> list[str]:
    """Return all nodes that the selector may select. Members are unknown before the run."""
    if selector.word == "node":
        return [name for name in specs if name == selector.name]
    role = selector.name if selector.word == "role" else selector.among
    alike = [name for name, spec in specs.items() if spec.role == role]
    return alike or ([] if selector.word == "role" else list(specs))


def pick(selector: Nodes, scene: Scene, excluded: Sequence[str] = ()) -> tuple[str, ...]:
    """Select nodes or clients at this moment; the result may be empty.

    Nodes that are not chosen at random keep the order of their declaration. `excluded` are the
    nodes at the other end of the links.
    """
    if selector.word == CLIENT and selector.name:
        return tuple(end for end in scene.clients if end == client_end(int(selector.name)))
    if selector.word == CLIENT:
        return tuple(scene.clients)
    if selector.word in {"node", IT}:
        name = selector.name or scene.it
        return (name,) if name in scene.specs and name not in excluded else ()
    whole = _pool(selector, scene)
    pool = [name for name in whole if name not in excluded]
    leader = scene.roles(selector.among).leader
    if selector.needs_leader and leader is None:
        return ()
    match selector.word:
        case "leader":
            return tuple(name for name in pool if name == leader)
        case "followers":
            return tuple(name for name in pool if name != leader)
        case "follower":
            pool = [name for name in pool if name != leader]
        case "minority" | "majority":
            size = len(whole) // 2 + 1 if selector.word == "majority" else (len(whole) - 1) // 2
            return tuple(_shuffled(pool, random.Random(scene.draw))[: max(size, 0)])
        case "half":
            return tuple(_shuffled(pool, random.Random(scene.draw))[: len(whole) // 2])
        case "one":
            pass
        case _:
            return tuple(pool)
    return (pool[_digit(scene, excluded) % len(pool)],) if pool else ()


def _digit(scene: Scene, excluded: Sequence[str]) -> int:
    """Return the random number that picks a node.

    If the other end of the links is already picked (`excluded`), the number comes from another part
    of `scene.draw`, so that the two picks are independent.
    """
    return scene.draw // len(scene.specs) if excluded else scene.draw


def _pool(selector: Nodes, scene: Scene) -> list[str]:
    among = selector.among or (MEMBERS if selector.word in _OF_MEMBERS else "")
    if selector.word == "role":
        among = selector.name
    if among == CLIENTS:
        return [end for end in scene.clients if end != CLIENT]
    if not among:
        return list(scene.specs)
    if among in scene.groups:
        return scene.members(among)
    if among in {MEMBERS, NONMEMBERS}:
        members = scene.members()
        return [name for name in scene.specs if (name in members) == (among == MEMBERS)]
    return [name for name, spec in scene.specs.items() if spec.role == among]


def cut_links(selector: Links, scene: Scene) -> tuple[tuple[str, ...], tuple[str, ...], list[Link]]:
    """Select the two sides and the links of a fault at this moment; no links if a side is empty.

    The first side is the subject of the fault: the isolated node, the smaller half, or a node
    rather than the clients.
    """
    if selector.shape == "ring":
        return _ring(scene)
    if selector.shape:
        bridge = selector.shape == "bridge"
        left, right = _halves(scene, bridge=bridge, clients=selector.with_clients)
        links = [
            link
            for link in Link.between(left, right)
            if not (is_client(link.source) and is_client(link.destination))
        ]
        if all(is_client(end) for end in right):
            left, right = right, left
        return (tuple(sorted(right)), tuple(sorted(left)), links) if links else ((), (), [])
    if selector.left is None or selector.right is None:
        return (), (), []
    first, second = selector.left, selector.right
    turned = first.is_clients or (
        first.word not in _ONE_NODE and second.word in _ONE_NODE and not second.is_clients
    )
    if turned:
        first, second = second, first
    near = pick(first, scene)
    far = pick(second, scene, near)
    if not near or not far:
        return near, far, []
    if not selector.one_way:
        return near, far, Link.between(near, far)
    pairs = [(b, a) if turned else (a, b) for a in near for b in far]
    return near, far, sorted(Link(a, b) for a, b in pairs)


def _halves(scene: Scene, *, bridge: bool, clients: bool) -> tuple[list[str], list[str]]:
    """Draw two halves of the members, of the other nodes and, with `clients`, of the clients.

    With `bridge`, one member is in neither half.
    """
    rng = random.Random(scene.draw)
    left: list[str] = []
    right: list[str] = []
    members = scene.members()
    others = [name for name in scene.specs if name not in members]
    single = [end for end in scene.clients if clients and end != CLIENT]
    for group in (members, others, single):
        order = _shuffled(group, rng)
        if bridge and group is members:
            order = order[1:]
        middle = (len(order) + 1) // 2
        left += order[:middle]
        right += order[middle:]
    return left, right


def _ring(scene: Scene) -> tuple[tuple[str, ...], tuple[str, ...], list[Link]]:
    """Return the members, and the links to cut for a ring (Jepsen's `majorities-ring`).

    In a ring each member hears a majority, and no two members hear the same majority.
    """
    order = _shuffled(scene.members(), random.Random(scene.draw))
    if len(order) < 3:
        return (), (), []
    size = len(order) // 2 + 1
    links = []
    for start in range(len(order)):
        window = [order[(start + step) % len(order)] for step in range(size)]
        hearer = window[size // 2]
        links += [Link(name, hearer) for name in order if name not in window]
    return tuple(order), (), sorted(links)


def _shuffled(names: Sequence[str], rng: random.Random) -> list[str]:
    """Shuffle (Fisher-Yates) by `randrange` alone, which is the same in all Python versions."""
    order = list(names)
    for last in range(len(order) - 1, 0, -1):
        other = rng.randrange(last + 1)
        order[last], order[other] = order[other], order[last]
    return order
