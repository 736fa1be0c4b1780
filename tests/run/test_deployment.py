"""Declarations of nodes are refused, ordered for the start, or changed into variants."""

import asyncio
import itertools

import pytest

from harness.cluster import (
    BASE,
    NodeSpec,
    NodeState,
    ReadyCommand,
    ReadyHttp,
    ReadyLog,
    ReadyPort,
    Variant,
)
from harness.errors import InfrastructureError, TargetError, UsageError
from harness.nodes.deployment import (
    as_variant,
    check_nodes,
    forms_of,
    refuse_in_simulation,
    start_bound_s,
    start_down,
    start_in_order,
    start_layers,
    words_of,
)


def node(name="n", **fields):
    return NodeSpec(**({"role": "r", "ports": (80,), "command": ("run",)} | fields), name=name)


ON_ENV = {"command": (), "entry": "a:b", "config": {"x": 1, "y": 1}}


def on_env(name="n", **fields):
    return node(name, **(ON_ENV | fields))


GOOD = node(
    after=("m",),
    ready=ReadyHttp(80, "/health?full=1"),
    files={"conf/a.yml": "{data}", "b": ""},
    setup=(("init", "{data}"),),
    image="i:1",
    user="postgres:99",
    memory_mib=64,
    cpus=0.5,
    variants={"new": Variant(image="i:2"), "other": Variant(dockerfile="/d")},
)


def test_allowed_declarations():
    check_nodes([GOOD, node("m")])
    check_nodes([node()])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"after": ("x",)}, "start after 'x'.*other nodes: m"),
        ({"after": ("n",)}, "start after 'n'"),
        ({"ready": ReadyPort(81)}, r"port 81 is none of its declared ports \[80\]"),
        ({"ready": ReadyPort(80, 0.0)}, "within_s is 0.0"),
        ({"ready": ReadyPort(80, 4000.0)}, "at most 3600"),
        ({"ready": ReadyPort(80, float("nan"))}, "within_s is nan"),
        ({"ready": ReadyHttp(80, "health")}, "begin with '/'"),
        ({"ready": ReadyHttp(80, "/a b")}, "'/a b'"),
        ({"ready": ReadyHttp(80, "/a\r\nX: y")}, "hold no space"),
        ({"ready": ReadyLog("(")}, "not a regular expression"),
        ({"ready": ReadyCommand(())}, "its command is empty"),
        ({"files": {"/etc/passwd": ""}}, "'/etc/passwd'.*relative path"),
        ({"files": {"../x": ""}}, r"'\.\./x'"),
        ({"files": {"a//b": ""}}, "'a//b'"),
        ({"files": {"": ""}}, "a file ''"),
        ({"files": {"a": "", "a/b": ""}}, "'a' and 'a/b'"),
        ({"files": {"a": "x" * (1024 * 1024 + 1)}}, "1048577 characters"),
        ({"setup": (("init",), ())}, "empty command in `setup`"),
        ({"image": "i", "dockerfile": "d"}, "declare one of them"),
        ({"user": "a b"}, "'a b'"),
        ({"user": "--privileged"}, "write it like 'postgres'"),
        ({"memory_mib": 1}, "at least 16"),
        ({"cpus": 0.0}, "cpus 0.0"),
        ({"cpus": float("inf")}, "cpus inf"),
        ({"stop_signal": "KILL"}, "'KILL'; it is one of: SIGTERM"),
        ({"variants": {BASE: Variant(image="i")}}, "not be 'base'"),
        ({"variants": {"a b": Variant(image="i")}}, "'a b'"),
        ({"variants": {"v": Variant()}}, "changes nothing"),
        ({"variants": {"v": Variant(command=())}}, "empty command"),
        ({"variants": {"v": Variant(entry="a:b")}}, "is a foreign program"),
        ({"variants": {"v": Variant(config={})}}, "is a foreign program"),
        ({"variants": {"v": Variant(image="i", dockerfile="d")}}, "declare one of them"),
        (ON_ENV | {"variants": {"v": Variant(command=("x",))}}, "vary `entry` or `config`"),
        (ON_ENV | {"stop_signal": "SIGINT"}, r"`stop_signal`.*cancelled"),
    ],
)
def test_what_is_refused(fields, message):
    with pytest.raises(UsageError, match=message):
        check_nodes([node(**fields), node("m")])


def test_nodes_start_in_layers():
    nodes = [node("a", after=("c",)), node("b"), node("c", after=("b", "d")), node("d"), node("e")]

    assert start_layers(nodes) == [["b", "d", "e"], ["c"], ["a"]]
    # a node does not wait for nodes that are not in the list
    assert start_layers(nodes[::2]) == [["c", "e"], ["a"]]
    assert start_layers([node("x"), node("y")]) == [["x", "y"]]


def test_a_circle_is_named():
    nodes = [node("a", after=("b",)), node("b", after=("c",)), node("c", after=("a",)), node("d")]
    with pytest.raises(UsageError) as caught:
        check_nodes(nodes)

    circle = str(caught.value).split("cycle: ")[1].split(";")[0].split(" after ")
    assert circle[0] == circle[-1]
    after = {spec.name: spec.after for spec in nodes}
    assert all(later in after[first] for first, later in itertools.pairwise(circle))


