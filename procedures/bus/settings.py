"""Settings that every node applies while it runs: one row each, and a one-phase operation that
has the nodes read it anew (N8).

    CLUSTER   esc("setting") esc(name)   sealed msgpack [1, version, value]

    kvorum.set_setting    {name, value, timeout_ms?} → {name, value, version, applied, missing}
    kvorum.check_setting  {name, timeout_ms?}        → the same, without changing anything
    kvorum.list_settings  {}                         → all that there are, from the table alone

What is a limit of each user or namespace can also be set for one of them, as NAME/WHOSE.

The row is the truth, its version rises with every change; what goes over the bus is only the hint
to read it, with the version that must be met at least. So no message, however late, brings back an
old value. Once the row is written there is no way back: a node that does not answer in time is
named in `missing`, not the cause of a failure, and reads the row when it is back (at its start, and
every SETTINGS_S).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import msgspec

from kv.base import system
from kv.base.accounts import NAMESPACE, USER
from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.errors import Corruption, InvalidArgument, TooLarge
from kv.base.keys import escape, successor, table_prefix, unescape
from kv.base.limits import (
    NAME_CHARS_MAX,
    PARTITION_BYTES_MAX_DEFAULT,
    PARTITION_BYTES_MAX_MAX,
    PARTITION_BYTES_MAX_MIN,
    PARTITION_LOAD_MIN_DEFAULT,
    REPLICA_AGE_MS,
    SETTINGS_ROWS_MAX,
)
from procedures.bus import core, targets
from procedures.bus.core import Waiting
from procedures.bus.phases import OnePhase
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Outcome, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step
from procedures.master.members.moves import MasterTxn

SETTING = "setting"
SETTINGS_S: Final = 30.0
_FORMAT: Final = 1
_PREFIX: Final = table_prefix(system.CLUSTER) + escape(b"setting")
_WAIT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Known:
    """A setting that there is: a whole number within bounds. `each`: it can also be set for one of
    those that it is about, as NAME/WHOSE; there -1, the default, is what all have.
    """

    low: int
    high: int
    default: int
    about: str
    each: bool = False


KNOWN: Final[Mapping[str, Known]] = {
    "balance.enabled": Known(0, 1, 1, "1: the balancer evens out load; 0: it is paused"),
    "balance.moves": Known(0, 64, 4, "replicas and leaderships that are moved at the same time"),
    "balance.alpha_percent": Known(
        5, 100, 20, "how far from the mean a node's load may be before anything moves"
    ),
    "placement.enabled": Known(
        0, 1, 1, "1: replicas are rebuilt, and moved by tags and failure domains; 0: paused"
    ),
    "placement.level": Known(
        0, 2, 2, "what two replicas must not share: 0 a datacenter, 1 a rack, 2 a server"
    ),
    "maintenance.pause_ms": Known(
        0, 60_000, 100, "pause of a node between two ranges that it compacts on demand"
    ),
    "partition.auto": Known(0, 1, 1, "1: the master splits and merges partitions by itself"),
    "partition.bytes_max": Known(
        PARTITION_BYTES_MAX_MIN,
        PARTITION_BYTES_MAX_MAX,
        PARTITION_BYTES_MAX_DEFAULT,
        "bytes of keys and newest values above which a partition is split",
    ),
    "partition.load_min": Known(
        1, 1_000_000, PARTITION_LOAD_MIN_DEFAULT, "traffic units per second from which load splits"
    ),
    "partition.settle_s": Known(
        0, 86_400, 300, "for so long neighbours must stay small before they are merged"
    ),
    **{
        f"{kind}.{limit}": Known(0, most, 0, f"{about.format(kind)} at a node; 0: any", each=True)
        for kind in (USER, NAMESPACE)
        for limit, most, about in (
            ("requests_per_s", 1_000_000, "requests of one {} in a second"),
            ("rows_per_s", 1_000_000_000, "rows that one {} reads and writes in a second"),
            ("bytes_per_s", 1_000_000_000_000, "bytes that one {} reads and writes in a second"),
            ("sql_ms_per_s", 1_000_000, "milliseconds of computing in a second, for SQL of one {}"),
            ("requests_max", 100_000, "requests of one {} that are under way"),
            ("connections_max", 100_000, "native and SQL connections of one {}"),
        )
    },
    "reads.replica_age_ms": Known(
        0,
        86_400_000,
        REPLICA_AGE_MS,
        "reads so far in the past are answered by the nearest replica; 0: by leaders alone",
    ),
    "gc.interval_ms": Known(
        100, 3_600_000, 0, "between two rounds of the garbage collector; 0: as the node is started"
    ),
}


class Reader(Protocol):
    async def get(self, key: bytes) -> tuple[bytes | None, int]: ...


class Page(Protocol):
    @property
    def items(self) -> Sequence[tuple[bytes, bytes, int]]: ...


class Scanner(Protocol):
    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Page: ...


def setting_key(name: str) -> bytes:
    return _PREFIX + escape(name.encode())


def encode_setting(name: str, version: int, value: int) -> bytes:
    """The sealed row."""
    return seal(setting_key(name), msgspec.msgpack.encode([_FORMAT, version, value]))


async def read_setting(t: Reader, name: str) -> tuple[int, int]:
    """(version, value); version 0: it was never set, and has its default. Raises Corruption."""
    key = setting_key(name)
    row, _ = await t.get(key)
    if row is None:
        return 0, known(name).default
    return decode_setting(name, row)


def decode_setting(name: str, row: bytes) -> tuple[int, int]:
    """(version, value) of its row. Raises Corruption."""
    key = setting_key(name)
    if intact(key, row):
        match msgspec.msgpack.decode(row[:-CRC_BYTES]):
            case [int(format_), int(version), int(value)] if format_ == _FORMAT:
                return version, value
    raise Corruption(f"the row of the setting {name} is damaged", details={"key": key})


def checked(name: Any, value: object) -> tuple[str, int]:
    """Raises InvalidArgument: no such setting, or not such a value."""
    there = known(known_name(name))
    if type(value) is int and (there.low <= value <= there.high or value == there.default):
        return name, value
    raise InvalidArgument(f"{name} must be {there.low} to {there.high}, got {value!r:.40}")


def check_all(values: object) -> None:
    """Raises InvalidArgument unless they are settings with values that they may have."""
    if not isinstance(values, Mapping) or not values:
        raise InvalidArgument(f"give settings as {{name: value}}, got {values!r:.80}")
    for name, value in values.items():
        checked(name, value)


def known_name(name: object) -> str:
    """Raises InvalidArgument."""
    if isinstance(name, str):
        setting, whose = parted(name)
        there = KNOWN.get(setting)
        if there is not None and ("/" not in name or (there.each and whose)):
            if len(whose) <= NAME_CHARS_MAX:
                return name
            raise InvalidArgument(
                f"a name has at most {NAME_CHARS_MAX} characters, got {len(whose)}"
            )
    raise InvalidArgument(
        f"there is no setting {name!r:.80}; there are {', '.join(KNOWN)}, of users and namespaces "
        "also for one of them: NAME/WHOSE"
    )


def parted(name: str) -> tuple[str, str]:
    """The setting, and for whom it is, empty: for all."""
    setting, _, whose = name.partition("/")
    return setting, whose


def known(name: str) -> Known:
    """What is known of it, by a name that `known_name` took."""
    setting, whose = parted(name)
    there = KNOWN[setting]
    if not whose:
        return there
    about = f"the same of {whose} alone; -1: as of all"
    return Known(-1, there.high, -1, about)


def shown(name: str, version: int, value: int) -> Plain:
    """A setting for people."""
    there = known(name)
    about = {"default": there.default, "low": there.low, "high": there.high}
    return {"name": name, "value": value, "version": version, "about": there.about, **about}


async def read_all(t: Scanner) -> dict[str, tuple[int, int]]:
    """(version, value) of all that there are by name; those that are set for one last."""
    found = {name: (0, there.default) for name, there in KNOWN.items()}
    page = await t.scan(_PREFIX, successor(_PREFIX), limit=SETTINGS_ROWS_MAX)
    for key, row, _ in page.items:
        name = unescape(key[len(_PREFIX) :])[0].decode()
        try:
            known_name(name)
        except InvalidArgument:
            continue  # of another version of Kvorum
        found[name] = decode_setting(name, row)
    return found


async def _room(t: Scanner) -> None:
    """For one more row. Raises TooLarge."""
    page = await t.scan(_PREFIX, successor(_PREFIX), limit=SETTINGS_ROWS_MAX)
    if len(page.items) >= SETTINGS_ROWS_MAX - len(KNOWN):
        raise TooLarge(
            f"{len(page.items)} settings have been set, the limit: change one of those "
            "(kvorum setting list)",
            details={"what": "settings", "limit": SETTINGS_ROWS_MAX, "actual": len(page.items)},
        )


class _Setting(OnePhase):
    kind: ClassVar[str] = SETTING
    leaves_nothing: ClassVar[bool] = True

    async def wanted(self, ctx: StepContext) -> Plain:
        body = {"name": ctx.state["name"], "version": ctx.state["version"]}
        return await targets.wanted(ctx, {"nodes": "all"}, body)

    def timeout_ms(self, ctx: StepContext) -> int:
        return super().timeout_ms(ctx) if "timeout_ms" in ctx.args else _WAIT_MS

    @step
    async def gather(self, ctx: StepContext) -> Outcome:
        """Ends by time, too, and then says who is missing."""
        before = core.from_plain(ctx.state["bus"])
        op = self._heard(ctx, core.retarget(before, await self.wanted(ctx)))
        match core.verdict(op, ctx.now_ms):
            case Waiting():
                return self._sent(ctx, before, op)
            case _:
                return self._over(ctx, op)

    def _over(self, ctx: StepContext, op: core.Operation) -> Outcome:
        self.courier.close(op.id)
        version = ctx.state["version"]
        missing = [
            name for name, asked in op.targets.items() if asked.state in (core.WAITING, core.FAILED)
        ]
        results = {n: a.result for n, a in op.targets.items() if a.state == core.DONE}
        missing += [name for name, result in results.items() if result["version"] < version]
        return done(
            {
                "name": ctx.state["name"],
                "value": ctx.state["value"],
                "version": version,
                "applied": {name: result["version"] for name, result in results.items()},
                "missing": sorted(missing),
            }
        )


@procedure("kvorum.set_setting")
class SetSetting(_Setting):
    """See the module."""

    @step(first=True, undo="take_back", point_of_no_return=True)
    async def pick(self, ctx: StepContext) -> Outcome:
        args = ctx.args if isinstance(ctx.args, dict) else {}
        name, value = checked(args.get("name"), args.get("value"))
        t = MasterTxn(ctx.txn)
        version, _ = await read_setting(t, name)
        if not version and parted(name)[1]:
            await _room(t)
        ctx.state.update(name=name, value=value, version=version + 1)
        ctx.txn.put(setting_key(name), encode_setting(name, version + 1, value))
        await super().pick(ctx)
        return go_on("gather")


@procedure("kvorum.check_setting")
class CheckSetting(_Setting):
    """See the module."""

    @step(first=True, undo="take_back")
    async def pick(self, ctx: StepContext) -> Outcome:
        args = ctx.args if isinstance(ctx.args, dict) else {}
        name = known_name(args.get("name"))
        version, value = await read_setting(MasterTxn(ctx.txn), name)
        ctx.state.update(name=name, value=value, version=version)
        await super().pick(ctx)
        return go_on("gather")


@procedure("kvorum.list_settings")
class ListSettings:
    """→ {settings: [{name, value, version, default, low, high, about}, …]}"""

    @step(first=True)
    async def look(self, ctx: StepContext) -> Outcome:
        t = MasterTxn(ctx.txn)
        there = await read_all(t)
        found = [shown(name, *one) for name, one in there.items() if one[1] >= 0]
        return done({"settings": found})
