"""Which entry to send a follower next: Raft section 5.3, with the fixes P4, P10 and P14.

Invariants
  * an acknowledgement never pulls `next` back below what is in flight (P4: retransmission storms);
  * `next` never exceeds the leader's end + 1 (P10: a follower with a longer tail asks beyond it);
  * after a rejection the follower is *probed*: one message at a time, `next` only downwards, until
    one succeeds. With messages pipelined to a follower whose log differs, the later rejections
    would raise `next` again, for ever (P14).
"""

from __future__ import annotations


class Backoff:
    """The set of followers that are being probed, and the rule for `next`."""

    def __init__(self) -> None:
        self._probing: set[int] = set()

    def clear(self) -> None:
        self._probing.clear()

    def is_probing(self, peer: int) -> bool:
        return peer in self._probing

    def forget(self, peer: int) -> None:
        self._probing.discard(peer)

    def next_index(
        self, peer: int, *, old: int, asked: int, match: int, last: int, rejected: bool
    ) -> int:
        """The next index for `peer` after its reply.

        `old` was next before the reply, `asked` is what the reply asks for, `match` its verified
        index, `last` our end.
        """
        if rejected:
            chosen = min(old, asked) if peer in self._probing else asked
            self._probing.add(peer)
        else:
            chosen = max(old, asked)
            self._probing.discard(peer)
        return min(max(chosen, match + 1), last + 1)
