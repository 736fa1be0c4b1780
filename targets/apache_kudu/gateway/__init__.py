"""The server's side of Kudu's RPC, in front of bundled servers, for Kudu's own clients.

`server` listens once per bundled server, shakes hands and answers calls on each connection
(`link`). `masters`, `tablets` and `groups` translate the calls to the bundled RPC. `errors` reports
failures under Kudu's names. `system` is a deployment with a gateway in front of it.
"""
