"""Declaring procedures: the decorators, what they refuse, and the set of types that an executor
serves.

A declaration is checked when its module is imported: a procedure that could not run must not get as
far as a store. Names are stable: they are in the records of procedures that outlive the program. So
are the names of steps and undo methods: rename one only with a new `version`, keeping the old
method until no record names it.

Every step runs on a fresh instance: what must survive a step goes into `ctx.state`. System
procedures get what they work with from a factory (`Registry.add(cls, make=…)`).

Versions of a type live side by side: a record is run by the version that it began with, else by the
newest that says it `accepts` it (docs/decisions/0414). Beside what this process can run, a registry
knows types that workers run elsewhere (`learn`): their methods are names only.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, overload

from kv.base.errors import InvalidArgument, KvorumError, NotFound
from kv.base.limits import (
    NAME_CHARS_MAX,
    NONCE_CHARS_MAX,
    PROCEDURE_CONCURRENT_MAX,
    PROCEDURE_HEARTBEAT_MS_MIN,
    PROCEDURE_LOCKS_MAX,
    PROCEDURE_PRIORITY_MAX,
    PROCEDURE_RATE_MAX,
    PROCEDURE_RETENTION_MS_DEFAULT,
    PROCEDURE_TIMEOUT_MS_MAX,
    PROCEDURE_VERSIONS_MAX,
    SURGERY_REASON_CHARS_MAX,
)
from procedures.engine import plain_data, typed_values
from procedures.engine.attributes import declared as declared_attributes
from procedures.engine.deploys import BY_CODE, CODE, NONE, Deploy, chosen, code_version
from procedures.engine.needs import Needs
from procedures.engine.needs import checked as checked_needs
from procedures.engine.procedure import NAMED, SEVERAL, Lock
from procedures.engine.retries import Retry

Method = Callable[..., Any]
Declared = Callable[..., Any]  # a decorated class, or a workflow's function
F = TypeVar("F", bound=Method)
C = TypeVar("C", bound=type)
LockRule = Callable[[Any], Iterable[Lock]] | Iterable[Lock]

_NAME: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_.\-]{{0,{NAME_CHARS_MAX - 1}}}\Z")
_STEP: Final = "__kvorum_step__"
_UNDO: Final = "__kvorum_undo__"
_QUERY: Final = "__kvorum_query__"
_VALIDATOR: Final = "__kvorum_validator__"
_DECLARED: Final = "__kvorum_procedure__"


@dataclass(frozen=True, slots=True)
class StepMark:
    """What `@step` says of a method."""

    first: bool = False
    undo: str = ""
    point_of_no_return: bool = False
    undo_partial: bool = False  # undo it also when it failed half-way (effects outside the store)
    early: bool = (
        False  # a first step that may run before its submission is durable (early_steps.py)
    )
    deadline_ms: int = 0  # it fails if it has not ended by then; 0 = never
    attempt_ms: int = 0  # so long may one run take; 0 = any time
    retry: Retry | None = None  # whether it runs again after a failure
    heartbeat_ms: int = 0  # one run may be silent for so long; 0 = it says nothing


@dataclass(frozen=True, slots=True)
class StepDef:
    """One step: `method` is the function of the class, called with a fresh instance and the
    context.
    """

    name: str
    method: Method
    is_async: bool
    mark: StepMark

    @property
    def may_ms(self) -> int:
        """How long it may take, over retries and restarts; 0 = any time."""
        return self.mark.deadline_ms

    @property
    def attempt_ms(self) -> int:
        """How long one run of it may take; 0 = any time."""
        return self.mark.attempt_ms

    @property
    def heartbeat_ms(self) -> int:
        """For how long one run of it may be silent; 0 = it says nothing."""
        return self.mark.heartbeat_ms

    def policy(self, code: str, error: BaseException | None = None) -> Retry | None:
        """Its retry policy, if that is for such a failure."""
        policy = self.mark.retry
        return policy if policy is not None and policy.allows(code, error) else None


@dataclass(frozen=True, slots=True)
class UndoDef:
    name: str
    method: Method
    is_async: bool
    may_ms: int = 0  # as of a step; then it is given up
    attempt_ms: int = 0
    heartbeat_ms: int = 0

    def policy(self, code: str, error: BaseException | None = None) -> None:
        """It has none: it is tried until it is given up."""


@dataclass(frozen=True, slots=True)
class ProcedureType:
    """A declared procedure. `make` gives the instance that a step runs on."""

    name: str
    version: int
    first: str
    steps: Mapping[str, StepDef]
    undos: Mapping[str, UndoDef]
    locks: LockRule
    timeout_ms: int
    retention_ms: int
    make: Callable[[], object]
    origin: str  # module and class, for the message about a second one of this name
    accepts: frozenset[int] = frozenset()  # older versions whose records it runs, too
    pool: str = ""  # of the workers that run it; "" = whoever loads its module
    queue: str = ""  # in which it waits for its turn; "" = that of its own name
    priority: int = 0
    max_concurrent: int = 0  # begun and not ended at once; 0 = any number
    rate_per_s: float = 0.0  # begun per second; 0 = any number
    bypass: str = ""  # why it cannot be bypassed once it has begun, and what to do instead
    key: str = ""  # which field of its arguments is its key in the queue, "a.b" = b of a; "" = none
    needs: Needs = ()  # what it takes of a worker
    pinned: bool = False  # what began with this version ends with it
    since_ms: int = 0  # when workers declared it
    user: str = ""  # whose worker was the first to; "" = nobody's in particular
    replaying: bool = False  # only its code says whether it fits what a record has stored
    args: typed_values.Shape | None = None
    result: typed_values.Shape | None = None
    remote: bool = False  # known by its description only: workers run it
    needs_look: bool = False  # only they know its locks, or whether arguments fit
    typed: bool = False  # its arguments have a type, which only they know
    queries: Mapping[str, Method] = field(default_factory=dict)  # of an instance, a View, args
    validators: Mapping[str, Method] = field(default_factory=dict)  # by update: the same
    replays: Callable[[Any], str] | None = None  # of a workflow: why its code does not fit a record
    attributes: Mapping[str, str] = field(default_factory=dict)  # name → kind (attributes.py)
    apart: bool = False  # lock rule or check of arguments are users' code, which the Runner calls

    def locks_of(self, args: object) -> tuple[Lock, ...]:
        """The locks that the declaration wants for these arguments. Raises InvalidArgument."""
        try:
            if callable(self.locks):
                typed = self.args.read(args, "") if self.args is not None else args
                wanted = tuple(self.locks(typed))
            else:
                wanted = tuple(self.locks)
        except Exception as e:
            raise InvalidArgument(
                f"procedure {self.name}: its lock rule failed on these arguments: "
                f"{type(e).__name__}: {e}"
            ) from e
        if len(wanted) > PROCEDURE_LOCKS_MAX:
            raise InvalidArgument(
                f"procedure {self.name} wants {len(wanted)} locks; the limit is "
                f"{PROCEDURE_LOCKS_MAX}: lock what contains them"
            )
        for lock in wanted:
            if not isinstance(lock, Lock):
                raise InvalidArgument(
                    f"procedure {self.name}: a lock rule gives shared(…) and exclusive(…), "
                    f"not {lock!r:.80}"
                )
        return wanted

    def key_of(self, args: bytes) -> str:
        """The key that its arguments have in its queue; "" = none. Raises InvalidArgument."""
        if not self.key:
            return ""
        found = plain_data.decode(args)
        for name in self.key.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if type(found) is int:
            found = str(found)
        if type(found) is not str or not 0 < len(found) <= NONCE_CHARS_MAX:
            raise InvalidArgument(
                f"procedure {self.name}: its arguments must have {self.key}, a number or a text of "
                f"1 to {NONCE_CHARS_MAX} characters, which is its key in its queue"
            )
        return found


class Runs(Protocol):
    """What is needed of a procedures.engine.runner.Runner."""

    def runs_apart(self, name: str) -> bool: ...


def entrusted(declared: ProcedureType) -> ProcedureType:
    """A type whose steps run apart: results are checked there, and so are arguments if that may
    run code of its author, whose end nobody can promise.
    """
    asks = callable(declared.locks) or (declared.args is not None and declared.args.runs_code)
    return replace(declared, apart=asks, result=None)


class Registry:
    """The types that an executor serves."""

    def __init__(self, types: Iterable[Declared] = ()) -> None:
        self._types: dict[str, dict[int, ProcedureType]] = {}
        self._own: frozenset[str] | None = None  # None: not known yet
        self._elsewhere: dict[str, dict[int, ProcedureType]] = {}  # versions that others run
        self.deploys: dict[str, Deploy] = {}  # type → which version new ones begin with
        for cls in types:
            self.add(cls)

    def users_follow(self) -> None:
        """What was added until now is the database's own, what comes later is its users'."""
        self._own = frozenset(self._types)

    def is_own(self, name: str) -> bool:
        """Whether a type is the database's own, as far as is known: it may be a later version's."""
        return self._own is None or name in self._own or name not in self._types

    def is_builtin(self, name: str) -> bool:
        """Whether a type is the database's own for sure."""
        return self._own is not None and name in self._own

    def add(self, cls: Declared, make: Callable[[], object] | None = None) -> ProcedureType:
        """Serve a decorated class; `make` replaces its constructor. Raises InvalidArgument for a
        second one of its name.
        """
        declared = replace(declaration(cls), pool="")  # run here, whoever else could
        if make is not None:
            declared = replace(declared, make=make)
        elif inspect.isclass(cls) and (wanted := _wants_factory(cls)):
            raise _bad(
                cls,
                f"its constructor wants {', '.join(wanted)}: every step runs on a fresh instance, "
                "made without arguments; give a factory, Registry.add(cls, make=…)",
            )
        known = self._types.get(declared.name, {}).get(declared.version)
        if known is not None and not known.remote and known.origin != declared.origin:
            raise _bad(cls, f"the name {declared.name!r} is already taken by {known.origin}")
        self._types.setdefault(declared.name, {})[declared.version] = declared
        return declared

    def entrust(self, runner: Runs) -> None:
        """Leave to the runner what users' code says of arguments and results, where it runs theirs
        apart.
        """
        for declared in self.types():
            if not declared.remote and runner.runs_apart(declared.name):
                self.put(entrusted(declared))

    def put(self, declared: ProcedureType) -> None:
        """Serve a type whose class was checked before (a worker's)."""
        self._types.setdefault(declared.name, {})[declared.version] = declared

    def learn(self, described: ProcedureType) -> bool:
        """Know a type that workers run. False: this process runs that name itself."""
        versions = self._types.setdefault(described.name, {})
        if any(not known.remote for known in versions.values()):
            self._elsewhere.setdefault(described.name, {})[described.version] = described
            return False
        versions[described.version] = self.beside(described)
        return True

    def forget(self, name: str, version: int) -> None:
        """A version of workers that nobody needs; others of its name stay, and so does what this
        process runs itself.
        """
        for known in (self._types, self._elsewhere):
            versions = known.get(name, {})
            if version in versions and versions[version].remote:
                del versions[version]
                if not versions:
                    del known[name]

    def beside(self, described: ProcedureType) -> ProcedureType:
        """The same with the steps and undo methods that others declared under this version: there
        may be records that stand at them, and workers that have them.
        """
        known = self._types.get(described.name, {}).get(described.version)
        if known is None or not known.remote:
            return described
        return replace(
            described,
            steps=MappingProxyType({**known.steps, **described.steps}),
            undos=MappingProxyType({**known.undos, **described.undos}),
        )

    def find(self, name: str, version: int = 0) -> ProcedureType | None:
        """The type that runs records of this version (0 = the newest there is)."""
        versions = self._types.get(name)
        if not versions:
            return None
        if not version:
            return versions[self._for_new(name, versions, 0)]
        found = versions.get(version)
        if found is None:
            able = [v for v, known in versions.items() if version in known.accepts]
            found = versions[max(able)] if able else None
        return found

    def exact(self, name: str, version: int) -> ProcedureType | None:
        """The declaration of this very version."""
        return self._types.get(name, {}).get(version)

    def since(self, name: str) -> dict[int, int]:
        """The versions of a type → when each was declared, as far as that counts."""
        return {v: known.since_ms for v, known in self._all(name).items()}

    def ramps(self, name: str) -> bool:
        """Whether the id of a new procedure says which version it begins with."""
        return name in self.deploys and self.deploys[name].percent > 0

    def for_new(self, name: str, id: int) -> ProcedureType:
        """The version that the procedure of this id begins with (0: if no share of them had another
        one). Raises NotFound.
        """
        declared = self.get(name)
        if name not in self.deploys:
            return declared
        versions = self._all(name)
        return versions[self._for_new(name, versions, id)]

    def _all(self, name: str) -> dict[int, ProcedureType]:
        return {**self._elsewhere.get(name, {}), **self._types.get(name, {})}

    def _for_new(self, name: str, versions: Mapping[int, ProcedureType], id: int) -> int:
        newest = max(versions)
        if name not in self.deploys and newest < BY_CODE:
            return newest
        since = {v: known.since_ms for v, known in versions.items()}
        return chosen(self.deploys.get(name, NONE), since, id) or newest

    def get(self, name: str, version: int = 0) -> ProcedureType:
        """Raises NotFound, with the names that there are."""
        found = self.find(name, version)
        if found is None and name in self._types:
            raise NotFound(self.no_version(name, version), code="PROCEDURE_UNKNOWN")
        if found is None:
            near = difflib.get_close_matches(name, self._types, n=3)
            meant = f", or is {' or '.join(map(repr, near))} meant" if near else ""
            raise NotFound(
                f"there is no procedure {name!r:.80}: nobody has ever declared it; has the worker "
                f"(or the node) with its module been started{meant}?",
                code="PROCEDURE_UNKNOWN",
            )
        return found

    def no_version(self, name: str, version: int) -> str:
        """Why a record of this version cannot be run by the types of its name."""
        there = ", ".join(map(str, sorted(self._types.get(name, ()))))
        return (
            f"{name} of version {version} is not registered in this process (versions: {there}); "
            f"keep its class beside the new one, or declare accepts=[{version}]"
        )

    def names(self) -> list[str]:
        return sorted(self._types)

    def types(self) -> list[ProcedureType]:
        """All of them, by name and version."""
        return [
            versions[v] for _, versions in sorted(self._types.items()) for v in sorted(versions)
        ]


