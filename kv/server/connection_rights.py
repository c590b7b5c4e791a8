"""Who a connection of the native port is, and whether its requests are for it.

    hello ─▶ Gate.identify ─▶ Identity ─▶ Rights, as of one Book ─▶ each request

What a verb needs is in its declaration (kv/base/verbs.py). A request to a partition is about its
table: none but the meta partition has keys of two, so (verb, partition) is remembered with the
answer for as long as the book is the same object. Of the meta partition's tables an administrator
may read and write all but those that logging in is decided by, and whoever works for a pool those
of the procedures that it was given; others have verbs that answer what they may see.

A reader that meets an intent ends the transaction of somebody else, and says what became of it. It
is not believed: its node looks for itself (`Deputy`), and says no more than how that one ended.
The same becomes of whoever would move on a transaction that his own commands have not made, which
the partition finds (kv.base.intents). Only who may write all of a table says what becomes of his
intents there, and who may write some of it has the records of his transactions there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from kv.base import methods, system
from kv.base.accounts import Account, Use
from kv.base.credentials import Credential
from kv.base.errors import Busy, Forbidden, InvalidArgument, KvorumError
from kv.base.fields import PREFIX_BYTES
from kv.base.ids import FIRST_USER_TABLE, META_PARTITION
from kv.base.options import CHECKS
from kv.base.rights import (
    CLUSTER,
    LOOPBACK,
    PUT,
    Action,
    Book,
    Identity,
    Kind,
    Resource,
    allow,
    may,
    somewhere,
)
from kv.base.tenants import Tenants
from kv.base.verbs import NODE_METHODS, RESULT_AT, VERBS, Touches, Verb
from kv.base.wire_row import WireRow

_AGAIN_MS: Final = 200
_READ: Final = frozenset({Action.READ})
_RUN: Final = frozenset({Action.RUN})
_CONNECT: Final = frozenset({Action.CONNECT})
_ANYTHING: Final = PUT | {Action.DELETE, Action.READ}
_ANY_WRITE: Final = (Action.INSERT, Action.UPDATE, Action.DELETE, Action.TRUNCATE)
SECRET_TABLES: Final = frozenset({system.ROLES, system.TOKENS})
WORK_TABLES: Final = frozenset(
    {
        *(system.PROCEDURES, system.PROCEDURE_STEPS, system.NONCES, system.RUNNABLE),
        *(system.LOCKS, system.WORKERS),
    }
)
"""What a worker's steps are committed to, row by row (procedures/pools/worker_permissions.py)."""
_ANCHORED: Final = frozenset({methods.PREWRITE, methods.PREWRITE_ROWS})
# They move a transaction on that has its record, or its intents, there.
_ENDS: Final = frozenset({methods.COMMIT, methods.ROLLBACK, methods.HEARTBEAT, methods.FINISH})
LOOKED_UP: Final = frozenset({methods.CHECK, methods.SETTLE})
"""What a node does itself for everybody but administrators: their answer tells keys of all tables
that a transaction writes, or their caller says how it ended in all of them."""
STOOD_IN: Final = LOOKED_UP | _ENDS | {methods.RESOLVE}
"""What a node can do itself, for who may not; see kvorum/node/settle_transactions.py."""


_ANCHOR_AT: Final = VERBS[methods.PREWRITE].at("anchor")
assert VERBS[methods.PREWRITE_ROWS].at("anchor") == _ANCHOR_AT
_OPTIONS_AT: Final = VERBS[methods.PREWRITE].at("options")


class Gate(Protocol):
    """sqlproxy.catalog.guard.Guard."""

    @property
    def book(self) -> Book | None:
        """The same object while nothing has changed; None: nothing is known, or not for long."""
        ...

    async def identify(self, credential: Credential, certificate: str, address: str) -> Identity:
        """Raises Unauthenticated, Busy, Unavailable."""
        ...

    def stands(self, identity: Identity) -> bool:
        """Whether whoever was let in so would be now."""
        ...

    def use(self, identity: Identity) -> Use:
        """Whom what it does counts for."""
        ...

    @property
    def tenants(self) -> Tenants: ...