class FakeCluster:
    """A fake cluster whose nodes are down, with a record of requests."""

    def __init__(self, nodes, up=()):
        self.nodes = {spec.name: spec for spec in nodes}
        self.up = set(up)
        self.asked = []

    def state(self, name):
        return NodeState.RUNNING if name in self.up else NodeState.DOWN

    async def start(self, name):
        self.asked.append(f"start {name}")
        self.up.add(name)

    async def wait_ready(self, name):
        self.asked.append(f"wait {name}")
        return "it never is"


NODES = [
    node("app", after=("db",), ready=ReadyPort(80, 7.0)),
    node("db", ready=ReadyPort(80, 5.0)),
    node("x"),
]


def test_nodes_start_in_order_and_only_needed_ones_are_awaited():
    cluster = FakeCluster(NODES)
    asyncio.run(start_down(cluster, cluster.nodes))
    assert cluster.asked == ["start db", "start x", "wait db", "start app"]

    cluster = FakeCluster(NODES, up=["db"])
    asyncio.run(start_down(cluster, ["app", "db"]))
    assert cluster.asked == ["start app"]

    cluster = FakeCluster(NODES)
    asyncio.run(start_down(cluster, ["app"]))
    assert cluster.asked == ["start app"]
    assert start_bound_s(cluster.nodes, ["app", "db", "x"]) == 12.0


def test_a_deployment_waits_for_every_probe_and_ends_with_the_first_failure():
    asked = []

    async def start(name):
        asked.append(f"start {name}")

    async def wait_ready(name):
        asked.append(f"wait {name}")
        if name == "db" and failing:
            raise TargetError("db")

    by_name = {spec.name: spec for spec in NODES}
    failing = False
    asyncio.run(start_in_order(by_name, start, wait_ready))
    assert asked[-2:] == ["start app", "wait app"]
    assert sorted(asked[:3]) == ["start db", "start x", "wait db"]

    failing = True
    asked.clear()
    with pytest.raises(TargetError):
        asyncio.run(start_in_order(by_name, start, wait_ready))
    assert "start x" in asked
    assert "start app" not in asked


def test_the_first_failure_is_raised_after_the_others_ended():
    ended = []

    async def start(name):
        if name == "a":
            raise InfrastructureError("a")
        await asyncio.sleep(0)
        ended.append(name)

    async def wait_ready(name):
        raise AssertionError("no probe is declared")

    with pytest.raises(InfrastructureError):
        asyncio.run(start_in_order({"a": node("a"), "b": node("b")}, start, wait_ready))
    assert ended == ["b"]


def test_a_variant_is_laid_over_its_node():
    spec = node(
        environment={"A": "1", "B": "1"},
        image="i:1",
        variants={
            "flag": Variant(command=("run", "--fast"), environment={"B": "2", "C": "2"}),
            "next": Variant(image="i:2"),
            "own": Variant(dockerfile="/d"),
        },
    )

    flag, following, own = (as_variant(spec, name) for name in spec.variants)
    assert (flag.command, flag.image) == (("run", "--fast"), "i:1")
    assert flag.environment == {"A": "1", "B": "2", "C": "2"}
    assert (following.image, following.dockerfile, following.command) == ("i:2", None, ("run",))
    assert (own.image, own.dockerfile) == (None, "/d")
    assert as_variant(spec, BASE) is spec
    assert list(forms_of(spec)) == [BASE, "flag", "next", "own"]
    with pytest.raises(UsageError, match="no variant 'x'; it has: base, flag, next, own"):
        as_variant(spec, "x")

    env = on_env(variants={"v": Variant(entry="c:d", config={"y": 2, "z": 2})})
    assert as_variant(env, "v").config == {"x": 1, "y": 2, "z": 2}
    assert as_variant(env, "v").entry == "c:d"


def test_placeholders_may_stand_in_all_of_these_words():
    spec = node(
        command=("c",),
        environment={"E": "e"},
        files={"f": "text"},
        setup=(("s1", "s2"),),
        ready=ReadyCommand(("probe",)),
        variants={"v": Variant(command=("cv",), environment={"E": "ev"})},
    )

    assert {"c", "e", "text", "s1", "s2", "probe", "cv", "ev"} == set(words_of(spec))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (node("f"), "the nodes f are foreign programs"),
        (on_env(image="i"), "an image.*works with --env docker$"),
        (on_env(dockerfile="d"), "a dockerfile.*--env docker$"),
        (on_env(variants={"v": Variant(image="i")}), "an image"),
        (on_env(files={"a": ""}), "files.*--env process, docker$"),
        (on_env(setup=(("a",),)), "setup commands"),
        (on_env(ready=ReadyPort(80)), "a readiness probe"),
        (on_env(user="u"), "a user"),
        (on_env(variants={"v": Variant(environment={"A": "1"})}), "environment variables"),
    ],
)
def test_features_missing_in_the_simulation_are_refused(spec, message):
    with pytest.raises(UsageError, match=message):
        refuse_in_simulation([spec])


def test_the_simulation_takes_order_variants_and_limits():
    refuse_in_simulation(
        [
            on_env(after=("m",), memory_mib=64, cpus=1.0, variants={"v": Variant(config={"x": 2})}),
            on_env("m"),
        ]
    )
