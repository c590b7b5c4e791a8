"""How a route of FastAPI is declared, in one place: its path, who may ask, what it takes and gives.

    @ROUTES.on("POST", "/v1/partitions/{id}/move", OPERATE_CLUSTER, _STARTED, ok=202)
    async def move(node: Node, id: Id, body: Move) -> Plain:
        \"\"\"Move a replica

        From node `from` to node `to`, by a procedure.
        \"\"\"

A handler gets its parameters checked and returns plain data; server/fastapi_app.py makes JSON or
msgpack of it. The first line of its docstring is the summary of the route, the rest its
description. Values are checked by the kinds of wire/fields.py, as those of the hot routes; FastAPI
finds the parameters and writes them into the OpenAPI document.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from fastapi import Depends, Request
from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    PlainValidator,
    model_validator,
)

from kv.base import rights
from kv.base.errors import Forbidden, InvalidArgument, KvorumError, TooLarge, Unavailable
from kv.base.rights import LOOPBACK, Action, Book, Identity, Resource, types_seen
from kvorum.api.backend import Backend
from kvorum.http.routes.leases import Leases
from kvorum.http.routes.rights import Right
from kvorum.http.routes.route import OBJECT
from kvorum.http.wire import fields
from kvorum.http.wire import request as http
from kvorum.http.wire.codec import Reply
from kvorum.http.wire.console_sessions import Visits
from kvorum.http.wire.fields import Kind, Schema
from kvorum.security.oidc_login import Logins
from procedures.engine import plain_data
from sqlproxy.catalog.guard import Guard

Plain = plain_data.Plain
Endpoint = Callable[..., Awaitable[object]]
E = TypeVar("E", bound=Endpoint)


class Services(NamedTuple):
    """What handlers need of the node or proxy that serves them."""

    backend: Backend
    not_ready: Callable[[], str | None]
    metrics: Callable[[], Reply]
    document: Callable[[], Awaitable[bytes]]
    """This API, for programs, …"""
    page: Callable[[], Awaitable[bytes]]
    """… and for people."""
    guard: Guard
    visits: Visits
    logins: Logins | None = None
    """To the console, by an issuer."""
    notice: str = ""
    """What whoever looks at it should know, in words."""
    leases: Leases | None = None
    """Workers that speak HTTP; None: they are served by nodes."""
    sql: Callable[..., Awaitable[Plain]] | None = None
    """Runs a statement (kvorum/sql/http_statements.py); None: SQL is switched off here."""


async def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


async def _backend(request: Request) -> Backend:
    return (await services(request)).backend


async def _asked(request: Request) -> http.Request:
    found: http.Request = request.scope[ASKED]
    return found


async def _identity(request: Request) -> Identity:
    return (await _asked(request)).identity


ASKED: Final = "kvorum.request"  # where a scope has the request of kvorum/http/wire
Node = Annotated[Backend, Depends(_backend)]
Me = Annotated[Identity, Depends(_identity)]
Asked = Annotated[http.Request, Depends(_asked)]
Here = Annotated[Services, Depends(services)]


def sees(asked: http.Request, resource: Resource, action: Action = Action.READ) -> bool:
    """Whether who asks may read that, or do something else with it: what he may not see is left out
    of what he is answered.
    """
    if asked.may is None:
        return True
    try:
        asked.may(frozenset({action}), resource)
    except Forbidden:
        return False
    return True


def book_of(asked: http.Request, here: Services) -> Book | None:
    """By which is left out what he may not see; None: he sees all. Raises Unavailable: it is not
    known now.
    """
    if asked.may is None:
        return None
    if here.guard.book is None:
        raise Unavailable("users and rights cannot be read now: ask again in a moment")
    return here.guard.book


def types_of(asked: http.Request, here: Services) -> list[str] | None:
    """Types of procedures that who asks may see, as grants write them; None: all. They go with a
    question for a list: what he may not see must not even be looked at. Raises Unavailable.
    """
    book = book_of(asked, here)
    if book is None or sees(asked, Resource(rights.Kind.PROCEDURE_TYPE, "*")):
        return None
    return sorted(types_seen(asked.identity, book))


def submitter(me: Identity) -> Plain:
    """In whose name a procedure begins, if that is known: an option of its submission."""
    return {} if me == LOOPBACK else {"owner": me.name}


class Declared(NamedTuple):
    """A route, whole. `shown`: in the documents."""

    method: str
    path: str
    right: Right
    tag: str
    endpoint: Endpoint
    answer: Schema
    ok: int
    errors: tuple[int, ...]
    raw_answer: str
    shown: bool

    @property
    def summary(self) -> str:
        return self._docstring()[0]

    @property
    def description(self) -> str:
        return " ".join(self._docstring()[2].split())

    def _docstring(self) -> tuple[str, str, str]:
        return (inspect.getdoc(self.endpoint) or "").partition("\n")


class Routes:
    """The routes of one tag."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.declared: list[Declared] = []

    def on(
        self,
        method: str,
        path: str,
        right: Right,
        answer: Schema = OBJECT,
        *errors: int,
        ok: int = 200,
        raw_answer: str = "",
        shown: bool = True,
    ) -> Callable[[E], E]:
        """Declare what a request does; `errors`: the statuses of refusals, besides 400."""

        def add(endpoint: E) -> E:
            found = (method, path, right, self._tag, endpoint, answer, ok, errors, raw_answer)
            self.declared.append(Declared(*found, shown=shown))
            return endpoint

        return add


