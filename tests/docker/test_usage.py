"""What the engine's statistics of a container say; no engine is needed."""

from harness.cluster import Usage
from harness.environments.docker.engine.answers import usage_of

REQUESTS = [
    {"major": 8, "minor": 0, "op": "read", "value": 1000},
    {"major": 8, "minor": 0, "op": "write", "value": 300},
    {"major": 8, "minor": 16, "op": "Write", "value": 40},
    {"major": 8, "minor": 16, "op": "Total", "value": 9999},
]


def test_what_is_written_is_added_up_over_devices():
    stats = {
        "memory_stats": {"usage": 99, "stats": {"anon": 7, "file": 90}},
        "blkio_stats": {"io_service_bytes_recursive": REQUESTS},
    }
    assert usage_of(stats) == Usage(memory_bytes=7, written_bytes=340)


def test_control_groups_of_the_first_version_have_another_word():
    assert usage_of({"memory_stats": {"stats": {"rss": 5}}}) == Usage(memory_bytes=5)


def test_what_is_not_told_is_not_nought():
    nothing = {"memory_stats": {}, "blkio_stats": {"io_service_bytes_recursive": None}}
    assert usage_of(nothing) == Usage()
    assert usage_of({}) == Usage()
    only_reads = {"blkio_stats": {"io_service_bytes_recursive": REQUESTS[:1]}}
    assert usage_of(only_reads) == Usage()
