"""Scenarios of backups and restores. Each is (prepare, check, how the same submission ends again).
Files are in the directory that the harness gives each run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kv.base.errors import KvorumError, NotFound
from kv.base.ids import TableId
from kv.base.limits import TRANSFER_CHUNK_ROWS
from kv.base.placement import Placement
from kv.base.timestamps import compose
from kvorum.api.site_links import LINKS, NAMESPACE
from kvorum.transfer import manifest
from kvorum.transfer.backup import all_tables, lock_names
from kvorum.transfer.places import place_of
from kvorum.transfer.restore_ranges import Range
from kvorum.transfer.verify import verify
from procedures.master.map.partitions import placed_of
from tests.harness.world import ROWS, Place

LOOSE: Final = 700  # an id that no table has
AHEAD_MS: Final = 30_000
LINES: Final = TRANSFER_CHUNK_ROWS + 500


def _directory() -> Path:
    return Path.cwd() / "backup"


async def _to_back_up(place: Place) -> Any:
    await place.table()
    locks = lock_names(await all_tables(place.txn))
    return {"target": _directory().as_uri(), "locks": locks}


async def _is_backed_up(place: Place, args: Any, happened: bool) -> Any:
    """A whole backup with all rows, or not one file."""
    where = place_of(args["target"])
    if not happened:
        return f"{where.names()}" if where.names() else None
    try:
        found = verify(where)
    except KvorumError as error:
        return f"{error!r}"
    return None if found.manifest.tables == ("default.t",) else f"{found}"


async def _to_restore(place: Place) -> Any:
    await place.run("kvorum.backup", await _to_back_up(place))
    await place.run("DropTable", {"namespace": "default", "name": "t"})
    return {"source": _directory().as_uri()}


async def _is_restored(place: Place, args: Any, happened: bool) -> Any:
    try:
        rows = await place.rows()
    except NotFound:
        return "the table is not there" if happened else None
    if not happened:
        return f"{len(rows)} rows of a restore that failed"
    told, _ = manifest.read(place_of(args["source"]))
    if await place.txn.now() <= told.at:
        return "the oracle is behind the backup"
    return None if rows == ROWS else f"{rows}"


async def _loose(place: Place) -> Any:
    await place.table()
    place.before["loose"] = {LOOSE}
    return {"ranges": [Range(LOOSE, 5, (b"g", b"p"), Placement(3)).to_plain()]}


async def _are_made(place: Place, args: Any, happened: bool) -> Any:
    found = [placed.descriptor for placed in await placed_of(place.txn, TableId(LOOSE))]
    cuts = [(descriptor.start[4:], descriptor.epoch) for descriptor in found]
    wanted = [(b"", 5), (b"g", 5), (b"p", 5)] if happened else []
    return None if cuts == wanted else f"{found}"


async def _made(place: Place) -> Any:
    await place.run("kvorum.restore_ranges", await _loose(place))
    return {"ids": [LOOSE]}


async def _are_gone(place: Place, args: Any, happened: bool) -> Any:
    return await _are_made(place, args, not happened)


async def _behind(place: Place) -> Any:
    await place.table()
    return {"what": "above", "at": await place.txn.now() + compose(AHEAD_MS)}


async def _is_ahead(place: Place, args: Any, happened: bool) -> Any:
    now = await place.txn.now()
    return (
        f"the oracle is at {now}, not above {args['at']}"
        if happened and now <= args["at"]
        else None
    )


async def _to_export(place: Place) -> Any:
    await place.table()
    return {"table": ["default", "t"], "target": _directory().as_uri(), "format": "csv"}


async def _is_exported(place: Place, args: Any, happened: bool) -> Any:
    names = place_of(args["target"]).names()
    if not happened:
        return f"{names}" if names else None
    if names != ["export.json", "part-00000.csv"]:
        return f"{names}"
    lines = (_directory() / names[1]).read_text().splitlines()
    wanted = ["key,value", *(f"{key},{value}" for key, value in sorted(ROWS.items()))]
    return None if lines == wanted else f"{lines}"


async def _to_import(place: Place) -> Any:
    await place.table()
    lines = [f"s{i:04},imported" for i in range(LINES)]
    source = Path.cwd() / "rows.csv"
    source.write_text("key,value\n" + "\n".join(lines) + "\n")
    return {"table": ["default", "t"], "source": source.as_uri()}


async def _is_imported(place: Place, args: Any, happened: bool) -> Any:
    """Whole pieces: all of them, or those before the failure."""
    count = sum(value == "imported" for value in (await place.rows()).values())
    wanted = (LINES,) if happened else (0, TRANSFER_CHUNK_ROWS)
    return None if count in wanted else f"{count} rows"


async def _to_check(place: Place) -> Any:
    await place.table(split_keys=["g"])
    return {"locks": lock_names(await all_tables(place.txn))}


async def _changed_nothing(place: Place, args: Any, happened: bool) -> Any:
    return None


async def _to_stand_by(place: Place) -> Any:
    """A link that nobody serves."""
    await place.table()
    await place.run("CreateNamespace", {"namespace": NAMESPACE})
    await place.run("CreateTable", {"namespace": NAMESPACE, "name": LINKS})
    link = json.dumps({"procedure": "1", "role": "active", "tables": [{"table": ["default", "t"]}]})
    await place.db.table(NAMESPACE, LINKS).put("other", link)
    return {"site": "other", "role": "standby"}


async def _stands_by(place: Place, args: Any, happened: bool) -> Any:
    try:
        await place.db.table("default", "t").delete("nothing")
    except KvorumError as error:
        if error.code != "SITE_STANDBY":
            raise
        return None if happened else "it stands by"
    return "it does not stand by" if happened else None


TRANSFER_SCENARIOS: Final[dict[str, tuple[Any, ...]]] = {
    "kvorum.backup": (_to_back_up, _is_backed_up, "TARGET_IN_USE"),
    "kvorum.restore": (_to_restore, _is_restored, "CLUSTER_NOT_EMPTY", 3, False, False, False),
    "kvorum.restore_ranges": (_loose, _are_made),
    "kvorum.restore_clean": (_made, _are_gone),
    "kvorum.restore_work": (_behind, _is_ahead),
    "kvorum.export": (_to_export, _is_exported, "TARGET_IN_USE"),
    "kvorum.import": (_to_import, _is_imported, "IMPORT_ROW"),
    "kvorum.check": (_to_check, _changed_nothing),
    "kvorum.site_role": (_to_stand_by, _stands_by),
}
