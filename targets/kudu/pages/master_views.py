"""A master's pages as HTML. Each function renders its namesake in `master_data`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import counted
from targets.kudu.pages.parts import (
    DASH,
    Html,
    badge,
    cards,
    code,
    facts,
    join,
    link,
    moment,
    node,
    note,
    state_badge,
    table,
    tag,
)
from targets.kudu.pages.shared import columns_table, partition_text

Data = Mapping[str, Any]


def masters(data: Data) -> Html:
    """Render the page `/masters`."""
    live = table(
        "Live Masters",
        ["Name", "UUID", "Cluster ID", "Role", "Start time", "Registration"],
        [
            (
                node(m),
                code(m["uuid"]),
                code(m["cluster_id"] or DASH),
                join(
                    state_badge(m["role"]),
                    None if m["member_type"] == "VOTER" else join(" ", state_badge("NON_VOTER")),
                ),
                moment(m["start_ns"]),
                code(m["address"]),
            )
            for m in data["masters"]
        ],
        empty="This master is still starting, so no master has answered yet.",
    )
    errors = table(
        "Errors",
        ["UUID", "Address", "Error"],
        [(code(e["uuid"]), code(e["address"]), e["error"]) for e in data["errors"]],
        empty="",
    )
    return join(
        note(data["warning"], "warning") if data["warning"] else None,
        *(
            note(
                f"{other['address']} was started with another list of masters: "
                f"{', '.join(other['told'])}. Restart it with the masters on this page.",
                "warning",
            )
            for other in data["told_otherwise"]
        ),
        live,
        errors if data["errors"] else None,
    )


def tables(data: Data) -> Html:
    """Render the page `/tables`."""
    listed = table(
        None,
        ["Name", "State", "#Tablets", "#RF", "#Schema", "Created", "Owner", "Id"],
        [
            (
                link(t["name"], "/table", id=t["id"]),
                state_badge(t["state"]),
                f"{t['tablets_running']} of {t['tablets']}",
                t["num_replicas"],
                f"v{t['version']}",
                moment(t["create_ns"]),
                t["owner"] or DASH,
                code(t["id"]),
            )
            for t in data["tables"]
        ],
        empty="There are no tables; `harness kudu table create NAME` creates one.",
        data=data,
    )
    remarks = (
        []
        if data["leads"]
        else ["This master is not the leader; the page shows the state that it has applied."]
    )
    if data["deleted"]:
        number = data["deleted"]
        remarks.append(f"Rows of {counted(number, 'deleted table')} are kept.")
    return join(listed, tag("p", " ".join(remarks), class_="muted") if remarks else None)


def table_page(data: Data) -> Html:
    """Render the page `/table?id=`."""
    altering = data["version"] != data["applied_version"]
    version = f"{data['applied_version']}, changing to {data['version']}"
    return join(
        facts(
            [
                ("Name", data["name"]),
                ("Id", code(data["id"])),
                ("State", join(state_badge(data["state"]), " ", data["state_msg"])),
                ("Schema version", version if altering else data["version"]),
                ("Replicas of a tablet", data["num_replicas"]),
                ("Hash buckets", data["num_hash_buckets"]),
                ("Owner", data["owner"] or DASH),
                ("Comment", data["comment"] or DASH),
                ("Created", moment(data["create_ns"])),
                ("Altered", moment(data["alter_ns"])),
                *([("Deleted", moment(data["delete_ns"]))] if data["delete_ns"] else []),
            ]
        ),
        columns_table(data["columns"]),
        table(
            "Tablets",
            ["Id", "Partition", "State", "Replicas", "#Term", "#Config"],
            [
                (
                    code(t["id"]),
                    partition_text(t["start"], t["end"]),
                    join(state_badge(t["state"]), " ", t["state_msg"]),
                    _replicas(t),
                    DASH if t["consensus"] is None else t["consensus"]["term"],
                    DASH if t["consensus"] is None else t["consensus"]["opid_index"],
                )
                for t in data["tablets"]
            ],
            empty="It has no tablets.",
            data=data,
        ),
    )


def _replicas(tablet: Data) -> Html:
    if not tablet["replicas"]:
        return tag("span", "not placed yet", class_="muted")
    cells = (
        tag(
            "span",
            link(
                tag("span", peer["address"].rpartition(":")[0], title=peer["uuid"]),
                f"{peer['page']}/tablet",
                id=tablet["id"],
            ),
            " leads" if peer["leader"] else None,
            None if peer["member_type"] == "VOTER" else " (non-voter)",
            None if peer["registered"] else " (not heard of)",
            class_="peer lead" if peer["leader"] else "peer",
        )
        for peer in tablet["replicas"]
    )
    return tag("span", *cells, class_="peers")


def tservers(data: Data) -> Html:
    """Render the page `/tablet-servers`."""
    return join(
        tag(
            "p",
            f"{data['alive']} of {data['total']} are alive: heard of within "
            f"{data['unresponsive_after_ms'] / 1000:g} s.",
            class_="muted",
        ),
        table(
            None,
            ["Name", "State", "#Last heartbeat", "#Live tablets", "Registration", "UUID"],
            [
                (
                    node(s),
                    join(
                        state_badge(s["state"]),
                        join(" ", badge("MAINTENANCE", "wait")) if s["in_maintenance"] else None,
                    ),
                    f"{s['millis_since_heartbeat'] / 1000:.1f} s ago",
                    s["num_live_tablets"],
                    code(s["address"]),
                    code(s["uuid"]),
                )
                for s in data["tablet_servers"]
            ],
            empty="No tablet server has registered since this master started.",
            data=data,
        ),
    )


def overview(data: Data, pages: Html) -> Html:
    """Render the page `/`; `pages` is the list of all pages."""
    tablets, leader = data["tablets"], data["leader"]
    running = tablets.get("RUNNING", 0)
    alive = f"{data['tablet_servers_alive']} of {data['tablet_servers']}"
    return join(
        cards(
            [
                ("masters", data["masters"], "/masters"),
                ("tablet servers alive", alive, "/tablet-servers"),
                ("tables", data["tables"], "/tables"),
                ("tablets running", f"{running} of {sum(tablets.values())}", "/tables"),
            ]
        ),
        facts(
            [
                ("Role", state_badge(data["role"])),
                (
                    "Leader",
                    tag("span", "none known", class_="muted") if not leader else node(leader),
                ),
                ("Term", data["term"]),
                ("Applied up to", f"operation {data['applied_index']}"),
                ("UUID", code(data["uuid"])),
                ("Cluster ID", code(data["cluster_id"] or DASH)),
            ]
        ),
        pages,
    )
