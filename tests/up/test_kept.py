"""Clusters keep their data, which a restart uses or refuses."""

import asyncio
import shutil
from types import SimpleNamespace

import msgspec
import pytest

from harness.case import Case
from harness.cli.parser import Parser
from harness.cli.run.case_options import parse_target_options, target_case_from
from harness.cluster import NodeSpec
from harness.errors import InfrastructureError, UsageError
from harness.up.kept_data import DATA, find_kept, keep, record, refuse_other_nodes, seed_of
from harness.up.lifecycle import clean_places, take_down
from harness.up.records import Order, Place, claim
from tests.up.fakes import Cluster, record_of, standing

NODES = [
    NodeSpec(name="m1", role="master", ports=(7051,), entry="a:b"),
    NodeSpec(name="t1", role="tserver", ports=(7050,), entry="a:b"),
]
ORDER = Order(environment="process", case=Case(seed=3), run_id="up-dev-1")
HERE = SimpleNamespace(name="process", restores_data=True)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def ended(*, text: str = "1", whole: bool = True):
    """Create the folder of an ended cluster that has kept the data of its nodes."""
    place = claim("dev")
    for node in NODES:
        folder = place.folder / DATA / node.name
        folder.mkdir(parents=True)
        (folder / "log").write_text(text)
    if whole:
        record(place, ORDER, NODES, "today")
    return place


def test_kept_data_are_found_by_name():
    place = ended()
    folder = keep(place)
    assert not place.folder.exists()
    assert (folder / DATA / "t1" / "log").read_text() == "1"
    found, kept = find_kept("dev")
    assert (found, kept.order, kept.at) == (folder, ORDER, "today")
    assert find_kept("other") is None
    refuse_other_nodes(found, kept, NODES, HERE)


def test_the_newest_replaces_the_one_before():
    keep(ended())
    folder = keep(ended(text="2"))
    assert (folder / DATA / "m1" / "log").read_text() == "2"
    assert [each.name for each in folder.parent.iterdir()] == ["dev"]


def test_data_that_are_not_all_there_are_not_kept():
    before = keep(ended())
    half = ended(text="2", whole=False)
    assert keep(half) is None
    assert half.folder.exists()
    assert (before / DATA / "m1" / "log").read_text() == "1"


def test_a_caller_waits_for_a_holder_that_is_ending(monkeypatch):
    place = ended()
    place.write_standing(record_of())

    def closed(folder, question, *, timeout_s):
        (place.folder / "owner").unlink()  # the cluster ends in the meantime
        raise InfrastructureError("the door is closed")

    monkeypatch.setattr("harness.up.lifecycle.ask", closed)
    monkeypatch.setattr("harness.up.lifecycle.procfs.is_alive", lambda _: False)
    monkeypatch.setattr(Place, "owner", lambda _: "2:2")
    assert "continues from there" in take_down(place, keep_data=True, progress=print)[-1]


@pytest.mark.parametrize("end", ["clean", "down"])
def test_data_saved_by_an_interrupted_command_are_kept(end: str, monkeypatch):
    place = ended()
    (place.folder / "owner").unlink()
    assert "saved" in str(place.why_gone())
    if end == "clean":
        (said,), standing = clean_places()
        assert standing == []
    else:
        said = " ".join(take_down(place, progress=print))
    folder, _ = find_kept("dev")
    assert str(folder) in said
    assert not place.folder.exists()


@pytest.mark.parametrize("text", ["", "{", '{"order": 1}'])
def test_unreadable_files_are_reported(text: str):
    folder = keep(ended())
    (folder / "kept.json").write_text(text)
    with pytest.raises(UsageError, match="--fresh"):
        find_kept("dev")


@pytest.mark.parametrize(
    "what",
    ["version", "more", "role", "foreign", "user", "set-up", "environment", "missing"],
)
def test_clusters_that_cannot_resume_are_refused(what: str):
    keep(ended())
    folder, kept = find_kept("dev")
    asked = {"folder": folder, "kept": kept, "nodes": NODES, "environment": HERE}
    first = NODES[0]
    replaced = msgspec.structs.replace
    changes = {
        "version": {"kept": replaced(kept, version="0.0.1")},
        "more": {"nodes": [*NODES, replaced(first, name="m2")]},
        "role": {"nodes": [replaced(first, role="tserver"), NODES[1]]},
        "foreign": {"nodes": [replaced(first, entry=None, command=("x",)), NODES[1]]},
        "user": {"nodes": [replaced(first, user="postgres"), NODES[1]]},
        "set-up": {"nodes": [replaced(first, setup=(("mkfs",),)), NODES[1]]},
        "environment": {"environment": SimpleNamespace(name="other", restores_data=False)},
        "missing": {"folder": folder / "nowhere"},
    }[what]
    with pytest.raises(UsageError, match="--fresh"):
        refuse_other_nodes(*(asked | changes).values())


