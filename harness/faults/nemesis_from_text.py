"""Nemeses from faults in words: each sentence has a schedule, a selector of targets and a kind.

The targets are chosen when the fault begins.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.case import Fault, Trigger
from harness.cluster import CLIENT, Capability, Link, NodeSpec, is_client
from harness.errors import UsageError, choices_near, listed
from harness.faults.parser import Sentence, are_words, parse
from harness.faults.schedules import Schedule
from harness.faults.selectors import Nodes, check_names, cut_links, may_mean, pick
from harness.nodes.faults import ROLLING_RESTART, Aim, Cut, Operate, Reset, Shape, Stream
from harness.plugins import NEMESIS_API_VERSION, Nemesis, Scene, Target
from harness.registry import load_plugin, load_working

CHOICE: Final = "choice"
DRAW: Final = "draw"
DRAW_MAX: Final = 2**31


class AimedNemesis(Nemesis):
    """A nemesis whose faults are described in words. Each fault uses one of its sentences."""

    def __init__(
        self,
        name: str,
        doc: str,
        *sentences: str,
        schedule: Schedule | None = None,
        suits_all: bool = True,
    ) -> None:
        """`schedule` replaces the times in the sentences. Raises `UsageError` (see `parse`)."""
        self.api_version = NEMESIS_API_VERSION
        self.name = name
        self.doc = doc
        self.suits_all = suits_all
        self.sentences = tuple(parse(text) for text in sentences)
        self._schedule = schedule or self.sentences[0].schedule
        self._drawn = {CHOICE: len(self.sentences)} if len(self.sentences) > 1 else {}
        if any(sentence.whom.draws for sentence in self.sentences):
            self._drawn[DRAW] = DRAW_MAX
        self.clients_min = max(sentence.clients_min for sentence in self.sentences)
        self.requires: frozenset[Capability] = frozenset().union(
            *(sentence.requires for sentence in self.sentences)
        )

    @classmethod
    def of_text(cls, text: str) -> AimedNemesis:
        return cls(text, "the fault that its name describes", text)

    def plan(
        self, rng: random.Random, *, horizon_ns: int, interval_ns: int, duration_ns: int
    ) -> Sequence[Fault]:
        """Plan the faults of a run by the nemesis's schedule (`harness.faults.schedules`)."""
        return self._schedule.plan(
            self.name,
            rng,
            self.draw_args,
            horizon_ns=horizon_ns,
            interval_ns=interval_ns,
            duration_ns=duration_ns,
        )

    @property
    def drawn_args(self) -> Collection[str]:
        """Return the names of the arguments that a fault of this nemesis has."""
        return self._drawn.keys()

    def draw_args(self, rng: random.Random) -> dict[str, Any]:
        """Draw the sentence (`choice`), and the number that determines its targets (`draw`)."""
        return {name: rng.randrange(limit) for name, limit in self._drawn.items()}

    def check_args(self, args: Mapping[str, Any]) -> None:
        """Raise `UsageError` for arguments that `draw_args` never draws (in handwritten cases)."""
        for name, value in args.items():
            if name == KEEP_OTHERS and self.name == "partition-leader":
                right, rule = type(value) is bool, "true or false"
            elif name in self._drawn:
                # If nodes are hit one by one, the n-th node's argument is the draw plus n.
                limit = self._drawn[name] + (self._schedule.nodes if name == DRAW else 0)
                right = type(value) is int and 0 <= value < limit
                rule = f"a whole number in 0 .. {limit - 1}"
            else:
                names = ", ".join(self._drawn) or "none"
                raise UsageError(
                    f"the nemesis {self.name!r} has no argument {name!r}; it has: {names}"
                )
            if not right:
                raise UsageError(
                    f"the argument {name!r} of the nemesis {self.name!r} is {value!r}; "
                    f"it takes {rule}"
                )

    def check_target(self, specs: Mapping[str, NodeSpec], target: Target) -> None:
        """Raise `UsageError` if a sentence names a node, a group, ... that the target lacks."""
        for sentence in self.sentences:
            try:
                check_names(sentence.whom, specs, target.groups)
                if isinstance(sentence.kind, Operate):
                    _check_operation(sentence.kind, specs, target)
            except UsageError as error:
                raise UsageError(f"the fault {sentence.text!r}: {error}") from error

    def may_hit(self, specs: Mapping[str, NodeSpec], what: Collection[Capability]) -> Sequence[str]:
        """Return the nodes that may be hit by a fault that needs any of the capabilities `what`."""
        hit = [
            name
            for sentence in self.sentences
            if not sentence.requires.isdisjoint(what) and isinstance(sentence.whom, Nodes)
            for name in may_mean(sentence.whom, specs)
        ]
        return list(dict.fromkeys(hit))

    def needs_leader(self, fault: Fault) -> bool | str:
        """Whether this fault waits for a leader. A string is the group of that leader."""
        whom = self.sentence(fault).whom
        return whom.group or whom.needs_leader

    def trigger_of(self, fault: Fault) -> Trigger | None:
        """Return the event that this fault waits for, or `None`."""
        return self.sentence(fault).trigger

    def aim(self, scene: Scene, fault: Fault) -> Aim:
        """Choose the targets that this fault's sentence selects at this moment."""
        sentence = self.sentence(fault)
        scene = msgspec.structs.replace(scene, draw=int(fault.args.get(DRAW, 0)))
        whom = sentence.whom
        if isinstance(whom, Nodes):
            nodes = pick(whom, scene)
            return Aim(what=sentence.kind, targets=nodes) if nodes else _missed(sentence, scene)
        ends, others, links = cut_links(whom, scene)
        if not links:
            return _missed(sentence, scene)
        note = _sentence_on(sentence, ends, others, links, scene)
        nodes = tuple(end for end in ends if not is_client(end))
        return Aim(what=sentence.kind, targets=nodes, links=tuple(links), note=note)

    def sentence(self, fault: Fault) -> Sentence:
        """Return the sentence that was drawn for this fault."""
        if KEEP_OTHERS in fault.args:
            return self.sentences[0 if fault.args[KEEP_OTHERS] else 1]
        return self.sentences[int(fault.args.get(CHOICE, 0)) % len(self.sentences)]


