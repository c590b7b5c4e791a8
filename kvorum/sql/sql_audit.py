"""What the log of requests (kvorum/audit) says of SQL: one line for each decision on a statement,
and for each login. Texts of statements are not in it: they have values, and passwords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kv.base.ids import FIRST_USER_TABLE
from kv.base.rights import Identity
from kvorum.audit.audit_log import OK, Asker, Stamp, StampLog
from sqlproxy.values.errors import SqlError

SURFACE: Final = "sql"
_REQUEST_BYTES: Final = 8


class SqlAudit:
    """sqlproxy.session.shared.services.Audit, and what the server tells of logins."""

    def __init__(self, log: StampLog, token: Callable[[int], bytes]) -> None:
        self._log, self._token = log, token

    def decided(
        self,
        identity: Identity,
        address: str,
        said: str,
        what: str,
        relations: Iterable[int],
        refused: SqlError | None,
    ) -> None:
        """`what`: the kind of statement; `relations`: ids of what it reads and changes."""
        code = OK if refused is None else refused.sqlstate
        denied = "" if refused is None else refused.message
        tables = sorted({one for one in relations if one >= FIRST_USER_TABLE})
        request = self._token(_REQUEST_BYTES).hex()
        asker = Asker(identity.name, identity.credential, request, said, denied)
        self._log.add(Stamp(SURFACE, address, what, tables=tables, code=code, asker=asker))

    def login(self, who: Identity, address: str, refused: SqlError | None) -> None:
        """Who was let in from where; or, as he said, who was not, and why."""
        code = OK if refused is None else refused.sqlstate
        denied = "" if refused is None else refused.message
        asker = Asker(who.name, who.credential, self._token(_REQUEST_BYTES).hex(), "", denied)
        self._log.add(Stamp(SURFACE, address, "login", code=code, asker=asker))
