"""Timestamps that a command claims: its caller says that the oracle gave them out.

One that it has not given out yet would be a version, a bound or a record from the future: all later
writers of the key, or of the whole partition, would be refused until the clock is there. So none is
believed that is not below a timestamp that came after the request:

    commands that get a timestamp of their own    compare with that (Evaluator._command)
    others                                        with the highest that this process has heard of;
                                                  above it the oracle is asked once, and they are
                                                  compared with its answer (PartitionMachine)

Which arguments these are is in the table of verbs (`Verb.claims`); FINISH has them in its rows.
Reads compare by themselves (kv/partition/reader.py). With hybrid clocks nobody knows what all the
others have handed out: the clock of whoever takes the command is moved above what it claims, as far
as that is near (tso/hybrid.py).
"""

from __future__ import annotations

from typing import Final

from kv.base.methods import FINISH, NEEDS_TIMESTAMP, PARTITION_VERBS, READS
from kv.base.wire_row import WireRow

_AT: Final = {
    verb.number: verb.claims
    for verb in PARTITION_VERBS
    if verb.claims and verb.number not in READS | NEEDS_TIMESTAMP
}
CLAIMING: Final = frozenset({*_AT, FINISH})
"""Commands that claim timestamps and get none of their own."""


_SAID: Final = {
    verb.number: verb.claims for verb in PARTITION_VERBS if verb.claims and verb.number not in READS
}


def said(r: WireRow) -> int:
    """The highest timestamp that a checked command says was handed out, 0 for none."""
    if r[1] == FINISH:
        return claimed(r)
    return max((r[at] for at in _SAID.get(r[1], ())), default=0)


def claimed(r: WireRow) -> int:
    """The highest timestamp that a checked request of CLAIMING says was handed out."""
    said: list[int]
    if r[1] == FINISH:
        said = [commit_ts for _, _, commit_ts, _ in r[5]]  # above its start
    else:
        said = [r[at] for at in _AT[r[1]]]
    return max(said)


def claims_above(r: list[object], known: int) -> bool:
    """Whether it claims a timestamp above `known`, and gets none of its own to compare with."""
    return r[1] in CLAIMING and claimed(r) > known
