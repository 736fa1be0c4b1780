"""Nodes with other user accounts, children in separate process groups, and refused nodes."""

import os
import pwd
import sys
from types import SimpleNamespace

import pytest

from harness.cluster import NodeSpec, ReadyCommand, ReadyPort, Variant
from harness.environments import procfs
from harness.environments.process import child
from harness.environments.process.child import account_of
from harness.environments.process.environment import _Run
from harness.errors import InfrastructureError, UsageError
from tests.process.conftest import never
from tests.support.waiting import until

pytestmark = pytest.mark.process

CHILD_OF_ITS_OWN = """
import os, time
if os.fork() == 0:
    os.setsid()
print("two", flush=True)
time.sleep(1000)
"""


def node(**fields):
    return NodeSpec(**({"name": "n", "role": "r", "ports": (1,)} | fields))


@pytest.mark.quick
def test_kill_and_pause_reach_children_in_groups_of_their_own(run):
    async def body(driver):
        cluster = driver.cluster
        (child,) = await until_found(driver, 1)
        await cluster.pause("n", lease_s=600)
        await until(lambda: procfs.state(child) in procfs.STOPPED)
        await cluster.resume("n")
        await until(lambda: procfs.state(child) not in procfs.STOPPED)
        await cluster.kill("n")
        assert not procfs.is_alive(child)

    async def until_found(driver, count):
        outside = []

        def look():
            nonlocal outside
            pid = driver.cluster._node("n").pid
            outside = procfs.outside_group(pid)
            return len(outside) == count

        await until(look)
        return outside

    run(body, [node(command=(sys.executable, "-c", CHILD_OF_ITS_OWN))], wait=False)


def test_members_of_the_process_group_are_not_outsiders(run):
    async def body(driver):
        pid = driver.cluster._node("n").pid
        await until(lambda: len(driver.cluster._node("n").log.tail(9)) >= 1)
        assert procfs.outside_group(pid) == []

    run(body, [node(command=("sh", "-c", "sleep 1000 & echo up; wait"))], wait=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs a program as another user")
def test_a_node_runs_as_its_user_on_a_folder_of_its_own(run):
    async def body(driver):
        await until(lambda: len(driver.cluster._node("n").log.tail(9)) >= 2)
        set_up, ran = await driver.cluster.logs("n")
        assert set_up == ran
        assert ran.split()[:3] == [str(entry.pw_uid), str(entry.pw_gid), entry.pw_dir]
        await driver.cluster.kill("n")
        await driver.cluster.wipe("n")
        await driver.cluster.start("n")
        await until(lambda: len(driver.cluster._node("n").log.tail(9)) >= 4)

    entry = pwd.getpwnam("nobody")
    say = "touch {data}/mine && cat {files}/f > /dev/null && echo $(id -u) $(id -g) $HOME"
    spec = node(
        user="nobody",
        files={"f": "readable"},
        setup=(("sh", "-c", say),),
        command=("sh", "-c", f"{say}; exec sleep 1000"),
    )
    run(body, [spec], wait=False)


def test_accounts(monkeypatch):
    root = pwd.getpwuid(0)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    # without root, everything runs as the user of the harness
    assert account_of("no-such-user") is None
    monkeypatch.setattr(child.os, "geteuid", lambda: 0)
    assert account_of(None) is None
    for user in ("root", "0", "0:0"):
        account = account_of(user)
        assert (account.uid, account.gid, account.environment["HOME"]) == (0, 0, root.pw_dir)
    assert account_of("root:7").gid == 7
    with pytest.raises(UsageError, match=r"no user 'no-such-user'.*useradd"):
        account_of("no-such-user")
    with pytest.raises(UsageError, match="has a group name"):
        account_of("root:wheel")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image": "i"}, "neither an entry nor a command.*--env docker"),
        ({"dockerfile": "d"}, "neither an entry nor a command.*--env docker"),
        ({"command": ("x",), "variants": {"v": Variant(image="i:2")}}, "changes only its image"),
        ({"command": ("x",), "setup": (("{address:n:2}",),)}, "{address:n:2}"),
        ({"command": ("x",), "ready": ReadyPort(2)}, "none of its declared ports"),
        ({"command": ("x",), "after": ("n",)}, "start after 'n'"),
    ],
)
def test_what_is_refused(run, fields, message):
    with pytest.raises(UsageError, match=message):
        run(never, [node(**fields)], wait=False)


def test_a_program_that_the_machine_lacks_is_refused_by_name(run):
    for fields in (
        {"command": ("no-such-program",)},
        {"command": ("true",), "setup": (("no-such-program", "--init"),)},
        {"command": ("true",), "ready": ReadyCommand(("no-such-program",))},
        {"command": ("true",), "variants": {"v": Variant(command=("no-such-program",))}},
    ):
        with pytest.raises(UsageError, match=r"'n' runs 'no-such-program'.*; install it"):
            run(never, [node(**fields)], wait=False)
        packaged = node(**fields, debian_package="such")
        with pytest.raises(UsageError, match=r"install Debian's package such, or use --env docker"):
            run(never, [packaged], wait=False)
        other = node(**fields, instead="--own yes")
        with pytest.raises(UsageError, match=r"install it, or use --own yes or --env docker"):
            run(never, [other], wait=False)


async def test_data_that_cannot_be_copied_are_named_with_the_reason(tmp_path):
    kept = tmp_path / "kept"
    (kept / "n").mkdir(parents=True)
    (kept / "n" / "log").symlink_to(kept / "nowhere")
    run = SimpleNamespace(
        _plan=SimpleNamespace(data=kept),
        _nodes={"n": SimpleNamespace(data_folder=tmp_path / "data")},
    )
    with pytest.raises(InfrastructureError, match=r"cannot copy .*/kept/n .*No such file"):
        await _Run._restore(run)