# ------------------------------------------------------------------------------- parameters, bodies


@dataclass(frozen=True, slots=True)
class As:
    """A value of this kind: `Annotated[int, As(integer(1, 9))]`."""

    kind: Kind

    def __get_pydantic_core_schema__(self, source: type, handler: GetCoreSchemaHandler) -> object:
        return PlainValidator(self._checked).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> Schema:
        return dict(self.kind.schema)

    def _checked(self, value: object) -> object:
        try:
            return self.kind.convert(value, "")
        except InvalidArgument as e:
            raise ValueError(e.message) from None  # what pydantic takes for a wrong value


def _digits(low: int, high: int) -> Kind:
    whole = fields.integer(low, high)

    def convert(value: str, where: str) -> object:
        digits = value.removeprefix("-") if low < 0 else value
        good = digits.isascii() and digits.isdigit() and len(digits) < 20
        return whole.convert(int(value) if good else value, where)

    return Kind(convert, whole.schema)


def _flag(value: str, where: str) -> bool:
    if value not in ("true", "false"):
        raise fields.wrong(where, "true or false", value)
    return value == "true"


def digits(low: int, high: int) -> As:
    """A whole number in a query string."""
    return As(_digits(low, high))


Flag = Annotated[bool, As(Kind(_flag, fields.BOOL.schema))]
Id = Annotated[int, As(fields.VERSION)]
Text = Annotated[str, As(fields.TEXT)]
Data = Annotated[bytes, As(fields.DATA)]
TextOrNone = Annotated[str | None, As(fields.TEXT)]
BoolOrNone = Annotated[bool | None, As(fields.BOOL)]


class Body(BaseModel):
    """A JSON object or a msgpack map of these fields and no others; null counts as left out."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, body: object) -> object:
        if not isinstance(body, Mapping):
            raise ValueError(fields.wrong("", "an object", body).message)
        known = {field.alias or name: field for name, field in cls.model_fields.items()}
        for name, field in known.items():
            if field.is_required() and body.get(name) is None:
                raise ValueError(f" lacks the field {name!r}")
        for name in body:
            if name not in known:
                listed = ", ".join(sorted(known))
                shown = str(name)[:60]
                raise ValueError(f" has an unknown field {shown!r}; known are {listed}")
        return {name: value for name, value in body.items() if value is not None}

    def given(self) -> Plain:
        """The fields that are there, by their names in the body."""
        return self.model_dump(exclude_unset=True, by_alias=True)


class Nothing(Body):
    """A body that says nothing."""


def refused(errors: Sequence[Mapping[str, Any]]) -> KvorumError:
    """The first of FastAPI's errors, as this API says it."""
    error = errors[0]
    where = ""
    for part in error["loc"][1:]:
        where += f"[{part}]" if isinstance(part, int) else f"{'.' if where else ''}{part}"
    where = where or "the body"
    context = error.get("ctx", {})
    match error["type"]:
        case "value_error":
            return InvalidArgument(f"{where}{context['error']}")
        case "too_long":
            limit, actual = context["max_length"], context["actual_length"]
            return TooLarge(
                f"{where} has {actual} items, the limit is {limit}; use several requests",
                details={"what": f"{where} items", "limit": limit, "actual": actual},
            )
        case "list_type":
            return fields.wrong(where, "a list", error["input"])
        case "missing":
            return fields.wrong(where, "an object", None)
        case _:
            return InvalidArgument(f"{where}: {error['msg']}")
