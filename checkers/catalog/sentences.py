"""Describes operations of the vocabulary "ddl", and histories without an order, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from checkers.catalog.history import CatalogHistory, is_bounded, is_late
from checkers.catalog.models.catalog import Catalog
from checkers.linearizability import Failure, Survivor
from checkers.linearizability.proof import Told, offenders
from checkers.verdict import sentences
from checkers.verdict.sentences import ops, seconds
from harness.errors import counted
from harness.ops import OpType, Pair
from harness.vocabularies import fields_of, follower_reads
from harness.vocabularies.ddl import BY_NAME, MUTATIONS, READS

KINDS: Final = {**BY_NAME, **follower_reads.CALLS.by_name}
CONFLICTS_MAX = 3
CORE_MAX = 5
ANSWERS_MAX = 10
STORIES_MAX = 3
ID_SHOWN_MAX = 8
"""Sentences shorten longer table ids, since users know tables by name."""


def where(pair: Pair) -> str:
    """Return an operation's index, kind, time and node in parentheses, and whether it used Hive."""
    begin, done = pair.invoke, pair.completion
    if done is None or not is_late(pair):
        return sentences.where(pair)
    span = f"{seconds(begin.time)}-{seconds(done.time)} s"
    return f"(op {begin.index}, {begin.f}, {span}, by way of Hive, answered by {done.node})"


def sentence(pair: Pair) -> str:
    """Describe the operation in a sentence without a full stop.

    An example is `Process 3 read table 'b' (op 812, get, ...) and found it missing`.
    """
    return sentences.sentence(pair, KINDS, at=where)


def table_words(ident: object, name: str | None) -> str:
    """Return the words for a table in a sentence, such as `table 't3' (id 0e7fb6…)`."""
    text = str(ident)
    short = text if len(text) <= ID_SHOWN_MAX else f"{text[: ID_SHOWN_MAX - 2]}…"
    return f"table {name!r} (id {short})" if name else f"table {short}"


def tried(pair: Pair) -> str:
    """Describe a request that had no effect, as a sentence without a full stop."""
    call = pair.invoke
    name = fields_of(call).get("name")
    what = f"table {name!r}" if name else "the tables"
    return f"Process {call.process} tried to {call.f} {what} {where(pair)}"


def _done_by(pair: Pair, verb: str) -> str:
    begin, done = pair.invoke, pair.completion
    if done is not None and is_late(pair):
        way = f"by way of Hive, ok there at {seconds(done.time)} s"
        return f"process {begin.process} had {verb} (op {begin.index}, {way})"
    if done is None or done.type is OpType.INFO:
        return (
            f"process {begin.process} had {verb} (op {begin.index}, from {seconds(begin.time)} s, "
            "whose answer was lost)"
        )
    return f"process {begin.process} had {verb} (op {begin.index}, ok at {seconds(done.time)} s)"


def _last_change(
    order: Iterable[int], name: str, pairs: Mapping[int, Pair]
) -> tuple[Pair, str] | None:
    for index in reversed(list(order)):
        pair = pairs[index]
        call = pair.invoke
        if pair.type is OpType.FAIL or call.f not in MUTATIONS:
            continue
        if call.f == "rename" and call.value["new_name"] == name:
            return pair, f"renamed {call.value['name']!r} to it"
        if call.value["name"] != name:
            continue
        if call.f == "rename":
            return pair, f"renamed it to {call.value['new_name']!r}"
        return pair, f"{BY_NAME[call.f].past} it"
    return None


def _story(survivor: Survivor, name: str, pairs: Mapping[int, Pair], whole: Catalog | None) -> str:
    state: Any = survivor.state
    here = None
    if whole is not None:
        table = whole.under(state, name)
        if table is not None:
            ident, version, columns = table
            here = f"table {ident or 'of unknown id'} at version {version}"
            here += f", newest columns {', '.join(columns) or 'none'}"
    elif state is not None:
        here = f"table {state[0]} at version {state[1]}" if state[0] else "a table"
    change = _last_change(survivor.order, name, pairs)
    if here is None:
        if change is None:
            return f"{name!r} must have been free: no operation had put a table there"
        return (
            f"{name!r} must have been free: {_done_by(*change)} and no table got the "
            "name in between"
        )
    if change is None:
        return f"{name!r} must have been {here}"
    return (
        f"{name!r} must have been {here}: {_done_by(*change)} and nothing changed that in between"
    )


