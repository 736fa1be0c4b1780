"""Parts of a Docker deployment that need no engine, such as names, addresses and commands."""

import io
import ipaddress
import json
import sys
import tarfile
from pathlib import Path

import pytest

from harness.cluster import CLIENT, NodeSpec, Variant, client_end
from harness.environments.docker import deploy
from harness.environments.docker.image import image, sources
from harness.environments.docker.network import clients, relay, streams
from harness.environments.host.node import NodeFile
from harness.errors import UsageError
from tests.docker.support import echo_nodes, plan_of

NETWORK = ipaddress.IPv4Network("10.7.8.0/24")
PORTS = {"a": (80, 81), "b": (90,)}


def blueprint(*nodes, **fields):
    return deploy.Blueprint(plan_of(nodes, run_id="r", **fields), "image:1", NETWORK)


def unpacked(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def node(name="a", **fields):
    return NodeSpec(**({"role": "x", "ports": PORTS["a"], "command": ("run",)} | fields), name=name)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("{host}:{port:81}", "0.0.0.0:81"),
        ("--peer={peer:b:90}", "--peer=b:90"),
        ("--me={address:a:80}", "--me=a:80"),
        ("{host:b}:90:91", "b:90:91"),
        ("{data}/x {name}", "/data/x a"),
        ("{files}/conf/x.yml", "/harness/files/conf/x.yml"),
        ("{package:toy}", "/harness/app"),
        ("{package:toy.deep.module}", "/harness/app/toy/deep"),
        ('{"json": {}} ${HOME} {0}', '{"json": {}} ${HOME} {0}'),
    ],
)
def test_placeholders(word, expected):
    assert sources.fill(word, node(), PORTS) == expected


@pytest.mark.parametrize(
    "word",
    [
        "{port:82}",
        "{port}",
        "{peer:b:91}",
        "{peer:c:90}",
        "{address:c:90}",
        "{host:c}",
        "{package:}",
        "{hots}",
    ],
)
def test_unknown_placeholders_are_refused(word):
    with pytest.raises(UsageError, match="the node's own ports are"):
        sources.fill(word, node(), PORTS)


def test_a_node_has_nothing_and_its_keeper_one_capability():
    plans = blueprint(*echo_nodes(2))

    container, keeper = plans.container("n1"), plans.keeper("n1")

    assert container.capabilities == ()
    assert container.no_new_privileges
    assert container.user == "65532:65532"
    assert container.network == "container:harness-r-n1.net"
    assert container.published == ()
    assert container.environment == {"HARNESS_NODE_FILE": "/harness/node.json"}
    assert keeper.capabilities == ("NET_ADMIN",)
    assert keeper.read_only
    assert keeper.published == (7051,)
    assert keeper.hosts == {"n2": "10.7.8.11"}
    assert plans.addresses == {"n1": "10.7.8.10", "n2": "10.7.8.11", "client": "10.7.8.1"}


def test_the_runner_reads_the_node_file_back():
    files = unpacked(blueprint(*echo_nodes(2)).node_file("n2", 5))

    file = json.loads(files["harness/node.json"])
    assert set(file) == set(NodeFile.__struct_fields__)
    assert (file["name"], file["boot"], file["entry"]) == ("n2", 5, "tests.docker.echo:main")
    assert file["listen"] == {"7051": ["0.0.0.0", 7051]}
    assert file["connect"] == {"n1:7051": ["10.7.8.10", 7051], "n2:7051": ["10.7.8.11", 7051]}


def test_a_foreign_program_runs_in_the_image_that_it_names():
    bundled = node(command=(sys.executable, "-m", "x", "{port:80}"))
    foreign = node("b", image="postgres:16", command=("postgres",))
    plans = blueprint(bundled, foreign)

    assert plans.container("a").command == ("python3", "-m", "x", "80")
    assert plans.container("a").environment == {}
    assert plans.container("b").image == "postgres:16"
    assert plans.container("b").user is None
    assert plans.keeper("b").image == "image:1"
    assert plans.data_folder("a") is None
    assert plans.data_folder("b") is not None


