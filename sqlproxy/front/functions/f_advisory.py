"""Advisory locks: pg_advisory_lock and its like, by the names of their C functions. They ask the
environment; what that means is sqlproxy.session.state.session_locks's.
"""

from __future__ import annotations

from typing import Any, Final

from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions.function import Function, with_env


def _locking(verb: str, exclusive: bool, transaction: bool) -> Function:
    def call(env: Env, *numbers: int) -> Any:
        answer = env.advisory(verb, numbers, exclusive, transaction)
        return "" if verb in ("lock", "unlock_all") else answer

    return with_env(call)


def _all() -> dict[str, Function]:
    found = {"pg_advisory_unlock_all": _locking("unlock_all", True, False)}
    for mode, exclusive in (("", True), ("_shared", False)):
        for numbers in ("int8", "int4"):
            ending = f"lock{mode}_{numbers}"
            found[f"pg_advisory_un{ending}"] = _locking("unlock", exclusive, False)
            for part in ("", "xact_"):
                transaction = bool(part)
                found[f"pg_advisory_{part}{ending}"] = _locking("lock", exclusive, transaction)
                found[f"pg_try_advisory_{part}{ending}"] = _locking("try", exclusive, transaction)
    return found


FUNCTIONS: Final = _all()
