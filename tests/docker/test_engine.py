"""Parsing of what a Docker engine answers, without an engine."""

import io
import os
import re
import tarfile

import docker.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cluster import Usage
from harness.environments.controller import Controller, Life, life, this_controller
from harness.environments.docker.engine.answers import usage_of
from harness.environments.docker.engine.archives import pack, unpack
from harness.environments.docker.engine.engine import _FREEZER_TRIES, ContainerState, Engine
from harness.environments.docker.engine.labels import Part, container_name, network_name
from harness.environments.procfs import ProcessId
from harness.errors import InfrastructureError


class Loaded:
    """An engine whose first `failures` attempts to pause a container fail."""

    base_url = "http+docker://localhost"

    def __init__(self, failures):
        self.failures, self.calls = failures, 0

    def pause(self, container):
        self.calls += 1
        if self.calls <= self.failures:
            raise docker.errors.APIError("500", explanation="unable to freeze")


def engine(failures):
    fake = Engine.__new__(Engine)
    fake._api, fake._tails = Loaded(failures), {}
    fake.state = lambda _container: ContainerState(
        running=True, paused=False, exit_code=0, ports={}
    )
    return fake


@pytest.mark.parametrize("failures", [0, 1, _FREEZER_TRIES - 1])
def test_a_freeze_is_tried_again(failures):
    loaded = engine(failures)

    assert loaded.pause("c") is True
    assert loaded._api.calls == failures + 1


def test_a_freeze_that_never_takes_is_an_infrastructure_error():
    loaded = engine(99)

    with pytest.raises(InfrastructureError, match="unable to freeze"):
        loaded.pause("c")
    assert loaded._api.calls == _FREEZER_TRIES


REQUESTS = [
    {"major": 8, "minor": 0, "op": "read", "value": 1000},
    {"major": 8, "minor": 0, "op": "write", "value": 300},
    {"major": 8, "minor": 16, "op": "Write", "value": 40},
    {"major": 8, "minor": 16, "op": "Total", "value": 9999},
]


def test_written_bytes_are_summed_over_devices():
    stats = {
        "memory_stats": {"usage": 99, "stats": {"anon": 7, "file": 90}},
        "blkio_stats": {"io_service_bytes_recursive": REQUESTS},
    }
    assert usage_of(stats) == Usage(memory_bytes=7, written_bytes=340)


def test_control_groups_of_the_first_version_have_another_word():
    assert usage_of({"memory_stats": {"stats": {"rss": 5}}}) == Usage(memory_bytes=5)


def test_missing_usage_is_not_reported_as_zero():
    nothing = {"memory_stats": {}, "blkio_stats": {"io_service_bytes_recursive": None}}
    assert usage_of(nothing) == Usage()
    assert usage_of({}) == Usage()
    only_reads = {"blkio_stats": {"io_service_bytes_recursive": REQUESTS[:1]}}
    assert usage_of(only_reads) == Usage()


def test_a_folder_that_was_packed_is_unpacked_as_it_was(tmp_path):
    there = tmp_path / "there"
    (there / "wal" / "old").mkdir(parents=True)
    (there / "wal" / "1").write_bytes(b"\x00\xff")
    (there / "instance").write_text("me")
    archive = io.BytesIO()
    pack(there, "data", 65532, archive)
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        assert {(info.uid, info.gid) for info in tar} == {(65532, 65532)}
    archive.seek(0)
    back = tmp_path / "back"
    unpack(archive, back)
    assert sorted(path.relative_to(back).as_posix() for path in back.rglob("*")) == [
        "instance", "wal", "wal/1", "wal/old"
    ]  # fmt: skip
    assert (back / "wal" / "1").read_bytes() == b"\x00\xff"


HERE = this_controller()


def test_a_controller_survives_its_label():
    assert Controller.parse(str(HERE)) == HERE
    assert HERE.process.pid == os.getpid()


@pytest.mark.parametrize(
    "text", ["", "12", "12:3", "12:3@x/4", "12:3@ab-c/", "a:3@ab/4", "1:2@a/3 "]
)
def test_a_broken_label_is_no_controller(text):
    with pytest.raises(ValueError, match="PID:TICKS@BOOT-ID/NAMESPACE"):
        Controller.parse(text)


RECYCLED = HERE._replace(process=ProcessId(HERE.process.pid, HERE.process.start_ticks - 1))
ELSEWHERE = HERE._replace(boot_id="0-0")
INSIDE = HERE._replace(pid_namespace=1, process=ProcessId(2**22 + 1, 1))


@pytest.mark.parametrize(
    ("controller", "is_local", "expected"),
    [
        (HERE, True, Life.ALIVE),
        (HERE, False, Life.ALIVE),
        (RECYCLED, True, Life.DEAD),
        (ELSEWHERE, True, Life.DEAD),  # this machine was restarted
        # a dead controller of this machine, or a live one of another
        (ELSEWHERE, False, Life.UNKNOWN),
        # a controller in a PID namespace that this machine cannot see
        (INSIDE, True, Life.UNKNOWN),
    ],
)
def test_only_containers_known_dead_count_as_dead(controller, is_local, expected):
    assert life(controller, HERE, same_machine=is_local) is expected


@given(st.text(min_size=1, max_size=200))
def test_names_are_what_engines_allow(run_id):
    for name in (
        network_name(run_id),
        container_name(run_id, "m1"),
        container_name(run_id, "m1", Part.KEEPER),
    ):
        assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name)
        assert len(name) < 128


@given(st.lists(st.text(max_size=100), min_size=2, max_size=2, unique=True))
def test_different_runs_have_different_names(run_ids):
    first, second = run_ids

    assert network_name(first) != network_name(second)


def test_ordinary_run_ids_stay_readable():
    assert container_name("20251121T0159-a1", "m1") == "harness-20251121T0159-a1-m1"
