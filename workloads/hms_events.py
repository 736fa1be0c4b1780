"""Readers of a metastore's notification log, together with DDL.

The first clients are readers. Each reader keeps its position in the log for the whole run,
whichever metastore answers. Every second reader polls continuously. The other readers poll only
occasionally and fall behind. If `--event-ttl-ms` is short, the cleaner may even remove events
before these readers poll. The DDL comes from `hms-ddl`.
"""

from __future__ import annotations

from typing import Final

from harness.case import Case
from harness.errors import UsageError
from harness.generator import Generator
from harness.plugins import Option
from harness.vocabularies.hms import READS
from workloads.contention import NAMES, burst_option, parse_mix, readers_of
from workloads.hms_ddl import KINDS, HmsDdlWorkload, HmsOps

DEFAULT_MIX: Final = "create=32,alter=16,rename=18,drop=24,get=6,list=4"
EAGER: Final = (("poll", 1),)
LAZY: Final = (("get", 85), ("list", 5), ("poll", 10))


class HmsEventsWorkload(HmsDdlWorkload):
    """Some clients poll the event log, and the others change tables."""

    name = "hms-events"
    doc = "readers of a metastore's events, who must see each event once and in order"
    options = (
        NAMES,
        Option("mix", DEFAULT_MIX, "weights of the operations of clients that change tables"),
        Option("readers", 40, "percentage of clients that read the log", (1, 99)),
        burst_option(6, "operations at once on one name"),
    )

    def generator(self, case: Case) -> Generator:
        """Return endless polls and DDL. Raises `UsageError` if one of the two has no client."""
        options = case.workload_options
        readers = readers_of(case)
        if not 0 < readers < case.concurrency:
            raise UsageError(
                f"--readers {options['readers']} of --concurrency {case.concurrency} makes "
                f"{readers} readers; at least one client must read and one must not: raise "
                "--concurrency"
            )
        mix = parse_mix(str(options["mix"]), KINDS)
        if all(kind in READS for kind, _ in mix):
            raise UsageError(
                f"--mix {options['mix']!r} changes no table, so there are no events to read; give "
                "the kind `create` a weight"
            )
        return HmsOps(
            names=int(options["names"]),
            mix=mix,
            reads=(EAGER, LAZY),
            readers=readers,
            burst=int(options["burst"]),
        )
