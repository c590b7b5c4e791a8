"""What all replicas of one group must agree on; fed by every replica at every event, so that a
disagreement shows at once.

| invariant | told by | Raft |
|---|---|---|
| one leader per term | `leads` | 5.2 election safety |
| log matching: equal (index, term), equal entry and predecessor | `wrote` | 5.3 |
| leader completeness: it holds what was committed before its term | `leads`, `commits` | 5.4 |
| a committed entry never changes | `commits` | 5.4.3 |
| state machine safety: equal state at equal applied index | `applies` | 5.4.3 |
| durable votes: one candidate per voter and term, over crashes | `votes` | 5.2 |
| no acknowledged command lost; none executed twice | `applies`, `at_the_end` | 8 |
| what was called certainly not executed never is | `refused`, `applies` | – |
| reads are linearizable: none is older than what was known when it began | `serves` | 8 |
| equal snapshot ids mean equal bytes | `chunk` | 7 |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.sim.raft.disk import UNKNOWN_PAYLOAD, LogView, Stamp
from tests.sim.raft.probes import probes

Leaders = list[tuple[int, int, LogView]]
OPEN, DONE, REFUSED, UNKNOWN = "open", "acknowledged", "refused", "unknown"


@dataclass(eq=False, slots=True)
class Proposal:
    """A client's command, and what the client was told of it."""

    number: int
    node: int
    life: int
    index: int = 0
    state: str = OPEN


