"""The server's side of Kudu's RPC, in front of bundled servers, for Kudu's own clients.

`server` listens once per bundled server, shakes hands and answers calls on each connection
(`link`); `masters`, `tablets` and `groups` translate the calls to the bundled RPC, and `errors`
names failures as Kudu does. `system` puts all of it in front of a deployment.
"""
