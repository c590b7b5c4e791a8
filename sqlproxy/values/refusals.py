"""Refusals of what SQL declares, in the words of both worlds: KvorumErrors that carry PostgreSQL's
SQLSTATE, message, DETAIL and HINT through a procedure to the session (`sqlproxy.values.errors`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kv.base.errors import InvalidArgument, KvorumError, Refused


def refusal(
    sqlstate: str,
    message: str,
    *,
    detail: str = "",
    hint: str = "",
    kind: type[KvorumError] = Refused,
    code: str | None = None,
    **about: object,
) -> KvorumError:
    """An error of this kind. `about`: what its details say besides, for programs."""
    details = {"sqlstate": sqlstate, "sql_message": message, **about}
    if detail:
        details["sql_detail"] = str(detail)  # of one that knows more, what all see
    if hint:
        details["sql_hint"] = hint
    said = ". ".join(part for part in (message, detail.rstrip("."), hint.rstrip(".")) if part)
    return kind(said, code=code, details=details)


invalid: Final = partial(refusal, kind=InvalidArgument)
"""A `refusal` of what was asked for, not of how things are."""


DROP_TOO: Final = "Use DROP ... CASCADE to drop the dependent objects too."


def dependents(what: str, found: list[str]) -> KvorumError:
    """2BP01: `what` ("table a") cannot be dropped without these ("view v depends on table a")."""
    return refusal(
        "2BP01",
        f"cannot drop {what} because other objects depend on it",
        detail="\n".join(found),
        hint=DROP_TOO,
        code="HAS_DEPENDENTS",
    )


def fields_in(raw: object, what: str, known: frozenset[str]) -> Mapping[str, Any]:
    """A map that has no other fields. Raises InvalidArgument."""
    if not isinstance(raw, Mapping):
        raise InvalidArgument(f"{what} must be a map, got {raw!r:.80}")
    if unknown := sorted(map(str, set(raw) - known)):
        raise InvalidArgument(
            f"{what}: unknown field {unknown[0]!r:.60}; there are {', '.join(sorted(known))}"
        )
    return raw
