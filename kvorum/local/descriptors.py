"""File descriptors of this process: as many as the system allows, and a share that clients never
get.

The soft limit is raised to the hard one: 1,024, as many systems set it for old programs' sake
(select(2)), is a few hundred clients away from a database that cannot open its files.
"""

from __future__ import annotations

import resource
from typing import Final

from kv.base.connection_slots import Seats

RESERVED: Final = 1_280
"""For two databases of 512 open files each, logs, peers, the oracle, pipes of processes."""
_ENOUGH: Final = 1 << 20  # where the hard limit is infinity, or a billion


def raise_limit() -> int:
    """The soft limit is the hard one from now on; returns it. It stays where it was if the system
    does not allow that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _ENOUGH if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):
        return soft
    return wanted


def seats(limit: int) -> Seats:
    """Of a process with so many descriptors: at least half of them, where they are few."""
    return Seats(max(limit - RESERVED, limit // 2))
