"""Python's search for reference cycles, and its threads, in a process that serves.

Nearly everything here dies with its last reference; the search is for what refers to itself, an
exception and its frame, say. By default Python searches whenever 700 more containers live than at
the last search. Some hundred requests in flight are more than that, so every wave of them was
searched, mostly twice: 8 % of the CPU of a node under point SELECTs, for nothing found.

Invariant: whoever refers to itself is found after YOUNG_MAX more containers at the latest; if it
had survived a search before, after _OLDER or, when it is old, _OLDER² times as many and only when
the old ones grew by a quarter. What is large must not be held by such a cycle.

Threads: the loop lets go of the interpreter at each system call, and who computes in a thread (SQL
functions that DuckDB calls) kept it for 5 ms each time, several times for each request.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

YOUNG_MAX: Final = 10_000  # containers; a search of so many takes less than a millisecond
SWITCH_S: Final = 0.000_5  # that a thread computes on when another one waits for the interpreter
_OLDER: Final = 10  # searches of the young until those that survived are searched again


def calm() -> None:
    """To be called once, when a process is about to serve: what start-up made stays for ever, so
    it is never searched again, and younger ones are searched when they are many. And threads take
    turns sooner.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, _OLDER, _OLDER)


def release() -> None:
    """Behind the last service: Python takes down what it made, and libraries are told so (what is
    never searched is never taken down, and they complain on stderr).
    """
    gc.unfreeze()
