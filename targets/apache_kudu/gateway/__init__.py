"""A gateway that speaks Kudu's RPC, so that Kudu's own clients can use bundled servers.

`server` listens once per bundled server, shakes hands and answers calls on each connection
(`link`). `masters`, `tablets` and `groups` translate the calls to the bundled RPC. `errors` reports
failures under Kudu's names. `system` is a deployment with a gateway in front of it.
"""
