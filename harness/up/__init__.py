"""Long-lived clusters: `harness up` starts one, and it exists until `harness down`.

A deployment belongs to a process. When that process is killed, its warden undoes the deployment. So
a long-lived cluster has a process of its own, its *holder* (`holder`), which outlives the command
that started it. The holder runs an environment like a run, but without a workload. It opens a
socket (`control_socket`) through which other commands inject faults (`cluster`) or end the cluster.
The cluster's state is in a folder of the user (`records`).
"""
