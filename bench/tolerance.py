"""How many nodes may be down: masters 1 to 5, and tablets of 1, 3 and 5 replicas.

Of n, (n - 1) // 2 are killed, the leader first: every kind of operation then succeeds, once another
leads. Then a follower is killed as well, so that a leader may be left with too few: nothing that is
written is acknowledged. Then all return, and what was ever acknowledged is there, what was refused
is not, and every kind of operation succeeds again. Even numbers of masters come about as they do in
life, by AddMaster, and `/masters` warns of them.

Then a master is lost for good, and replaced in both ways (`bench.replacement`).

`python -m bench.tolerance [--env sim|process] [--seed N]`; exit status 1 where a row does not hold.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from bench import replacement
from bench.claims import Claim, tell
from bench.measure import machine
from bench.tolerance_world import (
    UNRESPONSIVE_S,
    Group,
    World,
    all_succeed,
    none_acknowledged,
)
from tests.kudu.deploy import Deployed, deploy
from tests.pages.samples import get

MASTERS: Final = (1, 2, 3, 4, 5)
REPLICAS: Final = (1, 3, 5)


async def measure(cluster: Deployed, group: Group) -> list[Claim]:
    """One group: too few are down, then one too many, then none."""
    world, where = World(cluster, group), group.title
    found = []
    await world.grow()
    await world.fill()
    if group.of_masters:
        leader = await world.until_led()
        page = await get(cluster.env, leader, "/masters.json")
        even = "of an even number" if page["warning"] else "of nothing"
        right = page["voters"] == group.size and bool(page["warning"]) == (group.size % 2 == 0)
        found.append(
            Claim(
                where,
                "/masters warns of even numbers",
                f"{page['voters']} voters, warns {even}",
                right,
            )
        )
    await world.kill_tolerated()
    down = f"{len(world.down)} down"
    found.append(all_succeed(where, f"{down}: every kind succeeds", await world.every_kind("some")))
    knowing = await world.knowing()
    await world.kill_one_more()
    down = f"{len(world.down)} down"
    found.append(
        none_acknowledged(
            where, f"{down}: no write is acknowledged", await world.every_write(knowing)
        )
    )
    await world.restore()
    wrong = await world.differences()
    kept = f"{len(world.tables)} tables, {sum(map(len, world.rows.values()))} rows"
    found.append(
        Claim(
            where,
            "back: nothing is lost",
            f"{kept}; wrong: {', '.join(wrong) or 'none'}",
            not wrong,
        )
    )
    found.append(all_succeed(where, "back: every kind succeeds", await world.every_kind("all")))
    return found


GROUPS: Final = (
    *(Group(masters=count) for count in MASTERS),
    *(Group(replicas=count, of_masters=False) for count in REPLICAS),
)


def run(environment: str, groups: Sequence[Group] = GROUPS, *, seed: int = 1) -> Iterator[Claim]:
    """All groups, each in a cluster of its own."""
    for number, group in enumerate(groups):
        spare = int(group.masters % 2 == 0)
        # New tables need as many live tablet servers as they have replicas.
        more = 0 if group.of_masters else group.tolerated
        yield from deploy(
            functools.partial(measure, group=group),
            environment=environment,
            masters=group.masters - spare,
            spare_masters=spare,
            tservers=group.replicas + more,
            seed=seed + number,
            flags=f"tserver_unresponsive_timeout_ms={UNRESPONSIVE_S * 1000:.0f}",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="sim", choices=["sim", "process", "docker"])
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster")
    given = parser.parse_args()
    print(f"{given.env}, {machine()}")
    claims = run(given.env, seed=given.seed), replacement.run(given.env, seed=given.seed)
    return tell(itertools.chain(*claims))


if __name__ == "__main__":
    raise SystemExit(main())
