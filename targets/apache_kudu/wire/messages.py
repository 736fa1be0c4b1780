"""The headers of Kudu's RPC, and messages that several methods share.

Only the fields in use are declared. Their numbers are taken from Kudu 1.16 to 1.18:
`rpc/rpc_header.proto`, `common/common.proto`, `common/wire_protocol.proto` and
`consensus/metadata.proto`.
"""

from __future__ import annotations

from typing import Final

from targets.apache_kudu.wire.protobuf import (
    Message,
    bool_,
    bytes_,
    int_,
    many,
    nested,
    text,
    uint,
)

# --- headers ----------------------------------------------------------------------------------

REMOTE_METHOD: Final = Message("RemoteMethod", service=text(1), method=text(2))
REQUEST_ID: Final = Message(
    "RequestId", client_id=text(1), seq_no=int_(2), first_incomplete=int_(3), attempt_no=int_(4)
)
REQUEST_HEADER: Final = Message(
    "RequestHeader",
    call_id=int_(3),
    remote_method=nested(6, REMOTE_METHOD),
    timeout_ms=uint(10),
    required_features=many(uint(11)),
    request_id=nested(15, REQUEST_ID),
)
RESPONSE_HEADER: Final = Message(
    "ResponseHeader", call_id=int_(1), is_error=bool_(2), sidecar_offsets=many(uint(3))
)
RPC_ERROR: Final = Message("ErrorStatus", message=text(1), code=uint(2))
EMPTY: Final = Message("Empty")
NEGOTIATE: Final = Message(
    "Negotiate",
    supported_features=many(uint(1)),
    step=uint(2),
    token=bytes_(3),
    sasl_mechanisms=many(nested(4, Message("SaslMechanism", mechanism=text(2)))),
    authn_types=many(nested(7, Message("AuthenticationType", sasl=nested(1, EMPTY)))),
)

# --- common -----------------------------------------------------------------------------------

STATUS: Final = Message("AppStatus", code=uint(1), message=text(2))
ERROR: Final = Message("Error", code=uint(1), status=nested(2, STATUS))
"""`MasterErrorPB` and `TabletServerErrorPB`, which have the same fields."""
HOST_PORT: Final = Message("HostPort", host=text(1), port=uint(2))
COLUMN: Final = Message(
    "Column", id=uint(1), name=text(2), type=uint(3), is_key=bool_(4), is_nullable=bool_(5)
)
SCHEMA: Final = Message("Schema", columns=many(nested(1, COLUMN)))
_COLUMN_ID: Final = Message("ColumnIdentifier", id=int_(1), name=text(2))
PARTITION_SCHEMA: Final = Message(
    "PartitionSchema",
    hash_schema=many(
        nested(
            1,
            Message(
                "HashBucketSchema",
                columns=many(nested(1, _COLUMN_ID)),
                num_buckets=int_(2),
                seed=uint(3),
            ),
        )
    ),
    range_schema=nested(2, Message("RangeSchema", columns=many(nested(1, _COLUMN_ID)))),
)
PARTITION: Final = Message("Partition", start=bytes_(2), end=bytes_(3))
ROW_OPERATIONS: Final = Message("RowOperations", rows=bytes_(2), indirect_data=bytes_(3))
PEER: Final = Message(
    "RaftPeer",
    uuid=text(1),
    member_type=uint(2),
    address=nested(3, HOST_PORT),
    attrs=nested(4, Message("RaftPeerAttrs", promote=bool_(1), replace=bool_(2))),
    health=nested(5, Message("HealthReport", overall=uint(1))),
)
RAFT_CONFIG: Final = Message("RaftConfig", opid_index=int_(1), peers=many(nested(3, PEER)))
CONSENSUS_STATE: Final = Message(
    "ConsensusState",
    current_term=int_(1),
    leader_uuid=text(2),
    committed_config=nested(3, RAFT_CONFIG),
    pending_config=nested(4, RAFT_CONFIG),
)
INSTANCE: Final = Message("NodeInstance", uuid=text(1), seqno=int_(2))
REGISTRATION: Final = Message(
    "ServerRegistration",
    rpc_addresses=many(nested(1, HOST_PORT)),
    software_version=text(3),
    start_time=int_(5),
)
ERROR_ONLY: Final = Message("ErrorResponse", error=nested(1, ERROR))
