"""A tablet server's pages as HTML. Each function renders its namesake in `tserver_data`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from targets.kudu.pages.parts import (
    DASH,
    Html,
    cards,
    code,
    facts,
    join,
    link,
    moment,
    state_badge,
    table,
    tag,
)
from targets.kudu.pages.shared import columns_table, partition_text

Data = Mapping[str, Any]


def tablets(data: Data) -> Html:
    """Render the page `/tablets`."""
    return table(
        None,
        ["Table", "Partition", "State", "Role", "#Rows", "#Term", "#Applied", "Tablet"],
        [
            (
                t["table_name"],
                partition_text(t["partition"]["start"], t["partition"]["end"]),
                _state(t),
                DASH if t["role"] is None else state_badge(t["role"]),
                DASH if t["live_rows"] is None else f"{t['live_rows']:,}",
                DASH if t["term"] is None else t["term"],
                DASH if t["applied_index"] is None else t["applied_index"],
                link(code(t["tablet_id"]), "/tablet", id=t["tablet_id"]),
            )
            for t in data["tablets"]
        ],
        empty="There are no tablets here.",
        data=data,
    )


def _state(replica: Data) -> Html:
    data_state = replica["data_state"]
    return state_badge(replica["state"] if data_state == "READY" else data_state)


def tablet(data: Data) -> Html:
    """Render the page `/tablet?id=`."""
    raft = data["raft"]
    return join(
        facts(
            [
                ("Tablet", code(data["tablet_id"])),
                ("Table", data["table_name"]),
                ("State", _state(data)),
                (
                    "Partition",
                    partition_text(data["partition"]["start"], data["partition"]["end"]),
                ),
                ("Schema version", data["schema_version"]),
            ]
        ),
        None if raft is None else _consensus(data, raft),
        None if data["rows"] is None else _rows(data["rows"]),
        columns_table(data["columns"]),
    )


def _consensus(data: Data, raft: Data) -> Html:
    counters = raft.get("counters", {})
    return join(
        table(
            "Replicas",
            ["Server", "Role", "Address", "UUID"],
            [
                (
                    link(
                        peer["address"].rpartition(":")[0],
                        f"{peer['page']}/tablet",
                        id=data["tablet_id"],
                    ),
                    join(
                        state_badge("LEADER" if peer["leader"] else peer["member_type"]),
                        join(" ", state_badge(peer["health"])) if peer["health"] else None,
                        tag("span", " this one", class_="muted") if peer["here"] else None,
                    ),
                    code(peer["address"]),
                    code(peer["uuid"]),
                )
                for peer in data["peers"]
            ],
            empty="Its configuration has no members.",
        ),
        tag("h2", "Consensus"),
        facts(
            [
                ("Role here", state_badge(raft["role"])),
                ("Term", raft["term"]),
                ("Committed up to", raft["commit_index"]),
                ("Applied up to", raft["applied_index"]),
                ("Last in the log", raft["last_index"]),
                ("Configuration of", raft["committed_config_index"]),
                *((name.capitalize(), value) for name, value in counters.items()),
            ]
        ),
    )


def _rows(rows: Data) -> Html:
    counters = rows["counters"].items()
    numbers = [("Live rows", f"{rows['live_rows']:,}")]
    numbers += [(name.capitalize(), f"{value:,}") for name, value in counters]
    return join(tag("h2", "Rows"), facts(numbers))


def overview(data: Data, pages: Html) -> Html:
    """Render the page `/`; `pages` is the list of all pages."""
    states = data["tablets"]
    masters = (
        tag("span", link(m["address"].rpartition(":")[0], m["page"]), class_="peer")
        for m in data["masters"]
    )
    return join(
        cards(
            [
                ("tablets", sum(states.values()), "/tablets"),
                ("of them running", states.get("RUNNING", 0), "/tablets"),
                ("of them led here", data["led"], "/tablets"),
                ("tables", data["tables"], "/tablets"),
            ]
        ),
        facts(
            [
                ("Registration", code(data["address"])),
                ("Started", moment(data["start_ns"])),
                ("Masters", tag("span", *masters, class_="peers")),
                ("UUID", code(data["uuid"])),
            ]
        ),
        pages,
    )