_declared: dict[tuple[str, int], Declared] = {}


def declared_below(packages: Iterable[str]) -> frozenset[str]:
    """The names of all that modules of these packages, as far as they are imported, declare."""
    below = tuple(f"{package}." for package in packages)
    return frozenset(
        name for (name, _), cls in _declared.items() if cls.__module__.startswith(below)
    )


def declared_in(modules: Iterable[str]) -> list[Declared]:
    """The procedures that these modules declare, in the order of their names."""
    wanted = set(modules)
    return [cls for _, cls in sorted(_declared.items()) if cls.__module__ in wanted]


def declaration(cls: Declared) -> ProcedureType:
    """What `@procedure` found out about a class. Raises InvalidArgument if it is not decorated."""
    found = cls.__dict__.get(_DECLARED)
    if not isinstance(found, ProcedureType):
        raise InvalidArgument(
            f"{cls!r:.80} is not a procedure: decorate a class with @kvorum.procedure(NAME), or a "
            "function with @kvorum.workflow"
        )
    return found


def procedure(
    name: str,
    *,
    locks: LockRule = (),
    timeout_ms: int = 0,
    retention_ms: int = PROCEDURE_RETENTION_MS_DEFAULT,
    version: int | str = 1,
    accepts: Iterable[int] = (),
    pool: str = "",
    queue: str = "",
    priority: int = 0,
    max_concurrent: int = 0,
    rate_per_s: float = 0,
    key: str = "",
    needs: Mapping[str, float | str] | None = None,
    pinned: bool = False,
    bypass: str = "",
    args: object = None,
    result: object = None,
    retry: Retry | None = None,
    attributes: Mapping[str, object] | None = None,
) -> Callable[[C], C]:
    """Declare a class as the procedure `name`.

    locks         shared(…)/exclusive(…) values, or a function of the arguments that gives them
    timeout_ms    what has not ended after this long fails and rolls back: a step that would end it
                  later is not committed; 0 = never
    retention_ms  how long the result is kept when nobody acknowledges it
    version       of the declaration, kept in every record; several may be declared side by side.
                  "code": made of the source of its steps, so changed code is another version
    pinned        what began with this version ends with it: a newer one neither accepts it, nor is
                  it moved to one
    accepts       older versions whose records this one runs, where theirs is not declared
    pool          the workers that run it (`kvorum worker --pool`); "" = whoever loads its module
    queue         procedures of one queue share its limits; "" = that of its own name
    priority      of those that wait, the higher one begins first
    max_concurrent, rate_per_s   how many may have begun and not ended; begin per second
    key           a field of the arguments ("customer", or "order.customer"): in its queue one of
                  each of its values runs at a time, in the order of submission
    needs         what it takes of the worker that runs it ({"gpu": 1, "memory_mib": 2048}), and
                  labels that the worker must have ({"zone": "eu"})
    bypass        why nobody may end it where it stands once its first step has been committed (it
                  would leave something that only it puts right), and what to do instead: shown to
                  whoever tries. "" = it may be bypassed
    args, result  a dataclass, msgspec.Struct, TypedDict or other type: arguments are checked at
                  submission and come as it (`ctx.args`), the result is checked when a step is done
    retry         the policy of steps that declare none of their own (retries.py)
    attributes    by which it can be found: name → kind: "text", "integer", "number", "boolean",
                  "moment", "keywords", or str, int, float, bool, datetime, list
    Raises InvalidArgument (code PROCEDURE_DECLARATION) when the class cannot be a procedure.
    """

    def declare(cls: C) -> C:
        where = f"procedure class {cls.__qualname__}"
        steps, undos = _methods(cls, _checked_retry(cls, retry))
        methods = {name: one.method for name, one in steps.items()}
        methods |= {name: one.method for name, one in undos.items()}
        declared = ProcedureType(
            name,
            version_of(cls, version, methods),
            _check_steps(cls, steps, undos),
            steps,
            undos,
            locks,
            timeout_ms,
            retention_ms,
            cls,
            f"{cls.__module__}.{cls.__qualname__}",
            accepts=frozenset(accepts),
            pool=pool,
            queue=queue,
            priority=priority,
            max_concurrent=max_concurrent,
            rate_per_s=rate_per_s,
            key=key,
            needs=checked_needs(f"{where}: needs", needs or {}),
            pinned=pinned,
            bypass=bypass,
            args=None if args is None else typed_values.shape(args, f"{where}: args"),
            result=None if result is None else typed_values.shape(result, f"{where}: result"),
            queries=_queries(cls),
            validators=_validators(cls),
            attributes=declared_attributes(where, attributes),
        )
        declare_type(cls, declared)
        return cls

    return declare