def test_code_is_that_of_entries_and_of_named_packages(tmp_path, monkeypatch):
    (tmp_path / "toy_package").mkdir()
    (tmp_path / "toy_package" / "__init__.py").write_text("X = 1\n")
    (tmp_path / "toy_package" / "data.txt").write_text("data")
    (tmp_path / "toy_module.py").write_text("Y = 1\n")
    (tmp_path / "toy_variant.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    specs = [
        node(
            entry="toy_package.deep:main",
            command=(),
            variants={"v": Variant(entry="toy_variant:main")},
        ),
        node("b", command=("python3", "{package:toy_module}/toy_module.py")),
    ]

    files = unpacked(sources.archive_of(sources.code_of(specs)))

    assert files["harness/app/toy_package/data.txt"] == b"data"
    assert files["harness/app/toy_module.py"] == b"Y = 1\n"
    assert "harness/app/toy_variant.py" in files
    assert "harness/app/harness/environments/host/node.py" in files
    assert not any("sys" in name.split("/") for name in files)


def test_limits_user_and_volume_are_those_declared():
    plans = blueprint(node(), node("b", user="999:999", memory_mib=64, cpus=0.5))
    usual, limited = plans.container("a"), plans.container("b")

    assert (usual.user, usual.memory_bytes_max, usual.cpus) == ("65532:65532", 1 << 30, None)
    assert (limited.user, limited.memory_bytes_max, limited.cpus) == ("999:999", 64 << 20, 0.5)
    assert usual.volumes == {"harness-r-a.data": "/data"}
    assert plans.data_folder("a") is None
    # the node runs as another user, who must be able to write there
    assert plans.data_folder("b") is not None


def test_a_variant_has_a_command_an_environment_and_an_image_of_its_own():
    plans = blueprint(
        node(
            environment={"A": "{name}", "B": "1"},
            variants={"v": Variant(command=("other",), environment={"B": "2"}, image="i:2")},
        )
    )
    base, variant = plans.container("a"), plans.container("a", "v")

    assert (base.command, base.image) == (("run",), "image:1")
    assert (variant.command, variant.image, variant.user) == (("other",), "i:2", None)
    assert variant.environment == {"A": "a", "B": "2"}
    assert variant.volumes == base.volumes
    assert plans.data_folder("a") is not None


def test_a_variant_of_an_entry_has_a_config_of_its_own():
    spec = echo_nodes(1)[0]
    changed = Variant(entry="tests.docker.other:main", config={"greeting": "ahoy"})
    plans = blueprint(
        NodeSpec(
            **{name: getattr(spec, name) for name in ("name", "role", "ports")},
            entry=spec.entry,
            config={"x": 1},
            variants={"v": changed},
        )
    )

    file = json.loads(unpacked(plans.node_file("n1", 1, variant="v"))["harness/node.json"])
    assert (file["entry"], file["config"]) == (
        "tests.docker.other:main",
        {"x": 1, "greeting": "ahoy"},
    )


def test_an_image_alone_runs_its_own_command():
    plans = blueprint(node(command=(), image="postgres:16"))

    assert plans.container("a").command == ()
    assert plans.container("a").user is None


def test_a_set_up_command_runs_as_the_node_does():
    plans = blueprint(node(user="7", setup=((sys.executable, "init", "{data}"),)))
    made, usual = plans.setup("a", "base", plans.specs["a"].setup[0]), plans.container("a")

    assert made.command == ("python3", "init", "/data")
    assert (made.name, usual.name) == ("harness-r-a.setup", "harness-r-a")
    assert (made.user, made.network, made.volumes, made.labels) == (
        usual.user, usual.network, usual.volumes, usual.labels,
    )  # fmt: skip


def test_files_are_filled_in():
    plans = blueprint(node(files={"conf/x": "{name} {port:81}", "y": ""}), node("b"))

    assert unpacked(plans.files("a")) == {
        "harness/files/conf/x": b"a 81",
        "harness/files/y": b"",
    }
    assert plans.files("b") is None


def test_a_foreign_program_alone_brings_no_code_of_ours():
    assert sources.code_of([node()]) == {}


