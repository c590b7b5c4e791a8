"""Who holds which resource, and who waits for it: shared and exclusive locks in memory. Pure.

The table of one executor. What makes a grant outlive the executor is in the procedure's record
(docs/decisions/0403): a new executor fills its table by `restore` before anything runs.

Rules:
- a procedure takes all its locks at once, or none; so those who wait hold nothing. It waits in the
  queue of each of its resources under one ticket, its place in all of them;
- it may take them when nobody else holds one in a way that conflicts, and nobody who came earlier
  waits for one in a way that conflicts. So the order is first come first served, except that shared
  ones enter together, and nobody who comes later starves one who waits;
- locks of its ancestors do not conflict (Moss, Nested Transactions, 1981): they wait for it. Its
  brothers' do. Where an ancestor holds a resource, it does not queue after strangers, who wait for
  that ancestor anyway;
- nobody polls. `release` says who may now try again, and evaluates only those whom this release
  could help.

Circles: declared locks alone make none, for all are taken at once. A child may, though: it waits
for a holder, one of whose children waits for an ancestor of this one. Everybody in a circle waits
for the next: for a holder, for one who came earlier (a mere matter of order), or for a descendant.
Where one of the circle waits only for the order, that one may pass the other, and the circle is
gone (PostgreSQL's soft edges, src/backend/storage/lmgr/README). Otherwise `wait` answers the
circle, and the one who asked is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from procedures.engine.resources import EXCLUSIVE, SHARED, Locks, closure

_WALK_MAX: Final = 20_000  # edges looked at for one circle; a larger one is left for people to see


class Link(NamedTuple):
    """`waiter` waits for `blocker` because of `resource`; `order`: only because that came earlier.
    `resource` "": the blocker is its descendant.
    """

    waiter: int
    resource: str
    blocker: int
    order: bool


class _Resource:
    """Kept while somebody holds it or waits for it, however many: nothing walks over them."""

    __slots__ = ("exclusive", "held_exclusive", "held_shared", "shared")

    def __init__(self) -> None:
        self.held_exclusive: dict[int, None] = {}  # several: one and its descendants
        self.held_shared: dict[int, None] = {}
        self.exclusive: OrderedDict[int, int] = OrderedDict()  # who waits → ticket, rising
        self.shared: OrderedDict[int, int] = OrderedDict()

    @property
    def idle(self) -> bool:
        return not (self.held_exclusive or self.held_shared or self.shared or self.exclusive)

    def holders(self, mode: str) -> Iterator[int]:
        """Those who stand in the way of a lock in this mode."""
        return chain(self.held_exclusive, self.held_shared if mode == EXCLUSIVE else ())

    def queues(self, mode: str) -> Iterator[OrderedDict[int, int]]:
        """Those who wait for a lock that conflicts with one in this mode."""
        return iter((self.exclusive, self.shared) if mode == EXCLUSIVE else (self.exclusive,))

    def has(self, id: int) -> bool:
        return id in self.held_exclusive or id in self.held_shared


class LockTable:
    """See the module. Ids are those of procedures; 0 is none."""

    def __init__(self) -> None:
        self._resources: dict[str, _Resource] = {}
        self._held: dict[int, Locks] = {}
        self._waiting: dict[int, tuple[int, Locks]] = {}  # → ticket, locks
        self._tickets = 0
        self._parents: dict[int, int] = {}  # of those that have one
        self._below: dict[int, dict[int, None]] = {}  # ancestor → descendants that wait
        self._passes: dict[int, set[int]] = {}  # who waits → whom it need not wait for

    # ---------------------------------------------------------------------- taking
    def introduce(self, id: int, parent: int) -> None:
        """Parents are known before their children ask for anything."""
        if parent:
            self._parents[id] = parent

    def take(self, id: int, locks: Locks) -> bool:
        """Take them all if that is possible now; also for one that waits. True when it has them."""
        if id in self._held:
            return True
        wanted = self._waiting[id][1] if id in self._waiting else closure(locks)
        if next(self._blockers(id, wanted), None) is not None:
            return False
        if id in self._waiting:
            self._leave(id)
        self._hold(id, wanted)
        return True

    def free(self, id: int, locks: Locks) -> bool:
        """Whether `take` would say yes."""
        return next(self._blockers(id, closure(locks)), None) is None

    def heir(self, id: int) -> int:
        """Who could take all its locks at the moment this one leaves, and whom nobody can forestall
        until then: it wants nothing but what this one holds, no more exclusively. 0 = nobody.
        """
        mine = {name: mode for mode, name in self._held.get(id, ())}
        for name in mine:
            resource = self._resources[name]
            for queue in (resource.exclusive, resource.shared):
                first = next(iter(queue), 0)
                if first and self._inherits(first, id, mine):
                    return first
        return 0

    def _inherits(self, id: int, holder: int, left: dict[str, str]) -> bool:
        wanted = self._waiting[id][1]
        return all(left.get(name) in (EXCLUSIVE, mode) for mode, name in wanted) and all(
            link.blocker == holder and not link.order for link in self._blockers(id, wanted)
        )

    def restore(self, id: int, locks: Locks) -> None:
        """It holds these: the store says so."""
        if id not in self._held:
            if id in self._waiting:
                self._leave(id)
            self._hold(id, closure(locks))

    def wait(self, id: int, locks: Locks) -> tuple[list[Link], list[int]]:
        """Queue up, after `take` said no; keeps its place if it has one. The circle that this
        closes (empty: none), then it does not wait, and who may try again.
        """
        if id not in self._waiting:
            self._join(id, closure(locks))
        freed: list[int] = []
        while circle := self._circle(id):
            soft = next((link for link in circle if link.order), None)
            if soft is None:
                return circle, [*freed, *self.withdraw(id)]
            self._passes.setdefault(soft.waiter, set()).add(soft.blocker)
            if self._free(soft.waiter) and soft.waiter not in freed:
                freed.append(soft.waiter)
        return [], freed

    def release(self, id: int) -> list[int]:
        """Hold nothing any more, wait for nothing, be forgotten. Who may try again, in order."""
        freed = self.withdraw(id)
        self._parents.pop(id, None)
        return freed

    def withdraw(self, id: int) -> list[int]:
        """`release` of one that lives on."""
        found: dict[int, None] = {}
        if id in self._waiting:
            _, locks = self._waiting[id]
            self._leave(id)
        else:
            locks = self._held.pop(id, ())
            for mode, name in locks:
                resource = self._resources[name]
                del (resource.held_exclusive if mode == EXCLUSIVE else resource.held_shared)[id]
                if resource.idle:
                    del self._resources[name]
        for mode, name in locks:
            left = self._resources.get(name)
            if left is not None:
                found.update(dict.fromkeys(self._helped(left, mode)))
        return list(found)

    # ---------------------------------------------------------------------- looking
    def holds(self, id: int) -> bool:
        return id in self._held

    def waits(self, id: int) -> bool:
        return id in self._waiting

    def holders(self, resource: str) -> dict[int, str]:
        """Who holds it, and how."""
        found = self._resources.get(resource)
        if found is None:
            return {}
        held = dict.fromkeys(found.held_exclusive, EXCLUSIVE)
        return held | dict.fromkeys(found.held_shared, SHARED)

    def blocked(self, id: int) -> list[Link]:
        """What one that waits, waits for; at most one link for each resource."""
        if id not in self._waiting:
            return []
        first: dict[str, Link] = {}
        for link in self._blockers(id, self._waiting[id][1]):
            first.setdefault(link.resource, link)
        return list(first.values())

    def waiting(self) -> Iterator[int]:
        """Everybody who waits."""
        return iter(self._waiting)

    def __len__(self) -> int:
        """Resources that somebody holds or waits for."""
        return len(self._resources)

    # ---------------------------------------------------------------------- details
    def _blockers(self, id: int, wanted: Locks) -> Iterator[Link]:
        """Everything that it would have to wait for; nothing = it may take them."""
        ticket = self._waiting[id][0] if id in self._waiting else self._tickets + 1
        passes = self._passes.get(id, ())
        family = list(self._ancestors(id)) if self._parents else []
        for mode, name in wanted:
            resource = self._resources.get(name)
            if resource is None:
                continue
            for holder in resource.holders(mode):
                if holder not in family and holder != id:
                    yield Link(id, name, holder, False)
            nearest = next((one for one in family if resource.has(one)), 0)
            for queue in resource.queues(mode):
                for other in self._earlier(queue, ticket, nearest):
                    if other not in passes:
                        yield Link(id, name, other, True)

    def _earlier(self, queue: OrderedDict[int, int], ticket: int, ancestor: int) -> Iterator[int]:
        """Who came before `ticket`; where an ancestor holds the resource, only its descendants."""
        before: Iterable[int] = queue
        if ancestor:
            below = self._below.get(ancestor, {})
            if len(below) < len(queue):
                before = [other for other in below if other in queue]
            else:
                before = [other for other in queue if other in below]
        for other in before:
            if queue[other] >= ticket:
                return
            yield other

    def _free(self, id: int) -> bool:
        return next(self._blockers(id, self._waiting[id][1]), None) is None

    def _helped(self, resource: _Resource, mode: str) -> Iterator[int]:
        """Who may try again now that a lock in this mode, or a wait for one, is gone.

        Shared ones never waited for a shared one. Behind the first exclusive one everybody waits
        for that one, but for the descendants of holders, and those who may pass.
        """
        first, ticket = next(iter(resource.exclusive.items()), (0, self._tickets + 1))
        if mode == EXCLUSIVE:
            for id, number in resource.shared.items():
                if number >= ticket:
                    break
                if self._free(id):
                    yield id
        if first and self._free(first):
            yield first
        for ancestor in self._below if self._below else ():
            if resource.has(ancestor):
                yield from self._helped_below(resource, ancestor)
        for id in self._passes:
            if (id in resource.shared or id in resource.exclusive) and self._free(id):
                yield id

    def _helped_below(self, resource: _Resource, ancestor: int) -> Iterator[int]:
        for id in self._below[ancestor]:
            last = id in resource.exclusive
            if (last or id in resource.shared) and self._free(id):
                yield id
            if last:
                return

    def _hold(self, id: int, locks: Locks) -> None:
        self._held[id] = locks
        for mode, name in locks:
            resource = self._resources.get(name)
            if resource is None:
                resource = self._resources[name] = _Resource()
            (resource.held_exclusive if mode == EXCLUSIVE else resource.held_shared)[id] = None

    def _join(self, id: int, locks: Locks) -> None:
        self._tickets += 1
        self._waiting[id] = (self._tickets, locks)
        for mode, name in locks:
            resource = self._resources.get(name)
            if resource is None:
                resource = self._resources[name] = _Resource()
            queue = resource.exclusive if mode == EXCLUSIVE else resource.shared
            queue[id] = self._tickets
        for ancestor in self._ancestors(id):
            self._below.setdefault(ancestor, {})[id] = None

    def _leave(self, id: int) -> None:
        """Out of all queues; the caller looks after those that follow it."""
        _, locks = self._waiting.pop(id)
        for mode, name in locks:
            resource = self._resources[name]
            del (resource.exclusive if mode == EXCLUSIVE else resource.shared)[id]
            if resource.idle:
                del self._resources[name]
        self._passes.pop(id, None)
        for ancestor in self._ancestors(id):
            below = self._below.get(ancestor)
            if below is not None:
                below.pop(id, None)
                if not below:
                    del self._below[ancestor]

    def _ancestors(self, id: int) -> Iterator[int]:
        while id := self._parents.get(id, 0):
            yield id

    # ---------------------------------------------------------------------- circles
    def _circle(self, id: int) -> list[Link]:
        """A circle through one that waits, or nothing. Only through an ancestor that strangers wait
        for can there be one: who waits holds nothing.
        """
        family = list(self._ancestors(id))
        if not any(self._contested(ancestor) for ancestor in family):
            return []
        came: dict[int, Link] = {}
        todo = [id]
        left = _WALK_MAX
        while todo and left > 0:
            for link in self._waits_for(todo.pop()):
                left -= 1
                if link.blocker in family:  # it waits for its descendant
                    return [*self._path(came, link, id), Link(link.blocker, "", id, False)]
                if link.blocker not in came and link.blocker != id:
                    came[link.blocker] = link
                    todo.append(link.blocker)
        return []

    def _waits_for(self, id: int) -> Iterator[Link]:
        waiting = self._waiting.get(id)
        if waiting is not None:
            yield from self._blockers(id, waiting[1])
        for below in self._below.get(id, ()):
            yield Link(id, "", below, False)

    @staticmethod
    def _path(came: dict[int, Link], last: Link, start: int) -> list[Link]:
        path = [last]
        while path[-1].waiter != start:
            path.append(came[path[-1].waiter])
        return path[::-1]

    def _contested(self, id: int) -> bool:
        """Whether a stranger waits for what this one holds."""
        below = self._below.get(id, {})
        return any(
            other not in below
            for _, name in self._held.get(id, ())
            for other in chain(self._resources[name].exclusive, self._resources[name].shared)
        )


def circle_text(circle: list[Link]) -> str:
    """A circle for an error text."""
    parts = []
    for link in circle:
        if link.resource:
            parts.append(f"{link.waiter} waits for {link.resource} of {link.blocker}")
        else:
            parts.append(f"{link.waiter} waits for its descendant {link.blocker}")
    return ", ".join(parts)