def version_of(thing: object, said: int | str, parts: Mapping[str, Method]) -> Any:
    """A version as it is declared: a number (checked with the rest), or that of the code of these
    parts. Raises InvalidArgument.
    """
    if isinstance(said, str):
        if said != CODE:
            raise _bad(thing, f'version must be a positive number or "{CODE}", got {said!r:.40}')
        return code_version(parts)
    if type(said) is int and said >= BY_CODE:
        raise _bad(thing, f"version must be below {BY_CODE}, got {said}")
    return said


def declare_type(thing: Any, declared: ProcedureType) -> None:
    """`thing`, a class or a workflow's function, stands for this type from now on. Raises
    InvalidArgument.
    """
    check_declared(thing, declared)
    other = _declared.get((declared.name, declared.version))
    taken = "" if other is None else f"{other.__module__}.{other.__qualname__}"
    if taken not in ("", declared.origin):
        raise _bad(thing, f"the name {declared.name!r} is already taken by {taken}")
    looks = callable(declared.locks) or declared.args is not None
    declared = replace(declared, needs_look=looks, rate_per_s=float(declared.rate_per_s))
    setattr(thing, _DECLARED, declared)
    setattr(thing, NAMED, declared.name)
    _declared[declared.name, declared.version] = thing


def check_declared(where: Any, declared: ProcedureType) -> None:
    """Raises InvalidArgument for what no declaration may say, wherever it comes from."""
    _check_header(where, declared)
    _check_place(where, declared)
    _check_flow(where, declared)
    _check_bypass(where, declared.bypass)


