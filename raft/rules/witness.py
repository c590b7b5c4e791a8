"""Witnesses: voters that keep index and term of the entries, and configurations, but no payloads.
(Idea: Paris 1986, "Voting with Witnesses"; in Raft: the witness replicas of TiKV and of Li's
thesis-based "extended Raft".)

A witness votes, acknowledges and renews leases like any voter; Raft's counting and its proof stay
as they are, since they speak of index and term only. What changes is what a majority is worth: two
data replicas and a witness are a majority with *one* copy of the payload. So all the care lies in
what a witness is sent, and when. The dangers, and what meets each:

W1  The leader and the witness commit while the other data replica is merely a little slow; the
    leader dies; the witness, whose log is longer, refuses the other replica its vote: two of three
    are alive, and the group stands still. So while enough data voters keep up to be a majority by
    themselves, a witness is sent *only what is committed*: it can hold nothing that the others
    lack. Only when they are too few (dead, cut off, or out of step: `progress`) does it get more.
W2  Two sites of two data replicas and a witness between: if the leader, its neighbour and the
    witness were enough, the loss of their site would strand the other. The same rule: three data
    voters keep up, so three of them must hold an entry; one of them is elsewhere.
W3  Entries leave before the leader's own sync (thesis 10.2.1). A witness that has an entry which
    its leader's disk forgot refuses that leader, restarted, its vote, for an entry that nobody has
    any more, or nobody who is there. So a witness gets only what is durable at everybody who keeps
    up, and that includes the leader: it counts up to its *synced* index.
W4  A leader that is cut off from all data voters could fill the witness with entries that can never
    commit, and the witness would then refuse the others. So an entry must be durable at so many
    data voters that the witnesses' acknowledgements commit it (`least`).
W5  A data voter that hangs, but answers heartbeats, must not stop commits for ever, nor one that
    needs minutes to catch up: "in step" is about the log, and it lasts one election timeout.
W6  A witness that leads would serve nothing and replicate nothings: it never campaigns, takes no
    transfer, and is no member of another kind before or after (rules/membership).
W7  A payload-less entry applied by a replica that keeps data would silently skip a command: such
    entries have a kind byte of their own, messages to witnesses say so, and either side refuses the
    other's.
W8  As many witnesses as data voters could make a majority without any data: refused.

What remains, and is inherent: while only one data replica of two keeps up, a commit has one copy;
lose that disk too, and the entries are gone; lose that node for a while, and the group waits for
it. `RaftHost.force_members` is the operator's way out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raft.records import CONFIG, WITHHELD, Entry
from raft.rules.membership import Membership


def least(voters: int, witnesses: int) -> int:
    """So many data voters must hold an entry before acknowledgements of all witnesses commit it."""
    return voters // 2 + 1 - witnesses


def bound(
    config: Membership,
    *,
    commit_index: int,
    in_step: Sequence[int],
    others: Sequence[int],
) -> int:
    """Up to which index a witness may be sent the log.

    `in_step`: what is durable at each data voter that keeps up, the leader with its synced index
    among them; `others`: the same of the rest.
    """
    if len(in_step) >= len(config.voters) // 2 + 1:
        return commit_index
    copies = least(len(config.voters), len(config.witnesses))
    held = sorted([*in_step, *others], reverse=True)
    return max(commit_index, min(*in_step, held[copies - 1]))


def without_payloads(
    first: int,
    last: int,
    *,
    term_at: Callable[[int], int | None],
    configs: Sequence[Membership],
) -> list[Entry]:
    """Entries first..last as a witness keeps them. Needs no payload, hence reads no disk."""
    whole = {config.index: CONFIG + config.encode() for config in configs}
    entries = []
    for index in range(first, last + 1):
        term = term_at(index)
        assert term is not None, f"{index} lies outside of the log"
        entries.append((whole.get(index, WITHHELD), index, term))
    return entries