class Truth:
    """See the module. `fail(text)` records a violation; the first one counts."""

    def __init__(self, group_id: int, fail: Callable[[str], None]) -> None:
        self.group_id, self._fail = group_id, fail
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, Stamp] = {}
        self.top = 0
        """The last index that anybody saw committed."""
        self.floor = 0
        """The last index that a client knows of: acknowledged, or read."""
        self.proposals: dict[int, Proposal] = {}
        self._commit_term: dict[int, int] = {}
        self._entries: dict[tuple[int, bytes], int | None] = {}
        self._terms: dict[tuple[int, bytes], Stamp] = {}
        self._hashes: dict[int, int] = {0: 0}
        self._votes: dict[tuple[int, int], int] = {}
        self._executed: dict[int, int] = {}
        self._chunks: dict[tuple[tuple[int, ...], int], int] = {}

    def fail(self, what: str) -> None:
        self._fail(f"group {self.group_id}: {what}")

    # ------------------------------------------------------------------ the log

    def wrote(self, node: int, index: int, stamp: Stamp, term_before: int | None) -> None:
        """A replica put an entry into its log."""
        key = (index, stamp[4:])
        known = self._terms.get(key, stamp)
        if stamp[:4] != UNKNOWN_PAYLOAD:
            self._terms[key] = stamp
        if not _same(known, stamp):
            term = int.from_bytes(stamp[4:], "big")
            self.fail(f"log matching: two entries at index {index} of term {term} (node {node})")
        if term_before is None:
            return
        before = self._entries.setdefault(key, term_before)
        if before != term_before:
            self.fail(
                f"log matching: the entry before index {index} has term {before} and, on node "
                f"{node}, {term_before}"
            )

    def commits(
        self,
        node: int,
        term: int,
        index: int,
        stamp: Stamp,
        leaders: Leaders,
    ) -> None:
        """A replica of this term holds entry `index` for committed. `leaders`: (node, term, log) of
        all that lead now; one of a later term may be in office already.
        """
        known = self.committed.get(index)
        if known is None:
            if stamp[:4] == UNKNOWN_PAYLOAD:
                self.fail(f"witness {node} knows of commit {index} before anybody with the data")
            self.committed[index], self._commit_term[index] = stamp, term
            if index > self.top:
                self.top = index
            for leader, leader_term, log in leaders:
                if leader_term > term:
                    self._complete(leader, leader_term, log, index)
        elif not _same(known, stamp):
            was, now = int.from_bytes(known[4:], "big"), int.from_bytes(stamp[4:], "big")
            self.fail(f"committed entry {index} changed on node {node}: term {was}, now {now}")

    def leads(self, node: int, term: int, log: LogView) -> None:
        """A replica took office."""
        probes.hit("elections")
        other = self.leaders.setdefault(term, node)
        if other != node:
            self.fail(f"two leaders in term {term}: nodes {other} and {node}")
        index = self.top  # what was committed in the same term, or a later one, need not be here
        while index > 0 and self._commit_term.get(index, term) >= term:
            index -= 1
        self._complete(node, term, log, index)

    def _complete(self, node: int, term: int, log: LogView, index: int) -> None:
        if index <= log.base[0]:
            return
        stamp = self.committed.get(index)
        if stamp is not None and log.stamps.get(index) != stamp:
            self.fail(
                f"leader completeness: node {node}, leader of term {term}, lacks the committed "
                f"entry {index}"
            )

    def votes(self, node: int, term: int, candidate: int) -> None:
        """A vote (or a candidate's request, which is its vote for itself) leaves the node."""
        other = self._votes.setdefault((node, term), candidate)
        if other != candidate:
            self.fail(f"node {node} voted in term {term} for node {other} and node {candidate}")

    # ------------------------------------------------------------------ the state

    def applies(self, node: int, index: int, hash_: int, number: int | None) -> None:
        """A replica applied entry `index` and has this state now; `number`: the command's."""
        if self._hashes.setdefault(index, hash_) != hash_:
            self.fail(f"state machines differ at applied index {index} (node {node})")
        if number is None:
            return
        first = self._executed.setdefault(number, index)
        if first != index:
            self.fail(f"command {number} was executed at {first} and at {index}")
        if self.proposals[number].state == REFUSED:
            self.fail(f"command {number}, called certainly not executed, was at {index}")

    def installs(self, node: int, index: int, hash_: int) -> None:
        if self._hashes.setdefault(index, hash_) != hash_:
            self.fail(f"node {node} installed another state than the one at {index}")

    def chunk(self, snapshot: tuple[int, ...], number: int, checksum: int) -> None:
        if self._chunks.setdefault((snapshot, number), checksum) != checksum:
            self.fail(f"chunk {number} of snapshot {snapshot} has two contents")

    # ------------------------------------------------------------------ clients

    def acknowledged(self, proposal: Proposal, index: int) -> None:
        self._answered(proposal, DONE)
        probes.hit("acknowledged")
        if index != proposal.index:
            self.fail(f"command {proposal.number} was put at {proposal.index}, applied at {index}")
        self.floor = max(self.floor, index)

    def refused(self, proposal: Proposal) -> None:
        """The client was told that the command was certainly not executed."""
        self._answered(proposal, REFUSED)
        if proposal.number in self._executed:
            index = self._executed[proposal.number]
            self.fail(f"command {proposal.number}, executed at {index}, is called not executed")

    def unknown(self, proposal: Proposal) -> None:
        self._answered(proposal, UNKNOWN)
        probes.hit("outcome unknown")

    def _answered(self, proposal: Proposal, state: str) -> None:
        if proposal.state != OPEN:
            self.fail(f"command {proposal.number} was answered twice: {proposal.state}, {state}")
        proposal.state = state

    def serves(self, node: int, floor: int, index: int, how: str) -> None:
        """A read that began when clients knew of `floor` is answered with the state at `index`."""
        if index < floor:
            self.fail(
                f"stale read ({how}) on node {node}: state at {index}, but {floor} was "
                "acknowledged or read before it began"
            )
        self.floor = max(self.floor, index)

    def at_the_end(self) -> None:
        """After healing, when a leader has applied beyond `floor`: every acknowledgement holds."""
        for proposal in self.proposals.values():
            if proposal.state == DONE and self._executed.get(proposal.number) != proposal.index:
                self.fail(f"acknowledged command {proposal.number} is lost")


def _same(one: Stamp, other: Stamp) -> bool:
    return one == other or (one[4:] == other[4:] and UNKNOWN_PAYLOAD in (one[:4], other[:4]))