@overload
def step(method: F, /) -> F: ...
@overload
def step(
    *,
    first: bool = False,
    undo: str = "",
    point_of_no_return: bool = False,
    undo_partial: bool = False,
    early: bool = False,
    deadline_ms: int = 0,
    attempt_ms: int = 0,
    retry: Retry | None = None,
    heartbeat_ms: int = 0,
) -> Callable[[F], F]: ...
def step(
    method: F | None = None,
    /,
    *,
    first: bool = False,
    undo: str = "",
    point_of_no_return: bool = False,
    undo_partial: bool = False,
    early: bool = False,
    deadline_ms: int = 0,
    attempt_ms: int = 0,
    retry: Retry | None = None,
    heartbeat_ms: int = 0,
) -> F | Callable[[F], F]:
    """Declare a method `(self, ctx)` as a step; its name is the step's name.

    first               the procedure begins here (exactly one step)
    undo                the `@undo` method that takes back what this step did
    point_of_no_return  once this step is finished nothing is undone any more: failures are retried
                        for ever
    undo_partial        undo this step also when it failed itself. Its writes to ctx.txn were
                        dropped then; this is for effects outside the store, and the undo method
                        must cope with their being absent
    early               of a first step that is async and has no effect but what it writes to
                        ctx.txn: it may run before the submission is durable, and is committed with
                        it in one write where that is possible (docs/decisions/0520). Such a run may
                        be dropped, so the step may run for a submission that never was
    deadline_ms         a step that has not ended by then fails (DEADLINE). It counts from its first
                        run, over retries and restarts; each round of `again` has it anew. A run
                        that is under way then is ended, unless it is a plain method in the process
                        of the engine itself: that is waited for, and what it did is dropped. 0 = no
                        deadline: a run of more than a minute is shown as stuck, and goes on
    attempt_ms          one run may take so long; then it is ended (as by `deadline_ms`) and counts
                        as a failure (ATTEMPT_TIMEOUT) that `retry` may repeat. 0 = any time
    heartbeat_ms        one run may be silent for so long: it says `ctx.heartbeat(details)` more
                        often than that, or is ended (HEARTBEAT_TIMEOUT) as by `attempt_ms`; the
                        next attempt reads `ctx.last_heartbeat`. 0 = it says nothing
    retry               a policy by which it runs again after a failure, made by `kvorum.retry(…)`;
                        None = that of its type, or none: then its first failure is that of the
                        procedure
    """
    _check_duration(method, "deadline_ms", deadline_ms)
    _check_duration(method, "attempt_ms", attempt_ms)
    _checked_retry(method, retry)
    check_heartbeat(method, heartbeat_ms)
    mark = StepMark(
        *(first, undo, point_of_no_return, undo_partial, early),
        *(deadline_ms, attempt_ms, retry, heartbeat_ms),
    )

    def declare(fn: F) -> F:
        setattr(fn, _STEP, mark)
        return fn

    return declare if method is None else declare(method)


