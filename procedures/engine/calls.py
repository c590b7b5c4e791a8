"""What a workflow waits for: calls, all of several, or the first of them; and what they give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from kv.base import limits
from kv.base.errors import InvalidArgument
from procedures.engine import core, plain_data
from procedures.engine.journal import CHILD, DONE, EXTERNAL, FAILED, OPEN, Entry
from procedures.engine.retries import Retry
from procedures.engine.step_exceptions import StepFailed
from procedures.engine.typed_values import Shape, hints_of, plain_of, shape_of

T = TypeVar("T")
_SHAPES_MAX: Final = 1_024


class Flows(Protocol):
    """What is needed of a Flow."""

    async def _awaited(self, waits: Waits[T]) -> T: ...

    def _got(self, waits: Waits[T]) -> T: ...

    def _token_of(self, call: Call[Any]) -> str: ...

    def _typed(self, call: Call[Any]) -> Any: ...


class Waits(Generic[T]):
    """Something that a function can wait for."""

    __slots__ = ("flow",)

    def __init__(self, flow: Flows) -> None:
        self.flow = flow

    def __await__(self) -> Generator[Any, Any, T]:
        return self.flow._awaited(self).__await__()

    def get(self) -> T:
        """What it gives, in a plain function."""
        result: T = self.flow._got(self)
        return result

    def calls(self) -> Sequence[Call[Any]]:
        raise NotImplementedError

    def enough(self) -> bool:
        """Whether there is a result."""
        return all(call.entry.status != OPEN for call in self.calls())

    def result(self) -> T:
        """Once there is enough for one."""
        raise NotImplementedError


class Call(Waits[T]):
    """One call of a workflow; awaiting it gives its result. Raises StepFailed."""

    __slots__ = ("args", "asked", "at", "entry", "fn", "heartbeat_ms", "policy", "undo")

    def __init__(
        self,
        flow: Flows,
        at: int,
        entry: Entry,
        fn: Callable[..., Any] | None = None,
        args: tuple[Any, ...] = (),
        undo: Callable[..., Any] | None = None,
        policy: Retry | None = None,
        heartbeat_ms: int = 0,
    ) -> None:
        super().__init__(flow)
        self.at, self.entry, self.heartbeat_ms = at, entry, heartbeat_ms
        self.fn, self.args, self.undo, self.policy = fn, args, undo, policy
        self.asked = False  # whether this execution has waited for it, alone or with others

    @property
    def id(self) -> int:
        """Of `flow.start(…)`: of the procedure, as soon as that is stored: in what runs after the
        next call. 0 before.
        """
        if self.entry.kind != CHILD:
            raise InvalidArgument(f"{self.entry.text} has no id: only flow.start(…) has one")
        return max(0, self.entry.seq)

    @property
    def token(self) -> str:
        """Of `flow.external()`: what the outside system completes it with."""
        if self.entry.kind != EXTERNAL:
            raise InvalidArgument(f"{self.entry.text} has no token: only flow.external() has one")
        return self.flow._token_of(self)

    def calls(self) -> Sequence[Call[Any]]:
        return (self,)

    def result(self) -> T:
        if self.entry.status == FAILED:
            raise StepFailed(core.failure(**self.entry.value))
        value: T = self.flow._typed(self)
        return value


class Gather(Waits[list[Any]]):
    """All of them."""

    __slots__ = ("_all", "errors")

    def __init__(self, flow: Flows, calls: Sequence[Call[Any]], errors: bool) -> None:
        super().__init__(flow)
        self._all, self.errors = calls, errors

    def calls(self) -> Sequence[Call[Any]]:
        return self._all

    def result(self) -> list[Any]:
        found: list[Any] = []
        for call in (*self._failed(), *self._all):
            try:
                found.append(call.result())
            except StepFailed as error:
                if not self.errors:
                    raise
                found.append(error)
        return found

    def enough(self) -> bool:
        return bool(self._failed()) or super().enough()

    def _failed(self) -> list[Call[Any]]:
        """Those with which all has failed."""
        return [] if self.errors else [call for call in self._all if call.entry.status == FAILED]


class First(Waits[tuple[int | None, Any]]):
    """The first of them, by the entry that says which it was."""

    __slots__ = ("_all", "_timer", "entry")

    def __init__(
        self, flow: Flows, entry: Entry, calls: Sequence[Call[Any]], timer: Call[Any] | None
    ) -> None:
        super().__init__(flow)
        self.entry, self._all, self._timer = entry, calls, timer

    def calls(self) -> Sequence[Call[Any]]:
        return self._all if self._timer is None else (*self._all, self._timer)

    def enough(self) -> bool:
        settled = any(call.entry.status != OPEN for call in self.calls())
        return self.entry.status != OPEN or settled

    def result(self) -> tuple[int | None, Any]:
        if self.entry.status == OPEN:
            which = next(i for i, call in enumerate(self.calls()) if call.entry.status != OPEN)
            self.entry.status, self.entry.value = DONE, which
        which = self.entry.value
        if which >= len(self._all):
            return None, None
        return which, self._all[which].result()


def plain_result(call: Call[object], value: object) -> object:
    what = f"the result of {call.entry.name}"
    assert call.fn is not None, what
    kind = result_shape(call.fn)
    plain = plain_of(value, what) if kind is None else kind.plain(value, what)
    return plain_data.decode(plain_data.encode(plain, what, limits.PROCEDURE_STATE_BYTES_MAX))


def name_of(fn: Callable[..., object]) -> str:
    name = getattr(fn, "__name__", "")
    return name if isinstance(name, str) else ""


# By code and annotation: functions may be made anew every time.
_shapes: dict[object, Shape | None] = {}


def result_shape(fn: Callable[..., object]) -> Shape | None:
    # Functions that one decorator made share its code, and those of one factory their code, too.
    said = getattr(fn, "__annotations__", {}).get("return")
    key = getattr(inspect.unwrap(fn), "__code__", None), said
    try:
        known = key in _shapes
    except TypeError:  # an annotation that has no hash
        return _read_shape(fn)
    if not known:
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        _shapes[key] = _read_shape(fn)
    return _shapes[key]


def _read_shape(fn: Callable[..., object]) -> Shape | None:
    return shape_of(hints_of(fn).get("return"), f"the result of {name_of(fn)}")