def test_a_package_that_is_missing_or_too_large_is_refused(monkeypatch):
    with pytest.raises(UsageError, match=r"'no_such_package'.*install its distribution"):
        sources.code_of([node(entry="no_such_package.deep:main", command=())])
    monkeypatch.setattr(sources, "_ARCHIVE_BYTES_MAX", 1000)
    with pytest.raises(UsageError, match="the code of the nodes is larger than 1000"):
        sources.archive_of(sources.package_files("harness"))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "0 nodes"),
        ([node("client")], "'client'"),
        ([node("a.net")], r"'a\.net'"),
        ([node("a.setup")], r"'a\.setup'"),
        ([node("a.proxy")], r"'a\.proxy'"),
        ([node(after=("x",))], "start after 'x'"),
        ([node(dockerfile="/nowhere")], "/nowhere has no such file"),
        ([node(), node()], "unique"),
        ([node(command=())], "either an entry or a command"),
        ([node(entry="a:b")], "either an entry or a command"),
    ],
)
def test_plans_that_cannot_be_deployed_are_refused(nodes, message):
    with pytest.raises(UsageError, match=message):
        deploy.check_plan(plan_of(nodes))


def test_the_proxy_of_streams_is_ours_or_the_program_that_is_given(tmp_path):
    program = tmp_path / "toxiproxy-server"
    program.write_bytes(b"ELF")
    ours = blueprint(*echo_nodes(1))
    custom = deploy.Blueprint(
        plan_of(echo_nodes(1), run_id="r", link_proxy=str(program)), "image:1", NETWORK
    )

    for plans in (ours, custom):
        proxy = plans.proxy("n1")
        assert proxy.network == "container:harness-r-n1.net"
        assert proxy.user.partition(":")[0] == str(streams.PROXY_UID)
        assert proxy.user.partition(":")[0] not in {plans.container("n1").user, "0"}
        assert proxy.capabilities == ()
        assert proxy.labels == plans.labels("n1")
    assert "harness/app/harness/environments/toxiproxy/api.py" in unpacked(ours.proxy_code())
    assert unpacked(custom.proxy_code()) == {custom.proxy("n1").command[0][1:]: b"ELF"}
    deploy.check_plan(plan_of(echo_nodes(1), link_proxy=str(program)))
    with pytest.raises(UsageError, match="is not a file"):
        deploy.check_plan(plan_of(echo_nodes(1), link_proxy="http://127.0.0.1:8474"))


def test_subnets_avoid_routes_of_this_machine(tmp_path):
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000080FF\t0\t0\t0\n"
    )
    used = deploy._routes(table)

    subnets = [ipaddress.IPv4Network(text) for text in deploy._subnets("r", used)]

    assert used == [ipaddress.IPv4Network("10.0.0.0/9")]
    assert subnets
    assert all(subnet.network_address >= ipaddress.IPv4Address("10.128.0.0") for subnet in subnets)
    assert deploy._routes(tmp_path / "none") == []


def test_a_changed_recipe_is_another_image(tmp_path, monkeypatch):
    tag = image.image_tag()
    recipe = tmp_path / "Dockerfile"
    recipe.write_text(Path(image._RECIPE).read_text() + "\nRUN true\n")
    assert image.image_tag() == tag
    monkeypatch.setattr(image, "_RECIPE", recipe)

    assert image.image_tag() != tag
    assert image.image_tag().startswith("harness-node:")


ENDS = (CLIENT, "client:0", "client:1")


def test_separate_clients_call_from_separate_addresses():
    print_of = blueprint(node("a"), node("b", ports=(90,)), ends=ENDS)
    relayed = clients.relay_of(print_of)
    routes = [relay.Route.parse(word) for word in relayed.command[5:]]
    assert [str(route) for route in routes] == list(relayed.command[5:])
    assert relayed.published == tuple(route.listen for route in routes)
    assert len(set(relayed.published)) == len(routes)
    addresses = print_of.addresses
    assert {route[1:] for route in routes} == {
        (addresses[end], addresses[name], port)
        for end in ENDS[1:]
        for name, port in (("a", 80), ("a", 81), ("b", 90))
    }
    used = [*addresses.values(), relayed.address]
    assert len(set(used)) == len(used)
    assert addresses[CLIENT] == print_of.gateway


def test_where_clients_are_one_end_there_is_no_relay():
    assert clients.relay_of(blueprint(node("a"), node("b", ports=(90,)))) is None


@pytest.mark.parametrize("count", [2, 101])
def test_more_ports_for_clients_than_the_engine_may_publish_are_refused(count):
    ends = (CLIENT, *map(client_end, range(count)))
    plan = plan_of([node("a")], ends=ends)
    if count * len(PORTS["a"]) <= deploy.CLIENT_PORTS_MAX:
        deploy.check_plan(plan)
        return
    with pytest.raises(UsageError, match="202"):
        deploy.check_plan(plan)
