"""The messages of the bundled target's services, after Kudu's `master.proto` and `tserver*.proto`.

Messages are msgpack arrays (`array_like`). Services and methods keep Kudu's names
(`MasterService.CreateTable`). Two things are not in Kudu. Every answer of a master has the `term`,
the `revision` (index of the last system-tablet operation that the answer reflects) and the
`master_uuid`. Every DDL request has a `request_id`, which makes DDL exactly-once in the profile
`strict` (KUDU-1537).
"""

from __future__ import annotations

from targets.kudu.messages.admin import *
from targets.kudu.messages.base import *
from targets.kudu.messages.cluster import *
from targets.kudu.messages.ddl import *
from targets.kudu.messages.generic import *
from targets.kudu.messages.masters import *
from targets.kudu.messages.reads import *
from targets.kudu.messages.rows import *
from targets.kudu.messages.schema import *
