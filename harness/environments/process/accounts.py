"""The account of a node: another one where the harness is root, else the harness's own.

Some programs refuse to run as root (PostgreSQL does); a harness that is not root cannot run
anything as anybody else, and need not. The change is made by system calls between fork and exec,
so there is no other program between us and the node.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple

from harness.errors import UsageError


class Account(NamedTuple):
    """An account of this machine."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    environment: dict[str, str]

    def own(self, folder: Path) -> None:
        """Give the folder to the account."""
        os.chown(folder, self.uid, self.gid)


def account_of(user: str | None) -> Account | None:
    """The account of a node that declares `user`; `None` means the harness's own.

    Raises `UsageError` where this machine has no such account.
    """
    if user is None or os.geteuid() != 0:
        return None
    name, _, group = user.partition(":")
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
        if group and not group.isdigit():
            raise UsageError(
                f"the user {user!r} has a group by name; in processes write its number, or none"
            )
    except KeyError:
        raise UsageError(
            f"there is no user {name!r} on this machine, as whom a node is to run; create it "
            f"(useradd --system {name}), or use --env docker"
        ) from None
    gid = int(group) if group else entry.pw_gid
    groups = tuple(os.getgrouplist(entry.pw_name, gid))
    variables = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    return Account(entry.pw_uid, gid, groups, variables)
