"""Selectors choose the right nodes and links when a fault starts, for all draws."""

import itertools

import msgspec
import pytest

from harness.cluster import CLIENT, Link, NodeSpec, client_end, is_client
from harness.errors import UsageError
from harness.faults.parser import parse
from harness.faults.selectors import Links, Nodes, check_names, cut_links, pick
from harness.plugins import NodeRole, Roles, Scene
from tests.support.repeated import for_each

MEMBERS = ("m1", "m2", "m3", "m4", "m5")
OTHERS = ("t1", "t2")
ALL = (*MEMBERS, *OTHERS)
SPECS = {
    name: NodeSpec(name=name, role="master" if name in MEMBERS else "tserver", ports=())
    for name in ALL
}
LED = Roles({"m3": NodeRole("leader", 4), "m1": NodeRole("leader", 3)}, MEMBERS)
DRAWS = range(60)


CLIENTS = tuple(map(client_end, range(5)))


def scene(draw=0, roles=LED, specs=SPECS, clients=(CLIENT, *CLIENTS)):
    return Scene(specs, {"catalog": roles}, draw=draw, clients=clients)


def nodes(text):
    return parse(f"kill {text}").whom


def links(text):
    return parse(f"cut {text}").whom


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("leader", ("m3",)),
        ("followers", ("m1", "m2", "m4", "m5")),
        ("members", MEMBERS),
        ("all", ALL),
        ("all@tserver", OTHERS),
        ("all@nonmembers", OTHERS),
        ("role:tserver", OTHERS),
        ("node:m2", ("m2",)),
        ("leader@tserver", ()),
    ],
)
def test_fixed_selectors(text, wanted):
    assert pick(nodes(text), scene()) == wanted


TABLET = Roles({"t2": NodeRole("leader", 9), "t1": NodeRole("follower", 9)}, ("t1", "t2"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("leader", ("m3",)),
        ("leader@catalog", ("m3",)),
        ("leader@tablet", ("t2",)),
        ("followers@tablet", ("t1",)),
        ("members@tablet", ("t1", "t2")),
        ("majority@tablet", ("t1", "t2")),
    ],
)
def test_a_group_has_a_leader_and_members_of_its_own(text, wanted):
    both = Scene(SPECS, {"catalog": LED, "tablet": TABLET})
    assert tuple(sorted(pick(nodes(text), both))) == wanted
    check_names(nodes(text), SPECS, ("catalog", "tablet"))


@pytest.mark.parametrize(
    ("text", "pool", "size"),
    [
        ("one", ALL, 1),
        ("one@members", MEMBERS, 1),
        ("one@tserver", OTHERS, 1),
        ("follower", tuple(name for name in MEMBERS if name != "m3"), 1),
        ("minority", MEMBERS, 2),
        ("majority", MEMBERS, 3),
        ("majority@tserver", OTHERS, 2),
        ("half", ALL, 3),
        ("half@members", MEMBERS, 2),
    ],
)
def test_draws_stay_in_their_pool_and_reach_all_of_it(text, pool, size):
    drawn = [pick(nodes(text), scene(draw)) for draw in DRAWS]
    assert {len(each) for each in drawn} == {size}
    assert {len(set(each)) for each in drawn} == {size}
    assert set(itertools.chain(*drawn)) == set(pool)
    assert drawn == [pick(nodes(text), scene(draw)) for draw in DRAWS]


@pytest.mark.parametrize("text", ["leader", "follower", "followers"])
def test_without_a_leader_the_selector_is_empty(text):
    assert pick(nodes(text), scene(roles=Roles({}, MEMBERS))) == ()
    assert nodes(text).needs_leader


def test_a_minority_of_one_or_two_is_empty():
    for count in (1, 2):
        few = dict(list(SPECS.items())[:count])
        assert pick(nodes("minority"), scene(specs=few)) == ()


def test_links_lead_both_ways_or_one():
    assert cut_links(links("leader from members"), scene()) == (
        ("m3",), ("m1", "m2", "m4", "m5"), Link.between(["m3"], ["m1", "m2", "m4", "m5"]),
    )  # fmt: skip
    assert cut_links(links("leader to node:m1"), scene())[2] == [Link("m3", "m1")]
    for text in ("leader from client", "client from leader"):
        assert cut_links(links(text), scene(clients=(CLIENT,))) == (
            ("m3",), (CLIENT,), Link.between(["m3"], [CLIENT]),
        )  # fmt: skip
        assert cut_links(links(text), scene()) == (
            ("m3",), (CLIENT, *CLIENTS), Link.between(["m3"], [CLIENT, *CLIENTS]),
        )  # fmt: skip
    one = scene(clients=(CLIENT,))
    assert cut_links(links("client to leader"), one)[2] == [Link(CLIENT, "m3")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("client:1 from leader", Link.between(["m3"], CLIENTS[1:2])),
        ("leader from client:4", Link.between(["m3"], CLIENTS[4:])),
        ("client:0 to node:m1", [Link(CLIENTS[0], "m1")]),
        ("node:m1 to client:0", [Link("m1", CLIENTS[0])]),
        ("client:2 from members", Link.between(MEMBERS, CLIENTS[2:3])),
        ("client:5 from leader", []),
    ],
)
def test_one_client_and_no_other_is_an_end_of_links(text, wanted):
    ends, others, found = cut_links(links(text), scene())
    assert found == wanted
    assert not any(map(is_client, ends))
    assert links(text).single_clients
    assert not links(text).draws
    assert all(map(is_client, others))


