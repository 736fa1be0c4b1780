"""All nemeses on one page, each with its name, its description, and its faults in words.

In most partitions, clients still reach both sides. This matters because a leader that does not yet
know that it was deposed may give them stale answers. A few partitions whose sides are chosen by
role suffice to find most partition bugs (Majumdar and Niksic, POPL 2018, doi 10.1145/3158134).

Only a target that syncs before it answers must survive a power cut. By default, Kudu does not sync
(`log_force_fsync_all=false`).
"""

from __future__ import annotations

from harness.faults.nemesis_from_text import AimedNemesis
from harness.faults.schedules import Schedule
from nemesis.points import AtPoints

FLAPPING = Schedule(times=4)
ONE_BY_ONE = Schedule(nodes=3)

AT_POINTS = AtPoints()

# --- partitions ------------------------------------------------------------------------------

PARTITION_LEADER = AimedNemesis(
    "partition-leader", "cut the leader off from its peers; clients still reach both sides",
    "cut leader from members", "cut leader from others",
)  # fmt: skip
PARTITION_HALVES = AimedNemesis(
    "partition-halves", "cut the cluster into a majority and a minority half, drawn at random",
    "cut halves",
)  # fmt: skip
PARTITION_RANDOM_NODE = AimedNemesis(
    "partition-random-node", "cut one random node off from all others",
    "cut one from others",
)  # fmt: skip
PARTITION_RING = AimedNemesis(
    "partition-ring", "cut links so that each member hears a majority, and no two the same",
    "cut ring", suits_all=False,
)  # fmt: skip
PARTITION_BRIDGE = AimedNemesis(
    "partition-bridge", "cut the cluster into two halves; one member still reaches both",
    "cut bridge", suits_all=False,
)  # fmt: skip
PARTITION_ONE_WAY = AimedNemesis(
    "partition-one-way", "cut only what the leader sends, or only what it receives",
    "cut leader to members", "cut members to leader", suits_all=False,
)  # fmt: skip
PARTITION_PAIR = AimedNemesis(
    "partition-pair", "cut the leader off from one follower; the others reach both",
    "cut leader from follower", suits_all=False,
)  # fmt: skip
PARTITION_CLIENTS = AimedNemesis(
    "partition-clients", "cut the clients off from the leader, which its peers still reach",
    "cut client from leader", suits_all=False,
)  # fmt: skip
PARTITION_SOME_CLIENTS = AimedNemesis(
    "partition-some-clients", "cut only some clients off, or leave some on each side",
    "cut half@clients from leader", "cut one@clients from all", "cut halves with clients",
    "cut bridge with clients", suits_all=False,
)  # fmt: skip
PARTITION_FLAPPING = AimedNemesis(
    "partition-flapping", "cut the leader off and reconnect it, four times in a row",
    "cut leader from members", schedule=FLAPPING, suits_all=False,
)  # fmt: skip
PARTITION = AimedNemesis(
    "partition", "a partition of any kind, drawn again for each fault",
    "cut leader from members", "cut leader from others", "cut halves", "cut one from others",
    "cut ring", "cut bridge", "cut leader to members", "cut members to leader",
    "cut leader from follower", suits_all=False,
)  # fmt: skip

# --- kills, restarts and power cuts ----------------------------------------------------------