Needs = Iterable[tuple[frozenset[Action], Resource]]
Named = Callable[[Verb, list[object], str], Needs | None]
"""What a request of a user needs that is to a node, or about rows of procedures, if its verb names
that in a way that only its layer reads; None: its action on all of that kind. Empty: who serves it
asks for the right, as only he knows what it is about. Raises KvorumError.
"""
Deputy = Callable[[list[object]], Awaitable[list[object]]]
"""Does what a request of STOOD_IN asks for, as far as it is right; the reply's result."""


class NotBelieved(Exception):
    """A deputy does it."""


class Rights:
    """Of one identity as of one book."""

    def __init__(
        self,
        identity: Identity,
        book: Book,
        starts_at: Callable[[int], bytes | None],
        named: Named,
    ) -> None:
        """`starts_at`: where the range of a partition of this node begins."""
        self._book = book
        self._starts_at, self._named = starts_at, named
        self._allowed: set[tuple[int, int]] = set()
        self._anchors: set[bytes] = set()  # whose tables may have records of its transactions
        self._staged: set[bytes] = set()  # … and parts that may commit them
        self.identity, self.user, self.tables = identity, identity.name, book.tables
        self.admin = book.superuser(identity.name) and identity.limits is None

    def check(self, row: WireRow) -> None:
        """Raises Forbidden, Unauthenticated, Busy (it is not known yet), InvalidArgument,
        NotBelieved.
        """
        try:
            if len(row) > 3 and (row[1], row[3]) in self._allowed:
                if row[1] in _ANCHORED:
                    self._check_anchor(row)
                return
        except TypeError:  # a list: it is no partition
            pass
        verb = VERBS.get(row[1])
        if verb is None:
            return  # it is answered UNKNOWN_METHOD
        if verb.number < NODE_METHODS:
            self._check_partition(verb, row)
        else:
            self._check_node(verb, row)

    # -- requests to partitions

    def _check_partition(self, verb: Verb, row: list[object]) -> None:
        partition = row[3] if len(row) > 3 else None
        if type(partition) is not int:
            return  # it is refused for that
        if not self.admin and verb.number in LOOKED_UP:
            if verb.number == methods.CHECK and type(met := _met(verb, row)) is bytes and met:
                self._some(table_of(met))
            raise NotBelieved
        if not self.admin and verb.number == methods.RECOVER:
            raise Forbidden("how a transaction goes on is looked up by nodes: send CHECK")
        if partition == META_PARTITION:
            self._check_meta(verb, row)
            return
        start = self._starts_at(partition)
        if start is None:  # it is answered MOVED, which says where the partition of its key is
            key = first_key(verb, row)
            if key is not None:
                self._some(table_of(key))
            return
        if self._check_table(verb, row, table_of(start)):
            self._allowed.add((verb.number, partition))

    def _check_table(self, verb: Verb, row: list[object], table: int) -> bool:
        """Whether all requests of that verb are allowed."""
        number = verb.number
        resource = self._resource(table)
        if number in _ANCHORED:
            self._check_anchor(row)
        if number in _ENDS:
            self._some_write(resource)
        elif number == methods.RESOLVE:
            if may(self.identity, _ANYTHING - _READ, resource, self._book) is not None:
                self._some(table)  # to have it read, too
                raise NotBelieved
        elif verb.action is Action.WRITE:
            if may(self.identity, _ANYTHING, resource, self._book) is None:
                return True
            self.allow(needed_of(verb, row), resource)
            return False
        else:
            self.allow(frozenset({verb.action}), resource)
        return True

    def _check_anchor(self, row: list[object]) -> None:
        """Whoever names a record says whose transaction his intents are part of."""
        if self.admin:
            return
        options = row[_OPTIONS_AT] if len(row) > _OPTIONS_AT else None
        if type(options) is dict and "stage" in options and not self._stages(options["stage"]):
            del options["stage"]
        anchor = row[_ANCHOR_AT] if len(row) > _ANCHOR_AT else None
        if type(anchor) is not bytes or anchor[:PREFIX_BYTES] in self._anchors:
            return
        table = table_of(anchor)
        if table in WORK_TABLES and self._runs_some():
            pass
        elif table != system.SINK_ATTEMPTS:  # a task's, which its user has begun there
            if table < FIRST_USER_TABLE:
                raise Forbidden("no transaction of a user has its record in the system's tables")
            self._some_write(self._resource(table))
        self._anchors.add(anchor[:PREFIX_BYTES])

    def _stages(self, parts: list[list[bytes]]) -> bool:
        """Whether the transaction may be committed by its parts alone, or its record is flipped.
        Whoever recovers it closes these keys to its start_ts, so its user may write there. What a
        serializable one reads is a part, too: it may lie where he may only read, or in LOCKS (a
        fence), but there he could close keys to somebody whose start_ts he guesses. Raises
        Forbidden: he may neither.
        """
        CHECKS["stage"](parts)
        alone = True
        for prefix in {key[:PREFIX_BYTES] for part in parts for key in part} - self._staged:
            table = table_of(prefix)
            if table in WORK_TABLES and self._runs_some():
                pass
            elif table == system.LOCKS:
                alone = False
                continue
            elif table < FIRST_USER_TABLE:
                raise Forbidden("no transaction of a user has a part in the system's tables")
            elif not self._writes(resource := self._resource(table)):
                self.allow(_READ, resource)
                alone = False
                continue
            self._staged.add(prefix)
        return alone

    def _writes(self, resource: Resource) -> bool:
        return any(
            may(self.identity, frozenset({one}), resource, self._book) is None for one in _ANY_WRITE
        )

    def _check_meta(self, verb: Verb, row: list[object]) -> None:
        """Each time: its tables are few, and so are requests to them but an administrator's."""
        tables = {table_of(key) for key in keys_of(verb, row)}
        if not tables:
            return
        open_yet = self.identity.credential == LOOPBACK.credential
        if tables & SECRET_TABLES and not open_yet:
            if self.admin and verb.number in STOOD_IN:
                raise NotBelieved
            raise Forbidden(
                "what logging in is decided by is for nodes of this cluster alone: a backup that "
                "the command writes takes a node's --tls-dir, or KVORUM_CLUSTER_SECRET; one that "
                "nodes write (--on-nodes) does not"
            )
        if self.admin:
            return
        if tables == {system.LOCKS}:  # a fence: whoever writes under a lock checks that it is held
            if needed_of(verb, row) <= _READ:
                return
            if verb.number in STOOD_IN and not self._runs_some():
                raise NotBelieved
        if tables <= WORK_TABLES and self._runs_some():
            self._check_work(verb, row)
            return
        raise Forbidden(
            "the system's own tables are for administrators: CATALOG tells what you may see",
            details={"user": self.identity.name},
        )

    def _check_work(self, verb: Verb, row: list[object]) -> None:
        try:
            needs = self._named(verb, row, self.identity.name)
        except Forbidden as error:
            if verb.number in STOOD_IN:  # what it had may be over already
                raise NotBelieved from error
            raise
        for actions, resource in needs or ():
            self.allow(actions, resource)

    def _resource(self, table: int) -> Resource:
        found = self._book.tables.get(table)
        if found is None and self.admin:
            return Resource(Kind.TABLE, str(table), "?")
        if found is None:
            raise Busy(
                "whose table this is is not known here yet: ask again in a moment",
                details={"what": "new tables", "retry_after_ms": _AGAIN_MS},
            )
        return found

    def sees(self, key: bytes) -> bool:
        """Whether it may know of a transaction that has its record there."""
        try:
            self._one_of((Action.READ, *_ANY_WRITE), self._resource(table_of(key)))
        except KvorumError:
            return self.admin
        return True

    def reads(self, resource: Resource) -> bool:
        """Whether it may read that."""
        return may(self.identity, _READ, resource, self._book) is None

    def allow(self, actions: frozenset[Action], resource: Resource) -> None:
        """Raises Forbidden, Unauthenticated."""
        allow(self.identity, actions, resource, self._book)

    def _some(self, table: int) -> None:
        """It may do anything at all with the table."""
        if table < FIRST_USER_TABLE:
            return  # where the meta partition is, everybody must know
        self._one_of((Action.READ, *_ANY_WRITE), self._resource(table))

    def _some_write(self, resource: Resource) -> None:
        self._one_of(_ANY_WRITE, resource)

    def _one_of(self, actions: Iterable[Action], resource: Resource) -> None:
        refused: Forbidden | None = None
        for action in actions:
            try:
                self.allow(frozenset({action}), resource)
            except Forbidden as error:
                refused = refused or error
            else:
                return
        assert refused is not None, "there are actions"
        raise refused

    def reads_some(self, kind: Kind) -> bool:
        """Whether it may read anything of that kind."""
        return somewhere(self.identity, _READ, kind, self._book)

    def _runs_some(self) -> bool:
        """Whether it works for a pool."""
        return somewhere(self.identity, _RUN, Kind.POOL, self._book)

    # -- requests to nodes

    def _check_node(self, verb: Verb, row: WireRow) -> None:
        verb.check(row)
        subject, args = verb.resource, row[verb.args_at :]
        action = verb.right(args)
        if verb.number == methods.LOOKUP:
            self._some(table_of(row[verb.at("key")]))
            return
        needs = self._named(verb, row, self.identity.name)
        if needs is None:
            resource = CLUSTER if subject.kind is Kind.CLUSTER else Resource(subject.kind, "")
            if action is Action.RUN and somewhere(self.identity, _RUN, subject.kind, self._book):
                return
            needs = ((frozenset({action}), resource),)
        for actions, resource in needs:
            self.allow(actions, resource)


