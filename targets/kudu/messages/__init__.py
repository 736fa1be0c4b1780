"""Every message of the bundled target's services, after Kudu's `master.proto` and `tserver*.proto`.

Messages are msgpack arrays (`array_like`), and both ends use these classes. Services and methods
keep Kudu's names (`MasterService.CreateTable`). This target adds to every answer of a master the
`term`, the `revision` (index of the last system-tablet operation that the answer reflects) and the
`master_uuid`. It adds to every DDL request a `request_id`, which makes DDL exactly-once in profile
`strict` (Kudu's DDL requests have no ids: KUDU-1537).
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
