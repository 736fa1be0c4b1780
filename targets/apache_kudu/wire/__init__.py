"""A client of real Kudu over Kudu's own RPC, without dependencies and without hidden retries.

`rpc.WireRpc` takes the requests of the bundled target. `tables`, `members` and `tablets` translate
them. `session` proves in which term an answer was given. `errors` says what each error proves.
`messages` and `methods` declare Kudu's RPC for the codec `protobuf`. `rows` packs rows, `frames`
builds frames, and `connection` sends and receives them.
"""

from targets.apache_kudu.wire.rpc import WireRpc

__all__ = ["WireRpc"]