@overload
def undo(method: F, /) -> F: ...
@overload
def undo(*, give_up_ms: int = 0) -> Callable[[F], F]: ...
def undo(method: F | None = None, /, *, give_up_ms: int = 0) -> F | Callable[[F], F]:
    """Declare a method `(self, ctx)` that undoes a step. What it returns is ignored; it is retried
    until it returns.

    give_up_ms  of one whose effects are outside the store: it is given up when it is refused (an
                error that trying again does not help against), or when it has not ended so long
                after its first run, over retries and restarts. The error of the procedure says
                what was not undone (`not_undone` in its details), the rollback goes on, and its
                locks are free in the end. 0 = it is never given up
    """
    _check_duration(method, "give_up_ms", give_up_ms)

    def declare(fn: F) -> F:
        setattr(fn, _UNDO, give_up_ms)
        return fn

    return declare if method is None else declare(method)


def query(method: F) -> F:
    """Declare a method `(self, view)` or `(self, view, args)`, not async, that answers
    `db.query(id, NAME, args)` from what the procedure has stored: a View (queries.py). It changes
    nothing, and runs beside the steps.
    """
    setattr(method, _QUERY, True)
    return method


class Updates:
    """What is declared of updates: `@update.validator(NAME)`."""

    def validator(self, name: str) -> Callable[[F], F]:
        """Declare a method `(self, view)` or `(self, view, args)`, not async, that looks at every
        update of this name before it is kept: what it raises its sender gets, and nothing is
        stored. It sees what a query sees, and changes nothing. Of a workflow it is a function
        without `self`, named in `validators=`. An annotation of `args` is the type of them.
        """
        said: object = name
        if not isinstance(said, str) or not 0 < len(said) <= NAME_CHARS_MAX or SEVERAL in said:
            raise _bad(self, f"an update has a name of 1 to {NAME_CHARS_MAX} characters")

        def declare(fn: F) -> F:
            setattr(fn, _VALIDATOR, name)
            return fn

        return declare


