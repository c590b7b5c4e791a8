"""How a request of the wire is declared: once, as a struct of its arguments with all that anybody
needs to know of it.

    @verb(66, by=CLIENT, action=READ, on=CLUSTER, repeat=QUESTION, master=True)
    class Tso(Request):
        \"""→ first\"""

        count: Annotated[int, integer(1, TSO_COUNT_MAX)]


    TSO: Final = Tso.number

Its name is TSO then; docs/reference/rpc.md has what the docstring says. Arguments travel in the
order of the fields; those with a default may be missing at the end, as clients of earlier versions
send them. What servers check, clients repeat, the audit log shows and rights are decided on is read
off the table VERBS, into which every layer declares its own verbs when it is imported: kv
(kv/base/methods.py), tso, procedures and kvorum (verbs.py of each). So whoever serves or sends a
request knows its verb.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, get_type_hints

import msgspec

from kv.base.errors import InvalidArgument
from kv.base.fields import HANDED_OUT, Check, anything
from kv.base.rights import Action, Kind

NODE_METHODS: Final = 64
"""Numbers below go to a partition: their arguments begin with `partition_id, epoch` of the caller's
location cache. The others go to a node."""
METHODS_MAX: Final = 256
PARTITION_ARGS_AT: Final = 5  # in a row [rid, method, budget_ms, partition_id, epoch, *args]
NODE_ARGS_AT: Final = 3  # in a row [rid, method, budget_ms, *args]
RESULT_AT: Final = 2  # in a reply [rid, 0, *result]


class Caller(StrEnum):
    """Who may send a request at all; whether it has the right is another question."""

    CLIENT = "client"  # anybody: users, workers and nodes, too
    WORKER = "worker"  # a process that serves a pool
    NODE = "node"  # who has proved to be a node of this cluster
    MASTER = "master"  # such a node, while it leads the meta partition


class Subject(NamedTuple):
    """What a request is about: of which kind, and how an argument names it."""

    kind: Kind
    field: str = ""  # "": all of that kind
    how: str = ""  # what the argument is: a key, a name, an id, …

    def __str__(self) -> str:
        return f"{self.kind} of {self.how} `{self.field}`" if self.field else str(self.kind)


CLUSTER: Final = Subject(Kind.CLUSTER)


class Repeat(StrEnum):
    """What whoever has lost the reply may do."""

    ONCE = "once"  # find out what became of it
    AGAIN = "again"  # send it again: an id makes it the same request
    QUESTION = "question"  # the same, and nothing is in doubt: it changes nothing of its caller's


class Touches(StrEnum):
    """How an argument names the keys of a request to a partition; its annotation says it."""

    KEY = "key"
    ANCHOR = "anchor"  # the key with the record of a transaction
    KEYS = "keys"  # a list of keys
    ROWS = (
        "rows"  # the same, rising; or packed ones (kv/mvcc/packed_rows.py), if the values are bytes
    )
    OPS = "ops"  # a list of operations, each with its key second
    ENDS = "ends"  # a list of transactions' ends, each with its keys last
    RANGE = "range"  # where a range begins; the next argument says where it ends


_FIRST: Final[Mapping[Touches, tuple[int, ...]]] = {
    Touches.KEY: (),
    Touches.ANCHOR: (),
    Touches.KEYS: (0,),
    Touches.ROWS: (0,),
    Touches.OPS: (0, 1),
    Touches.ENDS: (0, 3, 0),
    Touches.RANGE: (),
}


class Request(msgspec.Struct, array_like=True, gc=False):
    """The arguments of a verb."""

    verb: ClassVar[Verb]
    number: ClassVar[int]


@dataclass(frozen=True, slots=True)
class Verb:
    """What is known of a request without looking at one."""

    number: int
    name: str
    request: type[Request]
    fields: tuple[str, ...]
    optional: int  # so many of them may be missing at the end
    check: Callable[[Sequence[Any]], None]
    """The number of arguments in a row, and each by itself. Raises InvalidArgument, TooLarge."""
    callers: tuple[Caller, ...]
    action: Action
    resource: Subject
    repeat: Repeat
    nonce: str  # the field that makes it repeatable, if it is not None
    questions: frozenset[str]  # if its first argument is one of these, it only asks
    master: bool  # served by the leader of the meta partition alone; others answer NOT_LEADER
    touches: Touches | None
    keys: str  # the field that names its keys
    claims: tuple[int, ...]  # where a row has timestamps that its caller says were handed out
    fresh: bool  # it gets a timestamp of its own, and waits for whoever stands in its way
    rises: bool  # it writes versions, so none may be younger than the timestamp of another one
    fills: bool  # it needs room on the disk: refused while that is nearly full
    shown: Mapping[str, int]  # field of a stamp (kvorum/audit) → where a row has it
    in_reply: Mapping[str, int]  # the same → where the row of a reply has it
    args_at: int  # where the arguments begin in a row

    @property
    def several(self) -> bool:
        """Whether it may name keys of several partitions."""
        return self.touches not in (None, Touches.KEY, Touches.ANCHOR)

    @property
    def first_key(self) -> tuple[int, ...]:
        """The way to its first key in a row, () if it has none."""
        if self.touches is None:
            return ()
        return self.at(self.keys), *_FIRST[self.touches]

    def at(self, field: str) -> int:
        """Where an argument is in a row."""
        return self.args_at + self.fields.index(field)

    @property
    def order(self) -> bool:
        """Whether only a node may send it, to another one."""
        return not {Caller.CLIENT, Caller.WORKER} & set(self.callers)

    def may_repeat(self, args: Sequence[object]) -> bool:
        """Whether it may be sent again after a lost reply: a submission with a nonce, too."""
        if self.repeat is not Repeat.ONCE or not self.nonce:
            return self.repeat is not Repeat.ONCE
        at = self.fields.index(self.nonce)
        return len(args) > at and args[at] is not None

    def asks(self, args: Sequence[object]) -> bool:
        """Whether a lost reply leaves nothing in doubt."""
        if self.repeat is Repeat.QUESTION or not self.questions:
            return self.repeat is Repeat.QUESTION
        return len(args) > 0 and args[0] in self.questions

    def right(self, args: Sequence[object]) -> Action:
        """The right that it needs."""
        return Action.READ if self.questions and self.asks(args) else self.action


class Table:
    """The verbs of this process by number."""

    def __init__(self) -> None:
        self._verbs: dict[int, Verb] = {}
        self.get: Callable[[int], Verb | None] = self._verbs.get

    def __getitem__(self, number: int) -> Verb:
        return self._verbs[number]

    def __iter__(self) -> Iterator[Verb]:
        return iter(sorted(self._verbs.values(), key=lambda verb: verb.number))

    def add(self, verb: Verb) -> None:
        """Take one more in. Numbers and names are those of one verb."""
        for other in self._verbs.values():
            assert other.number != verb.number, f"{verb.name} has the number of {other.name}"
            assert other.name != verb.name, f"{verb.name} is both {other.number} and {verb.number}"
        assert 0 < verb.number < METHODS_MAX
        self._verbs[verb.number] = verb


VERBS: Final = Table()
_R = TypeVar("_R", bound=type[Request])
_SHOWN: Final = ("read_ts", "start_ts", "commit_ts")  # under their own names, where keys are shown


def verb(
    number: int,
    *,
    by: Caller | tuple[Caller, ...],
    action: Action,
    on: Subject | None = None,
    repeat: Repeat = Repeat.ONCE,
    nonce: str = "",
    questions: frozenset[str] = frozenset(),
    master: bool = False,
    fresh: bool = False,
    rises: bool = False,
    fills: bool = False,
    shown: Mapping[str, str] | None = None,
    in_reply: Mapping[str, int] | None = None,
) -> Callable[[_R], _R]:
    """Declare a verb; see Verb. A partition's verb is about the tables of its keys."""

    def declare(request: _R) -> _R:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", request.__name__).upper()
        fields = request.__struct_fields__
        hints = get_type_hints(request, include_extras=True)
        said = {field: hints[field].__metadata__ for field in fields}
        touches = {
            field: one
            for field, (_, *more) in said.items()
            for one in more
            if isinstance(one, Touches)
        }
        assert len(touches) == (number < NODE_METHODS), f"{name}: partitions' verbs have keys"
        ((keys, how),) = touches.items() or (("", None),)
        args_at = PARTITION_ARGS_AT if keys else NODE_ARGS_AT
        optional = len(request.__struct_defaults__)
        shows = shown or {field: field for field in _SHOWN if keys and field in fields}
        request.number = number
        request.verb = Verb(
            number=number,
            name=name,
            request=request,
            fields=fields,
            optional=optional,
            check=_checker(name, fields, [said[field][0] for field in fields], args_at, optional),
            callers=by if isinstance(by, tuple) else (by,),
            action=action,
            resource=Subject(Kind.TABLE, keys, "the key") if on is None else on,
            repeat=repeat,
            nonce=nonce,
            questions=questions,
            master=master,
            touches=how,
            keys=keys,
            claims=tuple(
                args_at + at for at, field in enumerate(fields) if HANDED_OUT in said[field]
            ),
            fresh=fresh,
            rises=fresh or rises,
            fills=fresh or fills,
            shown={stamp: args_at + fields.index(field) for stamp, field in shows.items()},
            in_reply={stamp: RESULT_AT + at for stamp, at in (in_reply or {}).items()},
            args_at=args_at,
        )
        assert {request.verb.resource.field, nonce} <= {"", *fields}, f"{name} has no such argument"
        VERBS.add(request.verb)
        return request

    return declare


