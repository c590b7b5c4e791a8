"""Versions of types side by side: which one new procedures begin with, who has which, and the way
from one to another.

    version.page      name?                                     every type, every version of it
    version.set       name, default?, ramp?, percent?, drain?, undrain?
    version.rollback  name                                      new ones begin as before
    version.move      name, to, from?, dry_run?, partial?,      live ones go on with `to`, so many
                      reason, actor, after?                     at a time; ask on `after` that id

A version is safe to stop when no new ones begin with it, and nothing that is live needs it: then
its workers may go. What may move is told by the rule of `kvorum proc check-upgrade`: what the
record names is there, and the code of a workflow makes the calls that are stored, as a worker says
that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, NotFound, Refused
from kv.base.ops import put
from procedures.engine import core, deploys, plain_data
from procedures.engine.audit import Seen
from procedures.engine.deploys import Deploy
from procedures.engine.plain_data import Plain
from procedures.engine.queries import FITS
from procedures.engine.records import Record
from procedures.engine.registry import ProcedureType, Registry
from procedures.engine.submission import checked_text
from procedures.pools import messages, rows

if TYPE_CHECKING:
    from procedures.engine.executor import Executor
    from procedures.pools.assignment import Hand


class Versions:
    """Of one executor."""

    def __init__(self, executor: Executor) -> None:
        assert executor.crew is not None
        assert executor.rows is not None
        self._executor, self._crew, self._rows = executor, executor.crew, executor.rows
        self._types = executor.types

    # ------------------------------------------------------------------------------ who has what
    async def listed(self, args: Plain, seen: Seen = None) -> dict[str, Any]:
        """Types, by name, each with its versions. Raises NotFound: there is none of that name."""
        names = [name for name in self._types.names() if self._is_users(name)]
        if name := args.get("name"):
            self._types.get(checked_text("name", name, limits.NAME_CHARS_MAX))
            names = [name]
        return {"items": [self._shown(name) for name in names if seen is None or seen(name)]}

    def _shown(self, name: str) -> Plain:
        deploy = self._types.deploys.get(name, deploys.NONE)
        since = self._types.since(name)
        shares = deploys.given_out(deploy, since)
        live: dict[int, int] = {}
        for one in self._executor.live_of(name):
            live[one.release] = live.get(one.release, 0) + 1
        hands = self._hands(name)
        versions = []
        for version in sorted({*since, *live}):
            why = self._kept_by(name, version, live.get(version, 0), shares, hands)
            declared = self._types.exact(name, version)
            versions.append(
                {
                    "version": version,
                    "by_code": version >= deploys.BY_CODE,
                    "live": live.get(version, 0),
                    "new_percent": shares.get(version, 0.0),
                    "drained": version in deploy.drained,
                    "pinned": declared is not None and declared.pinned,
                    "accepts": sorted(declared.accepts) if declared is not None else [],
                    "workers": [hand.name for hand in hands if _has(hand, name, version)],
                    "nodes": declared is not None and not declared.remote,
                    "safe_to_stop": not why,
                    "why_not": why,
                }
            )
        settings = {"default": deploy.default, "ramp": deploy.ramp, "percent": deploy.percent}
        return {"name": name, **settings, "previous": deploy.previous, "versions": versions}

    def _kept_by(
        self, name: str, version: int, live: int, shares: Mapping[int, float], hands: list[Hand]
    ) -> str:
        """Why the workers of a version must not go; "" = they may."""
        if shares.get(version):
            return f"{shares[version]:g}% of new ones begin with it"
        if not live:
            return ""
        able = [
            hand.name
            for hand in hands
            if not _has(hand, name, version)
            and any(version in t.accepts for t in hand.entry.types if t.name == name)
        ]
        pinned = (declared := self._types.exact(name, version)) is not None and declared.pinned
        if able and not pinned:
            return ""  # they accept it
        return f"{live} live procedures run with it" + (" and are pinned to it" if pinned else "")

    def _hands(self, name: str) -> list[Hand]:
        return [
            hand
            for _, hand in sorted(self._crew.hands.items())
            if any(description.name == name for description in hand.entry.types)
        ]

    # ------------------------------------------------------------------------------ new ones
    async def set(self, args: dict[str, object]) -> Plain:
        """Change which versions new ones begin with. Raises InvalidArgument, NotFound."""
        name = self._named(args)
        known = {"name", "default", "ramp", "percent", "drain", "undrain"}
        if unknown := sorted(set(args) - known):
            raise InvalidArgument(
                f"unknown setting {unknown[0]!r:.40}; there are {', '.join(sorted(known))}"
            )
        before = self._types.deploys.get(name, deploys.NONE)
        return await self._keep(name, deploys.changed(before, self._types.since(name), args))

    async def roll_back(self, args: dict[str, object]) -> dict[str, object]:
        name = self._named(args)
        before = self._types.deploys.get(name, deploys.NONE)
        return await self._keep(name, deploys.rolled_back(before, self._types.since(name)))

    async def _keep(self, name: str, deploy: Deploy) -> dict[str, object]:
        await self._rows.write([put(rows.deploy(name), messages.encode(deploy))])
        self._types.deploys[name] = deploy
        self._crew.tell_deploys(name)
        return self._shown(name)

    # ------------------------------------------------------------------------------ live ones
    async def move(self, args: dict[str, object]) -> dict[str, object]:
        """Have live procedures go on with another version: the next VERSION_MOVES_MAX of them, or
        none if one of these cannot (`partial`: those that can). Raises InvalidArgument, NotFound,
        Refused (NOT_MOVABLE, with the ids), Unavailable.
        """
        name, to, from_ = self._named(args), args.get("to"), args.get("from") or 0
        declared = self._types.exact(name, to) if type(to) is int else None
        if declared is None or type(to) is not int:
            raise InvalidArgument(self._types.no_version(name, to if type(to) is int else 0))
        if type(from_) is not int or from_ == to:
            raise InvalidArgument(f"from must be another version than {to}, got {from_!r:.40}")
        all_ = self._movable(name, to, from_, args.get("after") or 0)
        ids = all_[: limits.VERSION_MOVES_MAX]
        refused = []
        for id in ids:
            if why := await self._against(id, declared):
                refused.append({"id": str(id), "why": why})
        dry_run, partial = args.get("dry_run") is True, args.get("partial") is True
        more = str(ids[-1]) if len(all_) > len(ids) else "0"
        shown = {"name": name, "to": to, "dry_run": dry_run, "refused": refused, "after": more}
        if dry_run:
            return {**shown, "moved": len(ids) - len(refused), "count": len(ids)}
        if refused and not partial:
            first = ", ".join(one["id"] for one in refused[:10])
            raise Refused(
                f"{len(refused)} of {len(ids)} live procedures of {name} cannot go on with version "
                f"{to} ({first}{', …' if len(refused) > 10 else ''}): {refused[0]['why']}; keep "
                "workers of their version, or move the others (partial)",
                code="NOT_MOVABLE",
                details={"refused": refused},
            )
        stay, moved = {one["id"] for one in refused}, 0
        key = f"move/{to}/{self._executor.now_ms()}"
        for at, id in enumerate(ids):
            if str(id) in stay:
                continue
            page = at // limits.AUDIT_PROCEDURES_NAMED_MAX
            try:
                moved += await self._moved(id, to, args, f"{key}/{page}")
            except KvorumError as error:
                if error.disposition != "no":
                    raise
                refused.append({"id": str(id), "why": error.message})
        return {**shown, "refused": refused, "moved": moved, "count": len(ids)}

    def _movable(self, name: str, to: int, from_: int, after: object) -> list[int]:
        if isinstance(after, str) and after.isascii() and after.isdigit() and len(after) <= 20:
            after = int(after)
        if type(after) is not int or after < 0:
            raise InvalidArgument(f"after must be the id of a procedure, got {after!r:.40}")
        return [
            one.id
            for one in self._executor.live_of(name)
            if one.id > after and one.release != to and from_ in (0, one.release)
        ]

    async def _moved(self, id: int, to: int, args: Plain, key: str) -> bool:
        reason, actor = args.get("reason") or "moved to another version", args.get("actor") or "?"
        try:
            done = await self._executor.surgeon.move(id, to, reason, actor, key)
        except NotFound:
            return False  # it has ended, and is forgotten
        return bool(done["changed"])

    async def _against(self, id: int, declared: ProcedureType) -> str:
        """Why a live procedure cannot go on with this version; "" = it can."""
        try:
            record = await self._executor.find(id)
        except NotFound:
            return ""
        own = self._types.exact(record.name, record.version)
        if own is not None and own.pinned:
            return f"it is pinned to version {record.version}"
        registry = Registry()
        registry.put(declared)
        then: Record = replace(record, version=declared.version)
        if record.ended:
            return ""
        if why := core.missing(then, registry):
            return why
        if not declared.replaying:
            return ""
        answer = await self._executor.asked(declared, FITS, then, plain_data.NONE)
        return str(plain_data.decode(answer))

    def _is_users(self, name: str) -> bool:
        """Raises NotFound."""
        return self._types.get(name).remote or not self._types.is_own(name)

    def _named(self, args: Mapping[str, object]) -> str:
        name = checked_text("name", args.get("name"), limits.NAME_CHARS_MAX)
        if not self._is_users(name):
            raise InvalidArgument(f"{name} is the database's own: it has no versions to choose")
        return name


def _has(hand: Hand, name: str, version: int) -> bool:
    return any(one.name == name and one.version == version for one in hand.entry.types)
