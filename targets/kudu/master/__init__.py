"""The masters: a replicated catalog of tables and tablets.

From the bottom up: `records` (the stored records), `system_tablet` (the replicated state machine),
`catalog` (the leader's maps), `create`, `alter`, `delete`, `reports`, `placement` and `assignment`
(pure planners: state and a request in; new records and follow-up calls, or an error, out), `reads`
(pure answers), then the shell: `epoch` (one term of leadership), `leadership` (elections and
loading), `ddl`, `heartbeats`, `background`, `tasks`, `service` and `node`.
"""
