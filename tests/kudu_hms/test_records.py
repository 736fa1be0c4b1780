"""Records about the metastore's log leave all other records unchanged."""

import asyncio

import msgspec

from targets.kudu.master.catalog.batches import decode_batch, encode_batch
from targets.kudu.master.catalog.records import Batch, HmsBatch
from targets.kudu.master.catalog.sys_catalog import HMS_EVENTS_MAX, SystemTablet


def followed(*events):
    rows = SystemTablet()
    for index, event in enumerate(events, start=1):
        rows.apply(index, 3, encode_batch(HmsBatch(3, 0, hms_event=event)))
    return rows


def test_batches_without_an_event_keep_their_bytes():
    plain = Batch(3, 7, cluster_id="c")
    assert encode_batch(plain) == msgspec.msgpack.encode(plain)
    assert type(decode_batch(encode_batch(plain))) is Batch
    event = HmsBatch(3, 7, cluster_id="c", hms_event=5)
    assert decode_batch(encode_batch(event)) == event


def test_the_last_event_and_where_each_was_stored_are_kept_and_restored():
    rows = followed(2, 3, 7)
    assert (rows.hms_event, rows.hms_events) == (7, [(2, 1), (3, 2), (7, 3)])
    other = SystemTablet()
    asyncio.run(other.restore(rows.snapshot(), 3))
    assert (other.hms_event, other.hms_events) == (7, [(2, 1), (3, 2), (7, 3)])
    assert other.snapshot() == rows.snapshot()


def test_a_batch_of_another_term_stores_nothing_and_old_ones_are_forgotten():
    rows = followed(2)
    rows.apply(2, 4, encode_batch(HmsBatch(3, 0, hms_event=9)))
    assert rows.hms_event == 2
    many = followed(*range(1, HMS_EVENTS_MAX + 3))
    assert (len(many.hms_events), many.hms_events[0]) == (HMS_EVENTS_MAX, (3, 3))
