"""Sample dumps of nodes, and the text of pages without markup."""

import json
from html.parser import HTMLParser

from harness.env import Address
from targets.kudu.messages import PeerConfig, RaftConfig

START_NS = 1_700_000_000_000_000_000
UUIDS = [f"{number:032x}" for number in range(1, 10)]
HOSTILE = "<script>alert('&\"')</script>" + "x" * 200


def page_of(address, port):
    return f"http://{address.rpartition(':')[0]}:{port}"


def config(*member_types, opid_index=7):
    """Build a configuration of masters m1, m2, ... with these member types."""
    peers = [PeerConfig(UUIDS[i], f"m{i + 1}:7051", kind) for i, kind in enumerate(member_types)]
    return RaftConfig(opid_index, tuple(reversed(peers)))


def table(number, *, name=None, state="RUNNING", **changes):
    columns = [{"id": 0, "name": "key", "type": "STRING", "is_key": True}]
    return {
        "id": f"{number:032x}",
        "name": f"t{number}" if name is None else name,
        "state": state,
        "state_msg": "",
        "version": 3,
        "applied_version": 3,
        "columns": columns,
        "applied_columns": columns,
        "next_column_id": 1,
        "num_replicas": 3,
        "num_hash_buckets": 2,
        "owner": "",
        "comment": "",
        "create_ns": START_NS,
        "alter_ns": 0,
        "delete_ns": 0,
    } | changes


def tablet(number, table_number, *, state="RUNNING", leader=0, start=""):
    peers = [
        {"uuid": UUIDS[i], "address": f"t{i + 1}:7050", "member_type": "VOTER"} for i in (0, 1)
    ]
    consensus = {"term": 4, "leader_uuid": UUIDS[leader], "opid_index": -1, "peers": peers}
    return {
        "id": f"{number:032x}",
        "table_id": f"{table_number:032x}",
        "state": state,
        "state_msg": "",
        "start": start,
        "end": "",
        "consensus": consensus if state == "RUNNING" else None,
    }


def tserver(number, *, silent_ms=10):
    return {
        "uuid": UUIDS[number - 1],
        "address": f"t{number}:7050",
        "millis_since_heartbeat": silent_ms,
        "num_live_tablets": 5,
        "in_maintenance": number == 2,
    }


def raft(*, role="FOLLOWER", leader=0):
    return {
        "role": role,
        "term": 4,
        "leader_uuid": UUIDS[leader],
        "commit_index": 9,
        "applied_index": 8,
        "last_index": 10,
        "committed_config_index": -1,
        "elections": {"started": 2, "won": 1},
        "counters": {"log bytes": 123},
        "config": {
            "opid_index": 7,
            "peers": [{"uuid": UUIDS[i], "address": f"m{i + 1}:7051"} for i in range(3)],
        },
        "peer_health": {UUIDS[0]: "FAILED"} if role == "LEADER" else {},
    }


def master_dump(**changes):
    return {
        "uuid": UUIDS[1],
        "role": "FOLLOWER",
        "term": 4,
        "ready": False,
        "raft": raft(),
        "revision": 8,
        "cluster_id": "c" * 32,
        "tables": [],
        "tablets": [],
        "truncated": {"tables": 0, "tablets": 0},
        "tservers": [],
        "tasks": 2,
        "replies": {"kept": 3, "forgotten": 0},
        "calls": {"MasterService.CreateTable": 3},
    } | changes


class _Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.said, self.tags, self.links, self.hidden = [], [], [], 0

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.hidden += tag == "style"
        self.links += [value for name, value in attrs if name == "href"]

    def handle_endtag(self, tag):
        self.hidden -= tag == "style"

    def handle_data(self, data):
        if not self.hidden:
            self.said.append(data)


def read(html):
    """Return the text, the tags and the links of a page."""
    parser = _Text()
    parser.feed(html.decode() if isinstance(html, bytes) else html)
    parser.close()
    return " ".join(" ".join(parser.said).split()), parser.tags, parser.links


async def get(env, node, target, **options):
    port = 8051 if node.startswith("m") else 8050
    response = await env.get_page(Address(node, port), target, **options)
    assert response.status == 200, response
    is_json = response.content_type == "application/json"
    return json.loads(response.body) if is_json else response.body
