"""The rules of the determinism lint: banned names, and calls to which a set's order matters."""

from __future__ import annotations

from typing import Final

BANNED_IMPORTS: Final = {
    "time": "use env.clock, loop.time() or asyncio.sleep",
    "random": "use env.random; `import random` is fine for the annotation random.Random only",
    "secrets": "use env.random",
    "uuid": "draw identifiers from env.random",
    "socket": "use env.net",
    "ssl": "use env.net",
    "select": "use env.net",
    "selectors": "use env.net",
    "threading": "use env.spawn and asyncio",
    "multiprocessing": "use env.spawn and asyncio",
    "concurrent": "use env.spawn and asyncio",
    "queue": "use asyncio.Queue",
    "sched": "use asyncio.sleep",
    "subprocess": "a node starts nothing",
    "signal": "a graceful stop arrives as cancellation",
    "tempfile": "use env.disk",
    "shutil": "use env.disk",
    "glob": "use env.disk.list",
    "pathlib": "use env.disk; its paths are strings with '/'",
    "os": "use env.disk, env.random, or the node's config",
    "platform": "a node must not see the machine it runs on",
    "logging": "use env.event: log records read the wall clock",
    "weakref": "a node must not depend on when the garbage collector runs",
    "gc": "a node must not depend on when the garbage collector runs",
}
BANNED_NAMES: Final = {
    "asyncio.wait": "it returns sets of tasks; use asyncio.gather",
    "asyncio.as_completed": "it keeps a set of tasks; use asyncio.gather",
    "asyncio.all_tasks": "it returns a set of tasks; keep the tasks you need in a list",
    "asyncio.TaskGroup": "it aborts its tasks in the order of a set; use env.spawn or gather",
    "asyncio.wait_for": "it starts a task for each call before 3.12; use `asyncio.timeout(s)`",
    "asyncio.to_thread": "there are no threads in simulation",
    "asyncio.run": "the environment runs the loop",
    "asyncio.new_event_loop": "the environment runs the loop",
    "asyncio.open_connection": "use env.net.connect",
    "asyncio.start_server": "use env.net.listen",
    "asyncio.open_unix_connection": "use env.net.connect",
    "asyncio.start_unix_server": "use env.net.listen",
    "asyncio.create_subprocess_exec": "a node starts nothing",
    "asyncio.create_subprocess_shell": "a node starts nothing",
    "datetime.datetime.now": "use env.clock.wall_ns",
    "datetime.datetime.utcnow": "use env.clock.wall_ns",
    "datetime.datetime.today": "use env.clock.wall_ns",
    "datetime.date.today": "use env.clock.wall_ns",
}
BANNED_BUILTINS: Final = {
    "id": "addresses differ from process to process; give the object a number",
    "hash": "hashes differ from process to process; use zlib.crc32 or hashlib",
    "open": "use env.disk.open",
    "input": "a node has no terminal",
    "eval": "the lint cannot read what it runs",
    "exec": "the lint cannot read what it runs",
    "__import__": "the lint cannot read what it imports",
}
BANNED_METHODS: Final = {"run_in_executor": "there are no threads in simulation"}
ORDERED_CONSUMERS: Final = frozenset(
    (
        *("list", "tuple", "iter", "next", "enumerate", "zip", "map", "filter", "str", "repr"),
        *("deque", "reduce", "chain", "islice", "fromkeys", "join", "extend", "choice", "sample"),
        *("from_iterable", "bytes", "bytearray", "extendleft", "dict", "OrderedDict", "batched"),
    )
)
UNORDERED_CONSUMERS: Final = frozenset(
    (
        *("sorted", "set", "frozenset", "any", "all", "sum", "len", "min", "max", "Counter"),
        *("update", "union", "intersection", "difference", "symmetric_difference", "issubset"),
        *("issuperset", "isdisjoint", "difference_update", "intersection_update", "bool"),
    )
)
SET_METHODS: Final = frozenset(
    ("union", "intersection", "difference", "symmetric_difference", "copy")
)
MUTATORS: Final = frozenset(
    (
        *("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "clear"),
        *("remove", "discard", "appendleft", "popleft", "sort", "reverse"),
    )
)
MUTABLE_CALLS: Final = frozenset(
    (
        *("dict", "list", "set", "bytearray", "deque", "defaultdict", "Counter", "OrderedDict"),
        *("count", "cycle", "WeakSet", "WeakValueDictionary", "WeakKeyDictionary", "ContextVar"),
    )
)
SET_TYPES: Final = frozenset(("set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet"))
MAP_TYPES: Final = frozenset(("dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict"))
LIST_TYPES: Final = frozenset(
    ("list", "tuple", "Sequence", "Iterable", "Iterator", "deque", "Collection", "Generator")
)