def test_nodes_keep_the_drawn_values_in_their_data():
    seeds = [seed_of(msgspec.structs.replace(ORDER, goes_on=n)) for n in range(4)]
    assert seeds[0] == ORDER.case.seed
    assert len(set(seeds)) == 4
    assert seeds[2] == seed_of(msgspec.structs.replace(ORDER, goes_on=2))


def case_of(*words: str, before: Case | None):
    parsed = parse_target_options(Parser(prog="t"), words)
    return target_case_from(parsed, None, before=before)


def test_omitted_options_keep_their_values():
    before = Case(seed=5, profile="modern", bugs=("KUDU-765",), target_options={"masters": 5})
    assert case_of(before=before) == before
    changed = case_of("--profile", "legacy", "--tservers", "1", before=before)
    assert (changed.seed, changed.profile, changed.bugs) == (5, "legacy", ("KUDU-765",))
    assert changed.target_options == {"masters": 5, "tservers": 1}
    with pytest.raises(UsageError, match="--fresh"):
        case_of("--target", "toy-register", before=before)


def recorded():
    """A callback for `save_data` that does nothing."""


class Saving(Cluster):
    """A cluster whose disk becomes full in the middle of the first copy."""

    full = True
    data_place = str

    async def save_data(self, node, folder):
        assert self.down == set(self.nodes)
        folder.mkdir()
        if self.full and node == "m2":
            raise shutil.Error([("a", "b", "No space left on device"), ("c", "d", "and again")])


async def test_data_that_cannot_be_copied_leave_the_cluster_as_it_was(tmp_path):
    here = standing(Saving())
    await here.break_by_hand("kill node:m1", None)
    with pytest.raises(InfrastructureError, match="data: No space left on device; the cluster"):
        await here.save_data(tmp_path / "data", recorded)
    assert (here.session.cluster.down, list(tmp_path.iterdir())) == (set(), [])
    here.session.cluster.full = False
    await here.save_data(tmp_path / "data", recorded)
    assert sorted(each.name for each in (tmp_path / "data").iterdir()) == ["m1", "m2", "m3", "t1"]


async def test_a_node_is_not_started_while_its_data_are_copied(tmp_path):
    refused = []

    class Busy(Saving):
        full = False

        async def save_data(self, node, folder):
            await super().save_data(node, folder)
            for attempt in (
                here.heal_everything(),
                here.heal_by_hand(None),
                here.break_by_hand("kill leader", None),
            ):
                with pytest.raises(UsageError, match="being copied"):
                    await attempt
                refused.append(node)

    here = standing(Busy())
    await here.save_data(tmp_path / "data", recorded)
    assert len(refused) == 12
    assert here.session.cluster.down == set(here.session.cluster.nodes)


async def test_data_are_saved_once_however_many_ask(tmp_path):
    class Lingering(Saving):
        full = False

        async def mend(self):
            await asyncio.sleep(0)  # lets the other caller ask in the meantime
            await super().mend()

    here, folder = standing(Lingering()), tmp_path / "data"
    first, second = await asyncio.gather(
        here.save_data(folder, recorded), here.save_data(folder, recorded), return_exceptions=True
    )
    assert first is None
    for _ in range(2):
        assert isinstance(second, UsageError)
        assert "being copied" in str(second)
        assert sorted(each.name for each in folder.iterdir()) == ["m1", "m2", "m3", "t1"]
        [second] = await asyncio.gather(here.save_data(folder, recorded), return_exceptions=True)


async def test_data_that_cannot_be_recorded_leave_the_cluster_as_it_was(tmp_path):
    def full():
        raise InfrastructureError("cannot write kept.json: No space left on device")

    here = standing(Saving())
    here.session.cluster.full = False
    with pytest.raises(InfrastructureError, match="No space left on device; the cluster goes on"):
        await here.save_data(tmp_path / "data", full)
    assert (here.session.cluster.down, list(tmp_path.iterdir())) == (set(), [])
    await here.heal_everything()
