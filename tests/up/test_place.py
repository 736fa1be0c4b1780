"""Records of clusters on disk have unique names and owners."""

import errno
import os
import subprocess
import sys

import pytest

from harness.case import Case
from harness.environments import procfs
from harness.environments.controller import this_controller
from harness.errors import InfrastructureError, TargetError, UsageError
from harness.up.control_socket import Status
from harness.up.lifecycle import clean_places, question, take_down
from harness.up.records import Failure, Order, Place, claim, find_place, places


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "catalog-harness" / "clusters"


def die(place):
    """Make an ended process the owner."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = procfs.identify(child.pid)
    child.communicate()
    sign(place, this_controller()._replace(process=owner))


def sign(place, controller, machine=None):
    """Make this controller the owner."""
    (place.folder / "owner").write_text(f"{controller} {machine or os.uname().nodename}")


HERE = this_controller()
UNSEEN = {
    "another namespace": (HERE._replace(pid_namespace=1), None),
    "another machine": (HERE._replace(boot_id="0-0"), "elsewhere"),
    "damaged": ("12", None),
}


@pytest.mark.parametrize("name", ["", "Dev", "a_b", "-a", "a-", "../a", "a/b", "f1", "x" * 33, "é"])
def test_a_name_is_small_and_no_fault(name):
    with pytest.raises(UsageError):
        claim(name)


@pytest.mark.parametrize("name", ["a", "dev-2", "f", "f0", "fault1", "x" * 32])
def test_other_names_are_good(name):
    assert claim(name).owner() == procfs.this_process()


def test_a_name_is_had_once_until_it_is_removed(home):
    first = claim("dev")
    with pytest.raises(UsageError, match="is running already"):
        claim("dev")
    die(first)
    with pytest.raises(UsageError, match="dead"):
        claim("dev")
    first.remove()
    claim("dev")
    assert [folder.name for folder in home.iterdir()] == ["dev"]


def test_other_users_cannot_read_it():
    assert claim("dev").folder.stat().st_mode & 0o777 == 0o700


def test_without_a_name_the_only_one_is_meant():
    with pytest.raises(UsageError, match="no cluster is running"):
        find_place(None)
    claim("a")
    assert find_place(None).name == "a"
    claim("b")
    assert find_place("b").name == "b"
    for name, known in ((None, "a, b"), ("c", "there are: a, b")):
        with pytest.raises(UsageError, match=known):
            find_place(name)


def test_clean_removes_the_dead_and_names_the_living(home):
    claim("alive")
    die(claim("dead"))
    removed, standing = clean_places()
    assert [place.name for place in places()] == ["alive"]
    assert ["dead" in removed[0], "alive" in standing[0]] == [True, True]
    assert [len(removed), len(standing)] == [1, 1]


@pytest.mark.parametrize("kind", UNSEEN)
def test_a_cluster_out_of_sight_is_left_alone_and_named(kind):
    place = claim("dev")
    sign(place, *UNSEEN[kind])
    removed, standing = clean_places()
    assert [removed, len(standing)] == [[], 1]
    for refused in (lambda: claim("dev"), lambda: take_down(place, progress=print)):
        with pytest.raises(UsageError, match="cannot be determined"):
            refused()
    with pytest.raises(InfrastructureError):
        question(place, Status())
    assert place.folder.is_dir()


def test_a_cluster_of_before_a_reboot_is_dead():
    place = claim("dev")
    sign(place, HERE._replace(boot_id="0-0"))
    assert len(clean_places()[0]) == 1


def test_clean_leaves_a_folder_alone_that_is_being_made(home, monkeypatch):
    claim("alive")
    (home / ".new").mkdir()
    assert clean_places()[0] == []
    monkeypatch.setattr("harness.up.records.YOUNG_S", 0.0)
    assert len(clean_places()[0]) == 1
    assert [folder.name for folder in home.iterdir()] == ["alive"]


def test_written_state_is_read_back(tmp_path):
    place = claim("dev")
    order = Order(environment="sim", case=Case(seed=3, bugs=("X",)), run_id="up-dev-1")
    assert place.order() is None
    place.write_order(order)
    assert place.order() == order
    (place.folder / "order.json").write_text("{")
    assert place.order() is None


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("UsageError", UsageError),
        ("TargetError", TargetError),
        ("InfrastructureError", InfrastructureError),
        ("", InfrastructureError),
    ],
)
def test_failures_keep_their_type(kind, error):
    place = claim("dev")
    assert "killed" in str(place.why_gone())
    place.write_failure(Failure(error="no port", kind=kind))
    found = place.failure().as_error()
    assert [type(found), str(found)] == [error, "no port"]
    assert "no port" in str(place.why_gone())


def test_failures_after_the_end_are_ignored(tmp_path):
    Place(tmp_path / "gone").write_failure(Failure(error="x"))


def test_foreign_folders_are_left_alone(home):
    claim("alive")
    (home / "stray").write_text("x")
    (home / "Not A Name").mkdir()
    assert [place.name for place in places(hidden=True)] == ["alive"]
    assert clean_places()[0] == []
    assert sorted(each.name for each in home.iterdir()) == ["Not A Name", "alive", "stray"]


def test_a_full_disk_is_said_with_its_folder_and_leaves_nothing(home, monkeypatch):
    def full(place, name, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Place, "write", full)
    with pytest.raises(InfrastructureError, match=f"{home}.*No space left"):
        claim("dev")
    assert list(home.iterdir()) == []


def test_a_state_folder_that_cannot_be_made_is_said(home):
    home.parent.write_text("a file")
    with pytest.raises(InfrastructureError, match="XDG_STATE_HOME"):
        claim("dev")


def test_unwritable_files_are_reported(tmp_path):
    place = Place(tmp_path / "gone")
    with pytest.raises(InfrastructureError, match=r"order\.json.*No such file"):
        place.write_order(Order(environment="sim", case=Case(seed=3), run_id="up-dev-1"))
