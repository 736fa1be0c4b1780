"""`harness up` and related verbs in containers, and the same cluster in compose."""

import json
import secrets
import shutil
from pathlib import Path

import pytest
import yaml

from harness.environments.docker.engine.labels import RUN_LABEL
from harness.environments.docker.image.image import NEWEST, build_image, image_tag
from harness.errors import EXIT_USAGE
from tests.support.programs import run_program
from tests.support.waiting import wait_until
from tests.up.support import (
    addresses_of,
    ask_from_outside,
    clusters,
    keep_and_go_on,
    left_of,
    life_of_a_table,
    lose_holder,
    see_pages,
)

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("docker")]
SMALL = ("--masters", "1", "--tservers", "1")
COMPOSE = Path(__file__).parents[2] / "docker" / "compose.yaml"


@pytest.fixture
def up(tmp_path):
    with clusters("docker", tmp_path) as found:
        yield found


def left_in(engine, cluster):
    label = f"{RUN_LABEL}={cluster['run_id']}"
    there = [*engine.containers(label), *engine.networks(label), *engine.volumes(label)]
    return [found.name for found in there] + left_of(cluster)


def test_it_stays_is_broken_and_healed_and_leaves_nothing(up, engine):
    cluster = up.start()
    name = cluster["name"]
    ask_from_outside(addresses_of(cluster))
    see_pages(*(node["pages"] for node in cluster["nodes"]))
    broken = up.call("break", name, "shape leader from members loss=30%", "--json")
    up.call("break", name, "pause one@tserver")
    assert "already" in up.call("up", "--env", "docker", "--name", name, code=EXIT_USAGE)
    (states,) = [[node["state"] for node in up.call("status", name, "--json")["status"]["nodes"]]]
    assert sorted(states) == ["paused", *["running"] * 5]
    healed = {each["id"]: each for each in up.call("heal", name, "--all", "--json")["healed"]}
    assert healed[broken["id"]]["unit"] == "packets"
    assert healed[broken["id"]]["count"] > 0
    ask_from_outside(addresses_of(cluster))
    up.call("break", name, "pause all")
    up.down(name)
    assert left_in(engine, cluster) == []


def test_a_cluster_goes_on_from_the_data_that_were_kept(up):
    assert keep_and_go_on(up) == []
    (name,) = up.clusters
    up.down(name, "--keep-data")
    processes = up.start("--env", "process", name=name)  # the same data now serves processes
    assert {node["name"] for node in processes["nodes"]} == {"m1", "t1"}


@pytest.mark.parametrize("with_warden", [False, True])
def test_a_killed_holder_leaves_nothing_that_is_not_removed(with_warden, up, engine):
    cluster = up.start(*SMALL)
    up.call("break", cluster["name"], "cut node:m1 from others")
    lose_holder(up, cluster, with_warden=with_warden)
    # the warden has also seen the holder die, and may still be ending
    wait_until(lambda: left_in(engine, cluster) == [])


# --- compose -------------------------------------------------------------------------------------


class Compose:
    """The repository's compose file with other ports and a separate name."""

    def __init__(self, folder, engine):
        self._engine = engine
        self.file = yaml.safe_load(COMPOSE.read_text())
        for service in self.file["services"].values():
            declared = [port.rpartition(":")[2] for port in service["ports"]]
            service["ports"] = [f"127.0.0.1::{port}" for port in declared]
        self.path = folder / "compose.yaml"
        self.path.write_text(yaml.safe_dump(self.file))
        self._project = f"t{secrets.token_hex(4)}"
        self.words = ["--project-name", self._project, "--file", str(self.path)]

    def call(self, *words):
        program = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
        code = str(COMPOSE.parents[1])
        done = run_program(*program, *self.words, *words, HARNESS_CODE=code)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def addresses(self):
        label = f"com.docker.compose.project={self._project}"
        return {
            f"{each['Labels']['com.docker.compose.service']}:{port['PrivatePort']}": (
                port["IP"], port["PublicPort"],
            )
            for each in self._engine._api.containers(filters={"label": label})
            for port in each["Ports"] if "PublicPort" in port
        }  # fmt: skip


def shows_pages(url):
    """Whether a node that may still be starting shows this page."""
    try:
        see_pages(url)
    except OSError:
        return False
    return True


def has_compose():
    if shutil.which("docker-compose"):
        return True
    return (
        bool(shutil.which("docker")) and run_program("docker", "compose", "version").returncode == 0
    )


@pytest.mark.skipif(not has_compose(), reason="there is no compose; apt-get install docker-compose")
def test_compose_starts_a_cluster_that_keeps_its_tables(tmp_path, engine):
    build_image(lambda line: None)
    assert engine.image_id(NEWEST) == engine.image_id(image_tag())
    compose = Compose(tmp_path, engine)
    requests = life_of_a_table()
    created, got = requests[0], next(each for each in requests if each.f == "get")
    got = type(got)(got.f, {**got.value, "name": created.value["name"]})
    try:
        compose.call("up", "--detach")
        addresses = compose.addresses()
        first = ask_from_outside(addresses, requests[:3])[0]
        host, port = addresses["m1:8051"]
        wait_until(lambda: shows_pages(f"http://{host}:{port}/masters"))
        compose.call("kill")
        compose.call("up", "--detach")
        (again,) = ask_from_outside(compose.addresses(), [got])
        assert json.dumps(again).count(first["table_id"]) == 1
    finally:
        compose.call("down", "--volumes")