@pytest.mark.parametrize(("word", "size"), [("one@clients", 1), ("half@clients", 2)])
@pytest.mark.parametrize(
    "form", ["{} from leader", "leader from {}", "one from {}", "members from {}"]
)
def test_drawn_clients_are_of_those_that_call_and_draws_reach_them_all(word, size, form):
    selector = links(form.format(word))
    assert selector.single_clients
    assert selector.draws
    drawn = [cut_links(selector, scene(draw))[1] for draw in range(200)]
    assert {len(set(each)) for each in drawn} == {size}
    assert set(itertools.chain(*drawn)) == set(CLIENTS)


def test_where_clients_are_one_end_none_of_them_is_drawn():
    for text in ("one@clients from leader", "half@clients from leader", "client:0 from leader"):
        assert cut_links(links(text), scene(clients=(CLIENT,)))[2] == []


@pytest.mark.parametrize("shape", ["halves", "bridge"])
def test_a_shape_with_clients_has_some_of_them_on_each_side_and_the_same_nodes(shape):
    plain, split = links(shape), links(f"{shape} with clients")
    assert split.single_clients
    assert not plain.single_clients
    for draw in DRAWS:
        right, left, found = cut_links(split, scene(draw))
        sides = [{end for end in side if is_client(end)} for side in (left, right)]
        assert sorted(map(len, sides)) == [2, 3]
        assert sides[0] | sides[1] == set(CLIENTS)
        assert not any(is_client(link.source) and is_client(link.destination) for link in found)
        both = {(link.source, link.destination) for link in found}
        assert both == {(b, a) for a, b in both}
        assert {(a, b) for a in sides[0] for b in right if not is_client(b)} <= both
        nodes = [
            link for link in found if not (is_client(link.source) or is_client(link.destination))
        ]
        assert nodes == cut_links(plain, scene(draw))[2]


@pytest.mark.parametrize("text", ["members to leader", "all@members to leader"])
def test_a_plural_selector_excludes_the_other_end(text):
    one, many, found = cut_links(links(text), scene())
    assert (one, many) == (("m3",), ("m1", "m2", "m4", "m5"))
    assert found == [Link(name, "m3") for name in many]
    for word, size in (("majority", 3), ("minority", 2)):
        one, many, _ = cut_links(links(f"{word} to leader"), scene(7))
        assert (one, len(many)) == (("m3",), size)
        assert "m3" not in many


def test_others_are_all_but_the_other_end():
    assert cut_links(links("leader from others"), scene())[1] == ("m1", "m2", "m4", "m5", *OTHERS)


@for_each("draw", DRAWS)
def test_two_drawn_ends_are_never_the_same(draw):
    left, right, found = cut_links(links("one@members from one@members"), scene(draw))
    assert len(left) == len(right) == 1
    assert left != right
    assert found == Link.between(left, right)


def test_every_pair_can_be_drawn():
    seen = {
        frozenset(left + right)
        for draw in range(500)
        for left, right, _ in [cut_links(links("one@members from one@members"), scene(draw))]
    }
    assert len(seen) == 10


@for_each("draw", DRAWS)
def test_in_a_ring_each_hears_a_majority_and_no_two_the_same(draw):
    _, _, found = cut_links(links("ring"), scene(draw))
    hears = {
        name: frozenset(other for other in MEMBERS if Link(other, name) not in found)
        for name in MEMBERS
    }
    assert all(len(heard) == 3 and name in heard for name, heard in hears.items())
    assert len(set(hears.values())) == len(MEMBERS)
    assert {link.source for link in found} | {link.destination for link in found} == set(MEMBERS)


@for_each("draw", DRAWS)
def test_a_bridge_reaches_both_halves_and_they_not_each_other(draw):
    left, right, found = cut_links(links("bridge"), scene(draw))
    (bridge,) = set(ALL) - set(left) - set(right)
    assert bridge in MEMBERS
    assert not any(bridge in {link.source, link.destination} for link in found)
    assert found == Link.between(left, right)
    assert len(left) <= len(right)
    assert {len(set(side) & set(MEMBERS)) for side in (left, right)} == {2}


@pytest.mark.parametrize("shape", ["ring", "bridge"])
def test_two_members_are_too_few_for_a_shape(shape):
    few = {name: SPECS[name] for name in ("m1", "m2")}
    assert cut_links(links(shape), scene(specs=few))[2] == []


@pytest.mark.parametrize(
    "selector",
    [
        Nodes(word="node", name="m9"),
        Nodes(word="role", name="boss"),
        Nodes(word="one", among="boss"),
        Links(left=Nodes(word="leader"), right=Nodes(word="node", name="m9")),
    ],
)
def test_unknown_names_are_refused(selector):
    with pytest.raises(UsageError, match=r"m9|boss"):
        check_names(selector, SPECS, ("catalog",))
    check_names(
        Links(left=Nodes(word="one", among="tserver"), right=Nodes(word="client")), SPECS, ()
    )


def test_halves_of_one_node_and_clients_are_about_the_node():
    alone = msgspec.structs.replace(scene(), specs={"m1": scene().specs["m1"]}, groups={})
    ends, others, found = cut_links(links("halves with clients"), alone)
    assert "m1" in ends
    assert found
    assert all(map(is_client, others))
