"""What operators do to procedures: abort, bypass, retry, steal, explain, and the audit of what was
done (docs/guides/operations.md).

Each action wants a reason, and keeps it, with who did it (`actor`; user and machine if left out).
`dry_run` changes nothing and answers what would change:

    id, what, dry_run, changed, count, procedures: [{procedure, name, before, after, locks_released,
    undoes?, refuses?}, …], why? (if nothing changes)
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from datetime import datetime

from kv.base.ports import Rng
from kvorum.api import site_links
from kvorum.api.backend import Backend
from kvorum.api.model import ProcedureInfo
from kvorum.api.replays import Replay
from kvorum.api.submit_options import moment_ms
from kvorum.sdk.tables import snapshot_at
from procedures.engine.plain_data import Plain
from procedures.engine.registry import Declared, declaration

Answer = Plain


class AsyncOperating:
    """A part of `AsyncDatabase`."""

    _backend: Backend
    _rng: Rng

    async def abort_procedure(
        self, procedure: int, reason: str, *, dry_run: bool = False, actor: str = ""
    ) -> Answer:
        """Make a procedure fail and roll back. A step under way gets a moment to end; then it is
        not waited for, and what it still writes is refused. Raises Refused (NOT_ABORTABLE).
        """
        return await self._operate("abort", reason, actor, id=procedure, dry_run=dry_run)

    async def bypass_procedure(
        self,
        procedure: int,
        reason: str,
        *,
        override: bool = False,
        recursive: bool = False,
        dry_run: bool = False,
        actor: str = "",
    ) -> Answer:
        """End a procedure where it stands: nothing more of it runs, nothing is undone, its locks
        end. `override`: also while a step is under way; `recursive`: with all below it. Raises
        Refused (UNDER_WAY, HAS_CHILDREN, NOT_BYPASSABLE).
        """
        return await self._operate(
            "bypass",
            *(reason, actor),
            id=procedure,
            override=override,
            recursive=recursive,
            dry_run=dry_run,
        )

    async def retry_procedure(
        self,
        procedure: int,
        reason: str,
        *,
        step: str = "",
        dry_run: bool = False,
        actor: str = "",
    ) -> Answer:
        """Let a procedure go on at once, from `step` if one is given. Raises Refused
        (NOT_RETRYABLE), InvalidArgument (STEP_UNKNOWN).
        """
        return await self._operate("retry", reason, actor, id=procedure, step=step, dry_run=dry_run)

    async def reset_procedure(
        self,
        procedure: int,
        reason: str,
        *,
        step: str = "",
        state: Mapping[str, object] | None = None,
        args: object = None,
        undo: str = "undo",
        children: str = "refuse",
        dry_run: bool = False,
        actor: str = "",
    ) -> Answer:
        """Have a procedure go on from an earlier step, also one that has ended: `redone`, `kept`,
        `undone` say what that means. Of a workflow: from a call, by its name or its place ("#3").

        state, args  other ones than it has
        undo         "undo": what it did from there on is undone first; "keep": it stays
        children     "refuse", or "end": those that have not ended are ended with it
        Raises Refused (NOT_RESETTABLE, HAS_CHILDREN), InvalidArgument (STEP_UNKNOWN).
        """
        more = {"args": args, "state": state, "undo": undo, "children": children}
        return await self._operate(
            "reset", reason, actor, id=procedure, step=step, dry_run=dry_run, **more
        )

    async def fork_procedure(
        self,
        procedure: int,
        reason: str,
        *,
        step: str = "",
        state: Mapping[str, object] | None = None,
        args: object = None,
        dry_run: bool = False,
        actor: str = "",
    ) -> Answer:
        """Begin a new procedure (`forked`) where another one is, or at a step of it, with its state
        and arguments or others; that one stays as it is. Raises as `reset_procedure` does.
        """
        more = {"args": args, "state": state}
        return await self._operate(
            "fork", reason, actor, id=procedure, step=step, dry_run=dry_run, **more
        )

    async def bulk(
        self,
        what: str,
        reason: str,
        *,
        options: Mapping[str, object] | None = None,
        dry_run: bool = False,
        actor: str = "",
        **wanted: object,
    ) -> Answer:
        """One action on all procedures that fit (`search` has the filters): "abort", "retry",
        "bypass", "reset", "signal" (`options={"name": …, "payload": …}`), "pause", "resume",
        "forget". A durable procedure does it, whose `id` this gives; its result says how many were
        `changed`, `unchanged` and `refused`. `dry_run`: `count`, and the first `items`.
        """
        request: dict[str, object] = {"what": what, "reason": reason, "actor": actor or myself()}
        request |= {"filter": _filter(wanted), "options": options or {}, "dry_run": dry_run}
        if not dry_run:
            request["key"] = self._rng.token(12).hex()
        found = dict(await self._backend.control("bulk", request))
        return {**found, "id": int(found["id"])} if "id" in found else found

    async def set_retention(
        self,
        *,
        type: str = "",
        state: str = "",
        keep_ms: int | None = None,
        most: int | None = None,
    ) -> Answer:
        """How long ended procedures of a type (all, if left out) in a state are kept, and how many,
        the newest, instead of what declarations say. The most exact rule counts.
        """
        request = {"type": type, "state": state, "keep_ms": keep_ms, "most": most}
        request = {name: value for name, value in request.items() if value not in (None, "")}
        return dict(await self._backend.control("retention.set", request))

    async def remove_retention(self, *, type: str = "", state: str = "") -> None:
        """Raises NotFound (RULE_NOT_FOUND)."""
        request = {"type": type, "state": state}
        request = {name: value for name, value in request.items() if value}
        await self._backend.control("retention.remove", request)

    async def retention(self) -> list[Answer]:
        """All rules."""
        return list(await self._backend.control("retention.list", {}))

    async def steal_lock(
        self,
        resource: str,
        reason: str,
        *,
        holder: int = 0,
        dry_run: bool = False,
        actor: str = "",
    ) -> Answer:
        """Take a lock from all who hold it, or from one: the next one in the queue gets it, and
        late writes of the old holder are refused. Raises NotFound (LOCK_NOT_HELD).
        """
        request = {"resource": resource, "holder": str(holder) if holder else None}
        return await self._operate("steal", reason, actor, **request, dry_run=dry_run)

    async def search(self, *, limit: int = 100, token: str = "", **wanted: object) -> Answer:
        """Procedures that fit all of this, as long as they are kept: `items` (ProcedureInfo), and a
        `token` with which to ask on; "": these are all. What has not ended comes first, the newest
        first; then what has, the last to end first; by attributes the newest submission first.

        type, state, owner, queue, pool, schedule, parent   (of type and state several, too)
        error            the beginning of the error's code, class or message
        submitted_from, submitted_to, ended_from, ended_to  datetimes, or ms since 1970
        where            conditions on attributes: "customer=ada", ["amount>=100", "city^=New"]
        Raises InvalidArgument, TooLarge (a range that very many fit).
        """
        request = {**_filter(wanted), "limit": limit}
        if token:
            request["token"] = token
        found = dict(await self._backend.control("search", request))
        return {**found, "items": [ProcedureInfo.of(one) for one in found["items"]]}

    async def count_procedures(self, **wanted: object) -> Answer:
        """How many fit (see `search`), of each type and state; `more`: of very many not all are
        counted.
        """
        return dict(await self._backend.control("count", _filter(wanted)))

    async def explain_procedure(self, procedure: int) -> Answer:
        """What it waits for, since when, and who has it: `sentence`, and `waits` as data."""
        return dict(await self._backend.control("explain", {"id": procedure}))

    async def replay_procedure(
        self,
        procedure: int,
        code: Declared,
        *,
        step: str = "",
        last: int = 1,
        at: int | str | None = None,
    ) -> Replay:
        """Execute a step again with this code, on the snapshot that it had: what it would write and
        answer, compared with what it did. Nothing is written; effects outside are refused. `step`:
        its newest execution, or the `last`-th from the end, before the moment `at`; left out, of
        any step. Native connections only. Raises NotFound, SnapshotTooOld, Refused
        (NOT_REPLAYABLE).
        """
        from kvorum.sdk.replaying import replayed  # who only uses the database needs no engine

        moment = snapshot_at(at)
        types = declaration(code)
        return await replayed(self._backend, procedure, types, step=step, last=last, at=moment)

    async def audit(self, procedure: int = 0, *, limit: int = 100, before: int = 0) -> list[Plain]:
        """What was done to procedures (or to one), the newest first; `before`: a number."""
        found: list[Plain] = []
        while True:  # one answer has looked at so many at most
            said = {"id": procedure or None, "limit": limit - len(found), "before": before or None}
            page = await self._backend.control("audit.page", said)
            found += page["items"]
            before = page.get("before", 0)
            if not before or len(found) >= limit:
                return found

    async def sites(self) -> list[Plain]:
        """The links to other clusters, and what each of them does (docs/guides/sites.md)."""
        return await site_links.links(self._backend)

    async def site_conflicts(self, *, limit: int = 100) -> list[Plain]:
        """The latest keys that two clusters wrote, neither knowing of it, and what was kept."""
        return await site_links.conflicts(self._backend, limit)

    async def remove_site(self, site: str, reason: str, *, actor: str = "") -> Answer:
        """End a link: nothing more is taken over, rows stay. Raises NotFound (SITE_NOT_FOUND)."""
        procedure = await site_links.procedure_of(self._backend, site)
        return await self._operate("abort", reason, actor, id=procedure, dry_run=False)

    async def _operate(self, what: str, reason: str, actor: str, **request: object) -> Answer:
        request |= {"reason": reason, "actor": actor or myself()}
        if not request["dry_run"]:
            request["key"] = self._rng.token(12).hex()  # asked again, it is not done again
        return dict(await self._backend.control(what, request))


def _filter(wanted: dict[str, object]) -> Plain:
    """As a request says it."""
    return {
        name: moment_ms(name, value) if isinstance(value, datetime) else value
        for name, value in wanted.items()
        if value is not None
    }


def myself() -> str:
    """Who this process acts for, as far as it knows."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