CLIENTS_LISTED_MAX: Final = 20
KEEP_OTHERS: Final = "keep_others"
"""The argument that selects a sentence of `partition-leader` in older cases."""


def load_nemesis(name: str) -> Nemesis:
    """Return an installed nemesis by its name, or the nemesis of a fault in words.

    Raises `UsageError` like `load_plugin` and `parse`.
    """
    if are_words(name):
        return AimedNemesis.of_text(name)
    nemesis: Nemesis = load_plugin("nemeses", name)
    return nemesis


def _others_with(operation: str) -> str:
    """Return the end of an error message: which targets have this operation."""
    names = [name for name, target in load_working("targets") if operation in target.operations]
    return f"add {' or '.join(f'--target {name}' for name in names)}" if names else ""


def _check_operation(what: Operate, specs: Mapping[str, NodeSpec], target: Target) -> None:
    operations = [ROLLING_RESTART, *target.operations]
    if what.name not in operations:
        raise UsageError(
            f"the target {target.name!r} has no operation {what.name!r}; "
            f"{_others_with(what.name) or choices_near(what.name, operations)}"
        )
    needed = target.variant_of.get(what.name)
    if needed is not None and not any(needed in spec.variants for spec in specs.values()):
        raise UsageError(
            f"{what.name} restarts nodes as {needed!r}, but no node of this deployment has this "
            f"variant; add it by options of {target.name!r}"
        )
    if what.variant and what.name != ROLLING_RESTART:
        raise UsageError(f"only {ROLLING_RESTART} starts nodes as a variant; drop the setting")
    names = sorted({name for spec in specs.values() for name in spec.variants})
    if what.variant and what.variant not in names:
        raise UsageError(
            f"no node has a variant {what.variant!r}; there are: {', '.join(names) or 'none'}"
        )


def _missed(sentence: Sentence, scene: Scene) -> Aim:
    if sentence.whom.needs_leader and scene.roles(sentence.whom.group).leader is None:
        return Aim(what=sentence.kind, note="missed: no node leads at this moment")
    note = f"missed: `{sentence.text}` selects no node at this moment"
    return Aim(what=sentence.kind, note=note)


def _listed(ends: Sequence[str], scene: Scene) -> str:
    """List the nodes and the first clients. All clients together are written `client`."""
    clients = [end for end in ends if is_client(end)]
    nodes = [end for end in ends if not is_client(end)]
    if clients == list(scene.clients):
        return ", ".join([*nodes, CLIENT])
    return ", ".join([*nodes, *([listed(clients, limit=CLIENTS_LISTED_MAX)] if clients else [])])


def _sentence_on(
    sentence: Sentence,
    ends: Sequence[str],
    others: Sequence[str],
    links: Sequence[Link],
    scene: Scene,
) -> str:
    """Describe, for the history, which links the fault affects, and how."""
    few, many = _listed(ends, scene), _listed(others, scene)
    leader = scene.roles(sentence.whom.group).leader
    if sentence.whom.needs_leader and list(ends) == [leader]:
        few = f"leader {few}"
    match sentence.kind:
        case Cut() if not others:
            return f"cut {few} into a ring: each hears a majority, and no two the same"
        case Shape() | Stream() if not others:
            return f"made the links across a ring of {few} worse"
        case Reset() if not others:
            return f"reset the connections across a ring of {few}"
        case Cut(one_way=True):
            heard = links[0].source in ends
            source, sink = (few, many) if heard else (many, few)
            return f"cut all that goes from {source} to {sink}"
        case Cut():
            return f"cut {few} off from {many}" if len(ends) == 1 else f"cut {many} from {few}"
        case Shape() | Stream():
            return f"made the links between {few} and {many} worse"
        case _:
            return f"reset the connections between {few} and {many}"
