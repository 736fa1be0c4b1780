"""A writer of histories in the vocabulary `hms`."""

from harness.ops import Attempt, OpType
from tests.support.histories import MS, Writer


def table(name, nonce=None, new_name=None):
    value = {}
    value["database"], value["name"] = name.split(".")
    if new_name is not None:
        value["new_database"], value["new_name"] = new_name.split(".")
    return value if nonce is None else {**value, "nonce": nonce}


class HmsWriter(Writer):
    """A writer with calls such as `h.done(0, "create", "d.x", "a")` and `h.saw(1, "d.x", "a")`."""

    def start(self, process, f, name, nonce, new_name=None):
        return self.call(process, f, table(name, nonce, new_name))

    def end(self, process, kind=OpType.OK, result="ok", attempts=()):
        f = next(op.f for op in reversed(self.lines) if op.process == process)
        value = None if kind is OpType.INFO else {"result": result}
        return self.add(process, kind, f, value, "hms1", attempts=attempts)

    def done(self, process, f, name, nonce, new_name=None):
        index = self.start(process, f, name, nonce, new_name)
        self.end(process)
        return index

    def refused(self, process, f, name, nonce, result, new_name=None):
        index = self.start(process, f, name, nonce, new_name)
        self.end(process, OpType.FAIL, result)
        return index

    def gone(self, process, f, name, nonce, new_name=None, sent=1):
        """Add an operation whose answer was lost."""
        index = self.start(process, f, name, nonce, new_name)
        self.end(process, OpType.INFO, attempts=sent_to("hms1", "hms2")[:sent])
        return index

    def saw(self, process, name, nonce, **more):
        index = self.call(process, "get", table(name))
        answer = {"result": "no-such-object"} if nonce is None else {"result": "ok", "nonce": nonce}
        answer |= more
        self.ret(process, OpType.OK, answer)
        return index

    def listed(self, process, *names):
        return self.ok(process, "list", {}, {"tables": [*names]})

    def polled(self, process, after, *events, **more):
        return self.ok(process, "poll", {}, {"after": after, "events": [*events], **more})

    def snapshot(
        self, tables=(), events=(), next_event=1, orphans=(), directories=None, **metastores
    ):
        rows = {
            "tables": [*tables],
            "events": [*events],
            "next_event": next_event,
            "orphans": [*orphans],
        }
        if directories is not None:
            rows["directories"] = [*directories]
        names = [name for name, *_ in tables]
        shown = metastores or {"hms1": names, "hms2": names}
        self.fact("converged", {"ok": True, "took_s": 0.0, "bound_s": 90.0})
        return self.fact("snapshot", {"rows": rows, "metastores": shown, "failover_s": 10.0})

    def permitting(self, *permits):
        found = [{"name": name, "why": "so it is", **more} for name, more in permits]
        return self.fact("permits", {"profile": "p", "permits": found})


def sent_to(*nodes, gap_ms=1, first_ms=0):
    """Build attempts at these nodes, `gap_ms` apart, none of which got an answer."""
    found = []
    for number, node in enumerate(nodes):
        begin = (first_ms + number * (gap_ms + 1)) * MS
        found.append(Attempt(node, begin, begin + MS, "TTransportException: lost"))
    return tuple(found)


def event(ident, kind, before=None, after=None, time_ms=None):
    """Return a row of the log; `before` and `after` are pairs (name, nonce)."""
    old, new = before or (None, None), after or (None, None)
    time_ms = ident if time_ms is None else time_ms
    return [ident, time_ms, f"{kind}_TABLE", old[0], new[0], old[1], new[1]]
