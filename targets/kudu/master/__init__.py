"""The masters: a replicated catalog of tables and tablets.

The lowest modules are `records` (the stored records), `sys_catalog` (the replicated state machine)
and `catalog_state` (the leader's maps). Above are the planners `create`, `alter`, `tablet_reports`,
`replacement` and `assignment`: pure functions of the state and a request, which return new records
and follow-up calls, or an error. `reads` computes answers. The shell consists of `leader_term` (one
term of leadership), `leadership` (elections and loading), `catalog_manager`, `heartbeats`,
`background`, `async_rpc_tasks`, `master_service` and `node`.
"""