# --------------------------------------------------------------------- what requests count as

# They end what was taken before, or let others go on: to refuse them would help nobody.
_LENGTHS_BYTES: Final = 8  # of a key and its record, each four
_FREE: Final = STOOD_IN | {methods.PING, methods.TSO}


class Metering:
    """The requests of one connection, while somebody has limits: each is asked, and counted when
    its reply is there. What the user reads and writes is counted with the connection's bytes.
    """

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._under_way: dict[int, tuple[Use, int, int]] = {}  # rid → it, its method, its rows

    def begin(self, row: WireRow, user: Account, namespace: str, *, asked: bool) -> None:
        """`ended` follows. Raises Busy: then it does not. `namespace`: whose rows they are. Raises
        InvalidArgument, which ends the connection: its id is that of another under way, whose end
        would be counted for both.
        """
        if row[0] in self._under_way:
            raise InvalidArgument(
                f"request {row[0]} is under way: give each another id until it is answered",
                code="MALFORMED_FRAME",
            )
        if row[1] in _FREE:
            return
        use = Use(user, asked=asked)
        if namespace:
            use.accounts += (self._tenants.namespace(namespace),)
        use.begin()
        _of_namespace(use, row)
        self._under_way[row[0]] = use, row[1], _rows_in(row)

    def ended(self, reply: WireRow) -> None:
        """It is answered so."""
        found = self._under_way.pop(reply[0], None)
        if found is not None:
            use, method, rows = found
            use.spend(max(rows, _rows_out(method, reply)))
            _of_namespace(use, reply)
            use.end()

    def close(self) -> None:
        """Nobody waits for the answers any more."""
        for use, _, _ in self._under_way.values():
            use.end()
        self._under_way.clear()