KILL_LEADER = AimedNemesis(
    "kill-leader", "kill the leader (SIGKILL); restart it later on its disk",
    "kill leader",
)  # fmt: skip
KILL_FOLLOWER = AimedNemesis(
    "kill-follower", "kill one member that does not lead; restart it later on its disk",
    "kill follower", suits_all=False,
)  # fmt: skip
KILL_RANDOM = AimedNemesis(
    "kill-random", "kill one random node (SIGKILL); restart it later on its disk",
    "kill one",
)  # fmt: skip
KILL_TSERVER = AimedNemesis(
    "kill-tserver", "kill one random tablet server (or other node that never leads)",
    "kill one@nonmembers", suits_all=False,
)  # fmt: skip
KILL_MAJORITY = AimedNemesis(
    "kill-majority", "kill as many members as a quorum needs; restart them later",
    "kill majority", suits_all=False,
)  # fmt: skip
KILL_ALL = AimedNemesis(
    "kill-all", "kill every node (SIGKILL) at once; restart all of them later",
    "kill all",
)  # fmt: skip
CRASH_LOOP = AimedNemesis(
    "crash-loop", "kill one random member as soon as it is back, four times in a row",
    "kill one@members", schedule=FLAPPING, suits_all=False,
)  # fmt: skip
SWIZZLE = AimedNemesis(
    "swizzle", "kill three nodes one by one; restart them in another order",
    "kill one", schedule=ONE_BY_ONE, suits_all=False,
)  # fmt: skip
KILL = AimedNemesis(
    "kill", "a kill of any kind, drawn again for each fault",
    "kill leader", "kill follower", "kill one", "kill majority", "kill all", suits_all=False,
)  # fmt: skip
RESTART_RANDOM = AimedNemesis(
    "restart-random", "stop one random node gracefully (SIGTERM); restart it later",
    "restart one", suits_all=False,
)  # fmt: skip
ROLLING_UPGRADE = AimedNemesis(
    "rolling-upgrade", "restart every node as the newer release of the target, one by one",
    "do rolling-upgrade on all", suits_all=False,
)  # fmt: skip
SET_FLAG = AimedNemesis(
    "set-flag", "set flags of Kudu's running servers, and set them back after some seconds",
    "do slow-log on leader", "do slow-log on one", "do slow-commits on one@members",
    "do slow-rows on one@nonmembers", "do slow-tablets on one@nonmembers",
    "do slow-heartbeats on one@nonmembers", "do hasty-elections on one", "do no-elections on one",
    "do no-pre-elections on all", "do deaf-followers on one", "do short-timeouts on one",
    suits_all=False,
)  # fmt: skip
POWER_CUT_LEADER = AimedNemesis(
    "power-cut-leader", "kill the leader, which loses its unsynced data; restart it later",
    "power-cut leader",
)  # fmt: skip
POWER_CUT_ALL = AimedNemesis(
    "power-cut-all", "kill every node at once, with loss of unsynced data; restart all later",
    "power-cut all",
)  # fmt: skip

# --- pauses ----------------------------------------------------------------------------------

PAUSE_LEADER = AimedNemesis(
    "pause-leader", "freeze the leader (SIGSTOP); thaw it later",
    "pause leader",
)  # fmt: skip
PAUSE_RANDOM = AimedNemesis(
    "pause-random", "freeze one random node (SIGSTOP); thaw it later",
    "pause one",
)  # fmt: skip
PAUSE_MAJORITY = AimedNemesis(
    "pause-majority", "freeze as many members as a quorum needs; thaw them later",
    "pause majority", suits_all=False,
)  # fmt: skip
PAUSE = AimedNemesis(
    "pause", "a pause of any kind, drawn again for each fault",
    "pause leader", "pause follower", "pause one", "pause majority", "pause all", suits_all=False,
)  # fmt: skip

# --- metastores over one database ------------------------------------------------------------

KILL_METASTORE = AimedNemesis(
    "kill-metastore", "kill one metastore (SIGKILL); restart it later",
    "kill one@hms", suits_all=False,
)  # fmt: skip
PAUSE_METASTORE = AimedNemesis(
    "pause-metastore", "freeze one metastore (SIGSTOP); thaw it later",
    "pause one@hms", suits_all=False,
)  # fmt: skip
PARTITION_METASTORE = AimedNemesis(
    "partition-metastore", "cut one metastore off from the database, or clients from a metastore",
    "cut one@hms from role:db", "cut client from one@hms", "cut half@clients from one@hms",
    suits_all=False,
)  # fmt: skip
KILL_DATABASE = AimedNemesis(
    "kill-database", "kill the database (SIGKILL); restart it later on its disk",
    "kill role:db", suits_all=False,
)  # fmt: skip
RESTART_DATABASE = AimedNemesis(
    "restart-database", "restart the database, gracefully or by SIGKILL, in the middle of a "
    "transaction, before its commit is sent",
    "restart role:db when event change-written", "kill role:db when event change-written",
    suits_all=False,
)  # fmt: skip
PAUSE_DATABASE = AimedNemesis(
    "pause-database", "freeze the database (SIGSTOP); thaw it later",
    "pause role:db", suits_all=False,
)  # fmt: skip
POWER_CUT_DATABASE = AimedNemesis(
    "power-cut-database", "kill the database, which loses its unsynced data; restart it later",
    "power-cut role:db", suits_all=False,
)  # fmt: skip