update: Final = Updates()


def _validators(cls: type) -> Mapping[str, Method]:
    marked = (inspect.getattr_static(cls, name) for name in dir(cls))
    return checked_validators(cls, [fn for fn in marked if hasattr(fn, _VALIDATOR)], 1)


def checked_validators(thing: object, fns: Iterable[Method], before: int) -> Mapping[str, Method]:
    """By update, as they are called (`checked_query`). Raises InvalidArgument."""
    found: dict[str, Method] = {}
    for fn in fns:
        name = getattr(fn, _VALIDATOR, None)
        if name is None or not inspect.isfunction(fn):
            raise _bad(thing, f"{fn!r:.80} is no function with @kvorum.update.validator(NAME)")
        if name in found:
            raise _bad(thing, f"the update {name!r} has two validators")
        found[name] = checked_query(thing, fn.__name__, fn, before, typed=True)
    return MappingProxyType(found)


def _queries(cls: type) -> Mapping[str, Method]:
    found: dict[str, Method] = {}
    for name in dir(cls):
        fn = inspect.getattr_static(cls, name)
        if getattr(fn, _QUERY, None) is not None:
            if not inspect.isfunction(fn):
                raise _bad(cls, f"{name} must be a plain method (self, view) or (self, view, args)")
            found[name] = checked_query(cls, name, fn, 1)
    return MappingProxyType(found)


