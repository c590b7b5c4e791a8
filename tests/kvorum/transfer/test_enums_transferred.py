"""Enum types through files and backups: labels in files, positions in a copy of a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kv.base.keys import table_prefix
from kvorum.transfer import formats
from sqlproxy.catalog import catalog, relations
from sqlproxy.declared.database import Declared
from sqlproxy.rows.rows import codec
from sqlproxy.values import enums
from tests.kvorum.transfer.backups import backup, restore
from tests.kvorum.transfer.test_export_import import declare, node, refused, run, stored

pytestmark = pytest.mark.slow

LABELS = ("sad", "so-so", "with, comma", "")


async def _made(db: Any, *tables: str) -> list[Any]:
    args = {"namespace": "default", "name": "mood", "labels": list(LABELS)}
    told = await db.wait(await db.submit("CreateEnum", args), timeout_ms=20_000)
    mood = enums.text_of(enums.Enum(told["oid"], 0, 0, "mood"))
    columns = {"id": "int4", "m": mood, "a": f"{mood}[]"}
    return [await declare(db, name, columns) for name in tables]


async def _filled(db: Any, table: Any) -> None:
    t = await db._backend.txn.begin()
    rows = [(n, label, [label, None, "sad"]) for n, label in enumerate(LABELS)]
    for values in (*rows, (9, None, None)):
        key, value = codec(table).encode_row(values)
        t.put(table_prefix(table.id) + key, value)
    await t.commit()


@pytest.mark.parametrize("kind", formats.FORMATS)
async def test_u3_enums_there_and_back_by_files(kind: str, tmp_path: Path) -> None:
    """A file with positions would mean other labels elsewhere."""
    async with node(tmp_path / "a") as db:
        one, two = await _made(db, "one", "two")
        await _filled(db, one)
        where = tmp_path / "files"
        await run(db, "export", table=["default", "one"], target=where.as_uri(), format=kind)
        found = await run(db, "import", table=["default", "two"], source=where.as_uri())
        assert (found["rows"], found["skipped"]) == (5, 0)
        assert await stored(db, two.id) == await stored(db, one.id)
        bad = tmp_path / "bad.csv"
        bad.write_text("id,m\n51,sad\n52,glad\n")
        with refused("IMPORT_ROW") as error:
            await run(db, "import", table=["default", "two"], source=bad.as_uri())
        assert 'line 3: column m: invalid input value for enum mood: "glad"' in str(error.value)


async def test_u3_a_restored_cluster_has_its_types(tmp_path: Path) -> None:
    """Tables whose types are not there could not be changed, nor written by SQL."""
    async with node(tmp_path / "a") as db:
        (one,) = await _made(db, "one")
        await _filled(db, one)
        before = await stored(db, one.id)
        types = (await relations.list_relations(db._backend.txn, "default")).types
        await backup(db, tmp_path / "backup")
    async with node(tmp_path / "b") as db:
        await restore(db, tmp_path / "backup")
        txn = db._backend.txn
        (again,) = (await relations.list_relations(txn, "default")).types
        now = replace(types[0].enum, version=again.enum.version)
        assert (replace(types[0], enum=now),) == (again,)
        found = await catalog.lookup(txn, "default", "one")
        text = enums.text_of(now)
        assert [column.type for column in found.columns] == ["int4", text, f"{text}[]"]
        types_as_before = zip(found.columns, one.columns, strict=True)
        assert (
            replace(
                found, columns=tuple(replace(new, type=old.type) for new, old in types_as_before)
            )
            == one
        )
        assert await stored(db, one.id) == before
        args = {"namespace": "default", "name": "mood", "label": "glad", "after": "sad"}
        await db.wait(await db.submit("AddLabel", args), timeout_ms=20_000)
        table = await catalog.lookup(txn, "default", "one")
        kind = enums.parsed(table.column("m").type)
        assert kind.taken == ("sad", "glad", *LABELS[1:])
        read = [codec(table).decode_row(key, value)[1] for key, value in before]
        assert read == [*LABELS, None]


async def test_u3_a_type_that_a_restore_takes_back_is_what_it_was(tmp_path: Path) -> None:
    """The processes that live on kept the labels that were added and renamed since the backup:
    those of the backup were refused (22P02), and so was every label that was added behind it.
    """
    async with node(tmp_path / "a") as db:
        (one,) = await _made(db, "one")
        await _filled(db, one)
        await backup(db, tmp_path / "backup")

        async def declared() -> enums.Known:
            found = await relations.list_relations(db._backend.txn, "default")
            Declared(found, 1)
            (known,) = [enums.of(one.enum.oid) for one in found.types]
            assert known is not None
            return known

        async def run_it(name: str, **args: str) -> None:
            args = {"namespace": "default", "name": "mood", **args}
            await db.wait(await db.submit(name, args), timeout_ms=20_000)

        await run_it("RenameEnum", label="sad", to="blue")
        await run_it("AddLabel", label="glad")
        assert (await declared()).enum.taken == ("blue", *LABELS[1:], "glad")
        await restore(db, tmp_path / "backup", force=True)
        known = await declared()
        assert known.enum.taken == LABELS
        assert known.read("sad") == "sad"
        with pytest.raises(enums.Unfit):
            known.read("blue")
        await run_it("AddLabel", label="merry")
        known = await declared()
        assert known.read("merry") == "merry"
        assert known.position("merry") > known.position("")
