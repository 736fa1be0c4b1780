"""Methods that apply link faults in tests. Each session has one ledger of its active faults."""

from harness.cluster import StreamQuality
from harness.faults.door import Door
from harness.faults.ledger import Ledger
from harness.nodes.faults import Cut, Shape, Stream

LEASE_S = 600.0


class LinkDoor(Door):
    """The public `Cluster`, plus a method for each link fault."""

    def __init__(self, session):
        self.ledger = Ledger(session.cluster, session.env)
        super().__init__(session.cluster, self.ledger)
        self.heal_all = self.ledger.heal_all

    async def cut(self, links, *, lease_s=LEASE_S):
        return await self.inject(Cut(), links, lease_s=lease_s)

    async def shape(self, links, quality, *, lease_s=LEASE_S):
        kind = Stream if isinstance(quality, StreamQuality) else Shape
        return await self.inject(kind(quality=quality), links, lease_s=lease_s)

    async def heal_among(self, nodes):
        await self.ledger.relieve(nodes)


def door(owner):
    """Return the one `LinkDoor` of this session, or of this object's session."""
    session = getattr(owner, "session", owner)
    kept = vars(session.cluster)
    if "door" not in kept:
        kept["door"] = LinkDoor(session)
    return kept["door"]
