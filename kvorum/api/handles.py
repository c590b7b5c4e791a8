"""A workflow that was started, with the type of its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from procedures.engine.flow import Flow
from procedures.engine.registry import declaration

A = TypeVar("A")
T = TypeVar("T")
Workflow = Callable[[Flow, A], Awaitable[T]]
"""An async function of `(flow, args)`."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """`id` of a procedure; `earlier`: why it is one that was submitted before: "deduplicated",
    "debounced"; "" = it is a new one.
    """

    id: int
    earlier: str = ""


@dataclass(frozen=True, slots=True)
class Handle(Generic[T]):
    """`id` is for everything else that can be done with a procedure; `db.result(handle)` gives a T
    instead of plain data.
    """

    id: int
    workflow: Workflow[Any, T]

    def read(self, result: object) -> T:
        """The result as its type. Raises InvalidArgument: it is that of another version."""
        kind = declaration(self.workflow).result
        return cast("T", result if kind is None else kind.read(result, f"the result of {self.id}"))