def _checker(
    name: str, fields: Sequence[str], checks: Sequence[Check], args_at: int, optional: int
) -> Callable[[Sequence[object]], None]:
    """Verb.check, as a function that calls one check after the other: a loop over them would cost
    every request a few tenths of a microsecond.
    """
    end = args_at + len(fields)

    def miscounted(row: Sequence[object]) -> InvalidArgument:
        wanted = ", ".join(fields) or "none"
        return InvalidArgument(
            f"{name} takes {len(fields)} arguments ({wanted}), got {max(0, len(row) - args_at)}"
        )

    known: dict[str, Any] = {"miscounted": miscounted}
    lines = [
        "def check(row):",
        f"    if not {end - optional} <= len(row) <= {end}:",
        "        raise miscounted(row)",
    ]
    for at, (field, check) in enumerate(zip(fields, checks, strict=True), args_at):
        if check is anything:
            continue
        if at >= end - optional:
            lines.append(f"    if len(row) == {at}: return")
        known |= {f"check_{field}": check, f"name_{field}": f"{name}: {field}"}
        lines.append(f"    check_{field}(name_{field}, row[{at}])")
    exec("\n".join(lines), known)
    made: Callable[[Sequence[object]], None] = known["check"]
    return made


def repeatable(method: int) -> bool:
    """Whether this request may be sent again after a lost reply, whatever it says."""
    found = VERBS.get(method)
    return found is not None and found.repeat is not Repeat.ONCE