def _concerned(pair: Pair, survivor: Survivor, model: Catalog, projected: str | None) -> list[str]:
    """Return the table names that the failing operation is about.

    For a list, these are the names for which the list differs from the model's state.
    """
    if projected is not None:
        return [projected]
    call = pair.invoke
    if call.f == "rename":
        return sorted({call.value["name"], call.value["new_name"]})
    if call.f != "list":
        return [call.value["name"]]
    state: Any = survivor.state
    assert pair.completion is not None
    listed = {e[0]: (e[1], e[2]) for e in pair.completion.value["tables"]}
    differing = []
    for name in model.names:
        table = model.under(state, name)
        if (table and table[:2]) != listed.get(name):
            differing.append(name)
    return differing


def _rule(pair: Pair) -> str:
    """Name the rule that the failing operation broke. Reports group failures by this rule."""
    result = fields_of(pair.completion).get("result", "ok")
    if pair.invoke.f in READS or is_bounded(pair):
        return "missing" if result == "not-found" else "stale-read"
    return "wrong-ack" if result == "ok" else f"wrong-{result}"


def tell_conflicts(converted: CatalogHistory) -> Told:
    """Describe the conflicts of a history: answers whose table ids and nonces do not match."""
    text: list[str] = []
    blamed: list[int] = []
    for each in converted.conflicts[:CONFLICTS_MAX]:
        both = [index for index, _ in each.answers]
        blamed += both
        text += [f"{sentence(converted.pairs[index])}." for index in both]
        text.append(f"So {each.text}; a create takes effect once and ids are never reused.")
    if len(converted.conflicts) > CONFLICTS_MAX:
        text.append(f"{len(converted.conflicts) - CONFLICTS_MAX} more conflicts of this kind.")
    return Told(converted.conflicts[0].text, text, tuple(blamed), "created-twice")


def tell_contradiction(core: tuple[int, ...], rule: str, pairs: Mapping[int, Pair]) -> Told:
    """Describe a contradiction among the answers of `core`, and the `rule` that they break."""
    text = [f"{sentence(pairs[index])}." for index in core[:ANSWERS_MAX]]
    if len(core) > len(text):
        text.append(f"{len(core) - len(text)} more are not shown.")
    text.append(
        f"But {_named(rule, (pairs[index] for index in core))}: no order of the operations that "
        "respects real time explains "
        f"{'this answer' if len(core) == 1 else f'these {len(core)} answers'}."
    )
    blamed = pairs[core[0]]
    return Told(sentence(blamed), text, core, _rule(blamed))


def _named(text: str, pairs: Iterable[Pair]) -> str:
    """Add a name to each table id in `text`, taken from an answer that shows the table."""
    for pair in pairs:
        call, value = fields_of(pair.invoke), fields_of(pair.completion)
        named = [(call.get("new_name", call.get("name")), value.get("table_id"))]
        named += [(entry[0], entry[1]) for entry in value.get("tables") or ()]
        for name, ident in named:
            if name and ident:
                text = text.replace(f"table {ident} ", f"{table_words(ident, name)} ")
    return text


def tell_failure(failure: Failure, converted: CatalogHistory, model: Catalog) -> Told:
    """Describe why a search failed: the answer, the state that it contradicts, and the core."""
    pairs, failing = converted.pairs, converted.pairs[failure.operation]
    projected = None
    if failure.projection:
        projected = next(n for n in model.names if failure.projection == f"name {n!r}")
    whole = model if projected is None else None
    text = [
        f"{sentence(failing)}, but no order of the operations that respects real time allows it."
    ]
    stories: list[str] = []
    for survivor in failure.survivors:
        names = _concerned(failing, survivor, model, projected)
        story = "; ".join(_story(survivor, name, pairs, whole) for name in names[:STORIES_MAX])
        if story and story not in stories:
            stories.append(story)
    if len(stories) == 1:
        text.append(f"By then {stories[0]}.")
    elif stories:
        text.append(f"Before it, {len(stories)} different states are possible.")
        text.extend(f"Either {story}." for story in stories[:STORIES_MAX])
        if len(stories) > STORIES_MAX:
            text.append(f"Not shown: {counted(len(stories) - STORIES_MAX, 'more way')}.")
    rest = [index for index in failure.core if index != failure.operation]
    if rest:
        small = "a minimal set" if failure.core_minimal else "not proven minimal"
        text.append(
            f"{ops(failure.core, limit=10).capitalize()} contradict each other by themselves "
            f"({small}), with any outcome of the {len(failure.weakened)} other changes."
        )
        # The operations just before the contradiction are the most useful to show.
        text.extend(f"{sentence(pairs[index])}." for index in rest[-CORE_MAX:])
        if len(rest) > CORE_MAX:
            text.append(f"{len(rest) - CORE_MAX} earlier ones are not shown.")
    text += [
        f"Op {index}, whose answer was lost, did take effect: op {converted.seen_creates[index]} "
        "saw its table."
        for index in failure.core
        if index in converted.seen_creates
    ]
    return Told(sentence(failing), text, offenders(failure), _rule(failing))