def checked_query(
    thing: object, name: str, fn: Method, before: int, *, typed: bool = False
) -> Method:
    """As it is called: with an instance, a View, and arguments. `before`: parameters of its own
    before the View. `typed`: what the annotation of the arguments says is what it gets. Raises
    InvalidArgument.
    """
    parameters = list(inspect.signature(fn).parameters)
    wanted = len(parameters) - before
    if inspect.iscoroutinefunction(fn) or not 1 <= wanted <= 2:
        raise _bad(thing, f"{name} must be plain, and take a view, or a view and args")
    said = typed_values.hints_of(fn).get(parameters[-1]) if typed and wanted == 2 else None
    kind = typed_values.shape_of(said, f"{name}: {parameters[-1]}")

    def call(instance: object, view: object, args: object) -> object:
        own = (instance,) if before else ()
        if kind is not None:
            args = kind.read(args, f"the arguments of {name}")
        return fn(*own, view, args) if wanted == 2 else fn(*own, view)

    return call


def _check_duration(where: object, what: str, ms: object) -> None:
    if type(ms) is not int or not 0 <= ms <= PROCEDURE_TIMEOUT_MS_MAX:
        raise _bad(where, f"{what} must be 0 (none) to {PROCEDURE_TIMEOUT_MS_MAX}, got {ms!r:.40}")


def check_heartbeat(where: object, ms: object) -> None:
    """Raises InvalidArgument."""
    _check_duration(where, "heartbeat_ms", ms)
    if type(ms) is int and 0 < ms < PROCEDURE_HEARTBEAT_MS_MIN:
        raise _bad(where, f"heartbeat_ms must be at least {PROCEDURE_HEARTBEAT_MS_MIN}, got {ms}")


def _checked_retry(where: object, policy: object) -> Retry | None:
    if policy is None or isinstance(policy, Retry):
        return policy
    raise _bad(where, f"retry wants a policy, kvorum.retry(…), not {policy!r:.80}")


def _methods(cls: type, policy: Retry | None) -> tuple[dict[str, StepDef], dict[str, UndoDef]]:
    steps: dict[str, StepDef] = {}
    undos: dict[str, UndoDef] = {}
    for name in dir(cls):
        fn = inspect.getattr_static(cls, name)
        mark, give_up_ms = getattr(fn, _STEP, None), getattr(fn, _UNDO, None)
        if mark is None and give_up_ms is None:
            continue
        if not inspect.isfunction(fn):
            raise _bad(cls, f"{name} must be a plain method (self, ctx)")
        if mark is not None and give_up_ms is not None:
            raise _bad(cls, f"{name} cannot be a step and an undo at once")
        if len(inspect.signature(fn).parameters) != 2:
            raise _bad(cls, f"{name} must take (self, ctx)")
        is_async = inspect.iscoroutinefunction(fn)
        if mark is not None:
            own = mark if mark.retry is not None else replace(mark, retry=policy)
            steps[name] = StepDef(name, fn, is_async, own)
        else:
            undos[name] = UndoDef(name, fn, is_async, give_up_ms or 0)
    return steps, undos


def _check_header(cls: type, declared: ProcedureType) -> None:
    name, version = declared.name, declared.version
    times = (("timeout_ms", declared.timeout_ms), ("retention_ms", declared.retention_ms))
    if not _NAME.match(name):
        raise _bad(
            cls,
            f"the name {name!r:.80} must have 1 to {NAME_CHARS_MAX} letters, digits and _ . -, "
            "beginning with a letter or _",
        )
    for what, value in times:
        if type(value) is not int or not 0 <= value <= PROCEDURE_TIMEOUT_MS_MAX:
            raise _bad(cls, f"{what} must be 0 to {PROCEDURE_TIMEOUT_MS_MAX}, got {value!r:.40}")
    if type(version) is not int or version < 1:
        raise _bad(cls, f"version must be a positive number, got {version!r:.40}")


