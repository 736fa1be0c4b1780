"""The journal of applied entries keeps digests in bounded memory."""

import sys

from targets.kudu.consensus.journal import Journal
from targets.kudu.consensus.log_cache import MemoryLog
from targets.kudu.consensus.messages import Entry, EntryKind, OpId
from targets.kudu.messages import RaftConfig

WINDOW = 2048
BASE = OpId(2, 7)
LOG = MemoryLog(BASE, RaftConfig(-1, ()))


def test_the_newest_digests_are_kept_each_under_its_index():
    journal = Journal(BASE, b"01234567")
    every = [[BASE.index, b"01234567".hex()]]
    assert journal.dump(LOG)["digests"] == every
    for index in range(BASE.index + 1, BASE.index + 2 * WINDOW):
        journal.add(Entry(2, index, EntryKind.WRITE, b"payload"))
        every.append([index, journal.digest.hex()])
        if len(every) in {2, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW}:
            assert journal.dump(LOG)["digests"] == every[-WINDOW:]
    assert len({digest for _, digest in every}) == 2 * WINDOW


def test_a_full_window_takes_little_memory():
    journal = Journal(BASE)
    for index in range(BASE.index + 1, BASE.index + 3 * WINDOW):
        journal.add(Entry(2, index, EntryKind.WRITE, b""))
    kept = [getattr(journal, name) for name in Journal.__slots__]
    assert sum(map(sys.getsizeof, kept)) < 3 * WINDOW * len(journal.digest)
