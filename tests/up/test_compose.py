"""The Compose file follows from the target's declarations, and `docker compose` accepts it."""

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import yaml

from harness.case import Case
from harness.cluster import NodeSpec
from harness.environments.docker.image.image import NEWEST
from harness.environments.host.node import NodeFile
from harness.errors import UsageError
from harness.up.compose import compose_file, published_ports

FILE = Path(__file__).parents[2] / "docker" / "compose.yaml"


def services(**options):
    """Return the services of a file by name, and the input of each node."""
    file = yaml.safe_load(compose_file(Case(seed=7, target_options=options)))
    told = {
        name: msgspec.json.decode(
            service["environment"]["HARNESS_NODE"].replace("$$", "$"), type=NodeFile
        )
        for name, service in file["services"].items()
    }
    return file, told


def test_the_file_in_the_repository_is_what_is_printed():
    assert FILE.read_text() == compose_file(Case(seed=0)), (
        "write it again: harness up --print-compose > docker/compose.yaml"
    )


def test_it_is_the_cluster_that_the_target_declares():
    file, told = services()
    assert list(file["services"]) == ["m1", "m2", "m3", "t1", "t2", "t3"]
    assert told["t1"].entry == "targets.kudu.tserver.node:main"
    assert told["m2"].config["masters"] == ["m1:7051", "m2:7051", "m3:7051"]
    assert told["t2"].listen == {str(port): ("0.0.0.0", port) for port in (7050, 8050)}
    assert told["t2"].pages["m3:8051"] == ("127.0.0.1", 8251)  # the address for browsers
    assert all(node.connect["m3:7051"] == ("m3", 7051) for node in told.values())
    assert all(node.seed == 7 and node.data == "/data" for node in told.values())


def test_every_node_keeps_its_data_and_is_reached_on_loopback_only():
    file, _ = services(masters=5, tservers=4)
    published = []
    for name, service in file["services"].items():
        assert service["image"] == f"${{HARNESS_NODE_IMAGE:-{NEWEST}}}"
        assert f"{name}-data:/data" in service["volumes"]
        assert service["cap_drop"] == ["ALL"]
        published += [port.rpartition(":")[0] for port in service["ports"]]
    assert list(file["volumes"]) == [f"{name}-data" for name in file["services"]]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len(set(published)) == len(published) == 18


def test_a_dollar_is_no_variable_of_compose_and_quotes_are_quoted(monkeypatch):
    text = "it's $5, \\"
    node = NodeSpec(name="n1", role="x", ports=(), entry="tests.x:main", config={"text": text})
    target = SimpleNamespace(options=(), nodes=lambda settings: [node])
    monkeypatch.setattr("harness.up.compose.load_plugin", lambda group, name: target)
    service = yaml.safe_load(compose_file(Case(seed=0)))["services"]["n1"]
    told = service["environment"]["HARNESS_NODE"]
    assert "$" not in told.replace("$$", "")
    assert json.loads(told.replace("$$", "$"))["config"] == {"text": text}


@pytest.mark.parametrize("count", [1, 3, 12, 99])
def test_no_port_is_published_twice(count):
    nodes = [
        *(NodeSpec(name=f"m{n}", role="master", ports=(7051, 8051)) for n in range(7)),
        *(NodeSpec(name=f"t{n}", role="tserver", ports=(7050, 8050)) for n in range(count)),
    ]
    ports = published_ports(nodes)
    assert len(set(ports.values())) == len(ports) == 2 * len(nodes)
    assert (ports["m1", 7051], ports["t0", 7050]) == (7151, 7050)


def test_foreign_programs_are_refused():
    with pytest.raises(UsageError, match="foreign programs"):
        compose_file(Case(seed=0, target="http-register"))
