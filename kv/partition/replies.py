"""How one partition answers: rows to connections, and refusals in their words.

A reply given here goes out at the end of this pass of the loop (scheduler.py). What has to wait
until an entry is applied hangs on that entry instead (evaluator.py). Invariant: whoever is refused
here while he waits for a key is taken out of its queue, so that nobody is answered twice.
"""

from __future__ import annotations

from kv.base.errors import Corruption, KeyLocked, KvorumError, to_wire
from kv.base.members import Members
from kv.partition.admission import Item
from kv.partition.answers import not_leader
from kv.partition.counters import PartitionCounters
from kv.partition.evaluated_state import Evaluated
from kv.partition.ports import Connection, ReplicaPort
from kv.partition.scheduler import Scheduler
from kv.partition.waits import Waiting


class Replies:
    """`waits` is set once, by the machine that makes both."""

    __slots__ = ("_counters", "_members", "_replica", "_scheduler", "_view", "waits")
    waits: Waiting

    def __init__(
        self,
        view: Evaluated,
        replica: ReplicaPort,
        scheduler: Scheduler,
        counters: PartitionCounters,
        members: Members,
    ) -> None:
        self._view, self._replica, self._members = view, replica, members
        self._scheduler, self._counters = scheduler, counters

    def answer(self, conn: Connection, row: list[object]) -> None:
        try:
            conn.reply(row)
        except Exception as error:  # noqa: BLE001 - the boundary: the pass is not this connection's
            self._scheduler.faults.note(error, "a reply")
            return
        self._scheduler.dirty[conn] = None
        self._scheduler.wake()

    def refuse(self, item: Item, error: KvorumError) -> None:
        self._counters.refused += 1
        if self.waits.by_key:
            self.waits.forget(item)
        self.answer(item[0], [item[1][0], 1, *self.error_fields(error)])

    def refuse_all(self, items: list[Item], error: KvorumError) -> None:
        self._counters.refused += len(items)
        fields = self.error_fields(error)
        if self.waits.by_key:
            for item in items:
                self.waits.forget(item)
        for conn, r in items:
            self.answer(conn, [r[0], 1, *fields])

    def error_fields(self, error: KvorumError) -> list[object]:
        """The fields of a refusal. Damage is this replica's own matter while another one has what
        was asked for: the request was not executed, and is sent there. So is a read that met an
        intent at a replica that does not lead: what became of it may be in the leader's log.
        """
        replica = self._replica
        if isinstance(error, Corruption) and (replica.damaged(error) or not replica.leads()):
            error = not_leader(self._view.descriptor, None, self._members)
        elif isinstance(error, KeyLocked) and not replica.leads():
            error = self.not_leader()
        return to_wire(error)

    def not_leader(self) -> KvorumError:
        return not_leader(self._view.descriptor, self._replica.leader_hint(), self._members)