def _check_place(cls: type, declared: ProcedureType) -> None:
    older, version, priority = declared.accepts, declared.version, declared.priority
    if any(type(v) is not int or not 0 < v < version for v in older):
        raise _bad(cls, f"accepts names versions below {version}, got {sorted(older)!r:.60}")
    if len(older) > PROCEDURE_VERSIONS_MAX:
        raise _bad(cls, f"accepts has {len(older)} versions, the limit is {PROCEDURE_VERSIONS_MAX}")
    for what, name in (("pool", declared.pool), ("queue", declared.queue)):
        if name and not _NAME.match(name):
            raise _bad(
                cls,
                f"the {what} {name!r:.80} must have 1 to {NAME_CHARS_MAX} letters, digits and "
                "_ . -, beginning with a letter or _",
            )
    key: object = declared.key
    if not isinstance(key, str) or len(key) > NAME_CHARS_MAX:
        raise _bad(cls, f"key must name a field of the arguments, got {key!r:.60}")
    if type(priority) is not int or abs(priority) > PROCEDURE_PRIORITY_MAX:
        raise _bad(
            cls,
            f"priority must be −{PROCEDURE_PRIORITY_MAX} to {PROCEDURE_PRIORITY_MAX}, got "
            f"{priority!r:.40}",
        )


def _check_flow(cls: type, declared: ProcedureType) -> None:
    max_concurrent, rate_per_s = declared.max_concurrent, declared.rate_per_s
    if type(max_concurrent) is not int or not 0 <= max_concurrent <= PROCEDURE_CONCURRENT_MAX:
        raise _bad(
            cls,
            f"max_concurrent must be 0 to {PROCEDURE_CONCURRENT_MAX}, got {max_concurrent!r:.40}",
        )
    if type(rate_per_s) not in (int, float) or not 0 <= rate_per_s <= PROCEDURE_RATE_MAX:
        raise _bad(cls, f"rate_per_s must be 0 to {PROCEDURE_RATE_MAX}, got {rate_per_s!r:.40}")


def _check_bypass(cls: type, bypass: object) -> None:
    if not isinstance(bypass, str) or len(bypass) > SURGERY_REASON_CHARS_MAX:
        raise _bad(
            cls,
            "bypass says why it cannot be bypassed, and what to do instead, in at most "
            f"{SURGERY_REASON_CHARS_MAX} characters, got {bypass!r:.80}",
        )


def _wants_factory(cls: type) -> list[str]:
    """The arguments that its constructor cannot do without: the engine calls it without any."""
    parameters = list(inspect.signature(cls).parameters.values())
    return [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


def _check_steps(cls: type, steps: dict[str, StepDef], undos: dict[str, UndoDef]) -> str:
    firsts = [s.name for s in steps.values() if s.mark.first]
    if len(firsts) != 1:
        raise _bad(cls, f"exactly one step must be @step(first=True), found {firsts or 'none'}")
    for s in steps.values():
        if s.mark.undo and s.mark.undo not in undos:
            raise _bad(
                cls, f"step {s.name} names undo={s.mark.undo!r}, which is no @undo method of it"
            )
        if s.mark.undo_partial and not s.mark.undo:
            raise _bad(cls, f"step {s.name} has undo_partial=True but no undo")
        if s.mark.early:
            _check_early(cls, s)
    unused = sorted(set(undos) - {s.mark.undo for s in steps.values()})
    if unused:
        raise _bad(cls, f"no step names the @undo method {', '.join(unused)}")
    return firsts[0]


def _check_early(cls: type, s: StepDef) -> None:
    if not s.mark.first or not s.is_async:
        raise _bad(cls, f"step {s.name} has early=True: that is for a first step that is async")
    if s.mark.undo_partial:
        raise _bad(
            cls,
            f"step {s.name} has early=True and undo_partial=True: one says that it has effects "
            "outside the store, the other that it has none",
        )


def _bad(cls: object, why: str) -> KvorumError:
    where = getattr(cls, "__qualname__", repr(cls)[:80])
    return InvalidArgument(f"procedure class {where}: {why}", code="PROCEDURE_DECLARATION")