RESTART_METASTORES = AimedNemesis(
    "restart-metastores", "restart the metastores gracefully (SIGTERM), one by one",
    "do rolling-restart on role:hms", suits_all=False,
)  # fmt: skip
METASTORE_MEMBERSHIP = AimedNemesis(
    "metastore-membership", "add all unlisted metastores to the list, or remove one, under load",
    "do add-metastore on role:hms", "do remove-metastore on one@hms", suits_all=False,
)  # fmt: skip
KILL_ZOOKEEPER = AimedNemesis(
    "kill-zookeeper", "kill one server that keeps tokens (SIGKILL); restart it later",
    "kill one@zk", suits_all=False,
)  # fmt: skip
PAUSE_ZOOKEEPER = AimedNemesis(
    "pause-zookeeper", "freeze one server that keeps tokens (SIGSTOP); thaw it later",
    "pause one@zk", suits_all=False,
)  # fmt: skip
PARTITION_ZOOKEEPER = AimedNemesis(
    "partition-zookeeper", "cut one server that keeps tokens off from the metastores, or from all",
    "cut one@zk from role:hms", "cut one@zk from others", suits_all=False,
)  # fmt: skip

# --- bad links -------------------------------------------------------------------------------

SLOW_LINKS = AimedNemesis(
    "slow-links", "delay everything that members send to one of them by 150 to 250 ms",
    "shape members from one@members delay=200ms jitter=50ms", suits_all=False,
)  # fmt: skip
RESET_LINKS = AimedNemesis(
    "reset-links", "reset every connection between one random node and the others, again and again",
    "reset one from others", schedule=FLAPPING, suits_all=False,
)  # fmt: skip

# --- clocks, processors and disks -------------------------------------------------------------

CLOCK_JUMP = AimedNemesis(
    "clock-jump", "the wall clock of one random node jumps five seconds ahead or back",
    "clock one offset=5s", "clock one offset=-5s", suits_all=False,
)  # fmt: skip
CLOCK_DRIFT = AimedNemesis(
    "clock-drift", "the clocks of one random node run a tenth too fast or too slow",
    "clock one drift=100000ppm", "clock one drift=-100000ppm", suits_all=False,
)  # fmt: skip
CLOCK_STROBE = AimedNemesis(
    "clock-strobe", "the wall clock of one random node jumps ahead and back, twice a second",
    "clock one offset=2s strobe=250ms", suits_all=False,
)  # fmt: skip
CLOCK = AimedNemesis(
    "clock", "a clock that is wrong in any way, drawn again for each fault",
    "clock one offset=5s", "clock one offset=-5s", "clock leader offset=-60s",
    "clock one drift=100000ppm", "clock one drift=-100000ppm", "clock one offset=2s strobe=250ms",
    "clock all offset=1s", suits_all=False,
)  # fmt: skip
SLOW_CPU = AimedNemesis(
    "slow-cpu", "the processor of the leader, or of one random node, is ten times slower",
    "cpu leader factor=10", "cpu one factor=10", suits_all=False,
)  # fmt: skip
DISK_ERRORS = AimedNemesis(
    "disk-errors", "one in twenty requests to one node's disk fails (EIO); if the node exits, "
    "it is restarted later",
    "disk one error=5%", suits_all=False,
)  # fmt: skip
DISK_FULL = AimedNemesis(
    "disk-full", "one node's disk is full (ENOSPC) for a while",
    "disk one full=yes", suits_all=False,
)  # fmt: skip
SLOW_DISK = AimedNemesis(
    "slow-disk", "the disk of the leader, or of one random node, takes 100 ms per request",
    "disk leader delay=100ms", "disk one delay=100ms", suits_all=False,
)  # fmt: skip
SLOW_DISKS = AimedNemesis(
    "slow-disks", "the disks of all members take 100 ms per request, or all disks 20 ms",
    "disk members delay=100ms", "disk all delay=20ms", suits_all=False,
)  # fmt: skip
BIT_ROT = AimedNemesis(
    "bit-rot", "half of the blocks on the disk of the leader, or of one random node, get a flipped "
    "bit; the node is restarted on them, and restarted again later if it exits",
    "disk leader bitrot=50%", "disk one bitrot=50%", suits_all=False,
)  # fmt: skip
DISK = AimedNemesis(
    "disk", "a disk that is bad in any way, drawn again for each fault",
    "disk one error=5%", "disk leader error=100%", "disk one full=yes", "disk leader delay=100ms",
    "disk all delay=20ms", suits_all=False,
)  # fmt: skip