def _of_namespace(use: Use, message: list[object]) -> None:
    for account in use.accounts[1:]:
        account.bytes += _size(message)


def _size(found: object) -> int:
    """The bytes of keys and values in a message."""
    if isinstance(found, bytes | str):
        return len(found)
    return sum(map(_size, found)) if isinstance(found, list | tuple) else 0


def _rows_in(row: WireRow) -> int:
    """How many a request names. What is not well formed is refused by whom it is for."""
    verb = VERBS.get(row[1])
    if verb is None or verb.touches not in (Touches.KEYS, Touches.ROWS, Touches.OPS):
        return 1
    match row[verb.at(verb.keys) :]:
        case [[_, _, int(rows), bytes(), _], bytes(), *_] if verb.touches is Touches.ROWS:
            return rows  # packed
        case [list(named), *_]:
            return len(named)
        case _:
            return 1


def _rows_out(method: int, reply: list[object]) -> int:
    match reply[RESULT_AT:]:
        case [[bytes(lengths), bytes()], *_] if method == methods.SCAN_SEALED:
            return len(lengths) // _LENGTHS_BYTES
        case [list(rows), *_]:
            return len(rows)
        case _:
            return 1


# ------------------------------------------------------------------------------- keys of requests


def _met(verb: Verb, row: list[object]) -> object:
    """Where the intent lies that a CHECK is about, if it says so."""
    at = verb.at("met")
    return row[at] if len(row) > at else None


def table_of(key: bytes) -> int:
    """Whose keys begin so; a bound may be shorter than a table's id."""
    return int.from_bytes(key[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\0"), "big")


def first_key(verb: Verb, row: list[object]) -> bytes | None:
    """None: it has none, or is not well formed."""
    found: object = row
    for step in verb.first_key:
        if not isinstance(found, list | tuple) or len(found) <= step:
            return None
        found = found[step]
    return found if type(found) is bytes else None


def keys_of(verb: Verb, row: WireRow) -> list[bytes]:
    """All keys of a request, at least one of each table that it touches. Raises InvalidArgument."""
    at = verb.at(verb.keys)
    try:
        named = row[at]
        match verb.touches:
            case Touches.KEY | Touches.ANCHOR:
                found = [named]
            case Touches.RANGE:
                end = row[at + 1]
                whole = end[:PREFIX_BYTES] == named[:PREFIX_BYTES] or (
                    len(end) == PREFIX_BYTES and table_of(end) == table_of(named) + 1
                )
                found = [named] if whole and len(named) >= PREFIX_BYTES else _SEVERAL
            case Touches.KEYS:
                found = list(named)
            case Touches.ROWS:
                # Packed ones say the first and the last; what is between them rises.
                packed = type(row[at + 1]) is bytes
                found = _between(named[0], named[-1]) if packed else list(named)
            case Touches.OPS:
                found = [op[1] for op in named]
            case Touches.ENDS:
                found = [key for end in named for key in end[3]]
                found += [end[1] for end in named if end[1] is not None]
            case None:
                found = []
        options = row[-1] if type(row[-1]) is dict else {}
        found += list(options.get("reads", ()))
        found += [key for span in options.get("ranges", ()) for key in span[:2] if key]
    except (IndexError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise _unreadable(verb) from error
    if any(type(key) is not bytes for key in found):
        raise _unreadable(verb)
    return found


_SEVERAL: Final = [system.ROLES.to_bytes(PREFIX_BYTES, "big"), b"\0\0\0\0"]  # of tables


def _between(first: bytes, last: bytes) -> list[bytes]:
    return [first] if first[:PREFIX_BYTES] == last[:PREFIX_BYTES] else list(_SEVERAL)


def _unreadable(verb: Verb) -> InvalidArgument:
    return InvalidArgument(f"{verb.name}: its keys are not where docs/reference/rpc.md has them")


def needed_of(verb: Verb, row: WireRow) -> frozenset[Action]:
    """What a request that may write does to rows. A put that asks for no row there is an insert,
    one that asks for a version an update, without a condition both.
    """
    if verb.action is Action.READ:
        return _READ
    try:
        match verb.number:
            case methods.PUT:
                return _of_put(row[verb.at("cond")])
            case methods.DELETE:
                return frozenset({Action.DELETE})
            case methods.WRITE | methods.PREWRITE:
                options = row[-1] if type(row[-1]) is dict else {}
                found = _READ if "reads" in options or "ranges" in options else frozenset()
                if "lock" in options:  # it holds up whoever writes
                    found |= {Action.UPDATE}
                for kind, _, _, cond, *_ in row[verb.at("ops")]:
                    if kind == methods.OP_PUT:
                        found |= _of_put(cond)
                    elif kind == methods.OP_CHECK:
                        found |= _READ
                    else:
                        found |= {Action.DELETE}
                return found
            case methods.INGEST | methods.WRITE_ROWS:
                return PUT
            case _:
                return _ANYTHING - _READ
    except (IndexError, TypeError, ValueError):
        return (
            _ANYTHING - _READ
        )  # it is refused to whoever may all that, too: it is not well formed


def _of_put(cond: object) -> frozenset[Action]:
    if cond is None:
        return PUT
    return frozenset({Action.UPDATE if cond else Action.INSERT})
