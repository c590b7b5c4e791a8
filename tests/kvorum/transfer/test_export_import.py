"""Tables to files and back: every type, constraints, bad rows, and interruptions."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

import kvorum
from kv.base.errors import InvalidArgument, Refused, Unavailable
from kv.base.keys import table_prefix, table_range
from kv.base.ops import put as kv_put
from kvorum.transfer import claims, formats
from kvorum.transfer import export as exporting
from kvorum.transfer import import_ as importing
from kvorum.transfer import loader as loading
from kvorum.transfer.places import Directory
from kvorum.transfer.services import Services
from procedures.engine.registry import declaration, declared_in
from sqlproxy.catalog import catalog
from sqlproxy.rows.rows import codec
from sqlproxy.tables.entries import index_codec
from tests.harness.sql_scenarios import PEOPLE
from tests.kvorum.cluster.three import client, trio

TYPES = {
    "id": ("int4", 7),
    "b": ("bool", True),
    "i2": ("int2", -3),
    "i8": ("int8", 1 << 60),
    "f": ("float8", 0.1),
    "n": ("numeric(12,3)", "1234567.125"),
    "t": ("text", 'a,"b"\nc'),
    "e": ("text", ""),
    "nul": ("text", None),
    "v": ("varchar(5)", "ab"),
    "by": ("bytea", b"\x00\xff"),
    "u": ("uuid", "0d9b2a4e-0000-4000-8000-000000000001"),
    "d": ("date", "2026-11-22"),
    "ti": ("time", "12:34:56.5"),
    "ts": ("timestamp", "2026-11-22 12:34:56.789"),
    "tz": ("timestamptz", "2026-11-22 12:34:56.789+02"),
    "iv": ("interval", "1 mon 2 days 03:04:05"),
    "j": ("jsonb", '{"a": [1, null, "x"]}'),
    "a": ("int4[]", "{1,NULL,3}"),
    "ta": ("text[]", '{"x,y",z}'),
    "bp": ("bpchar", "ab "),
    "ua": ("uuid[]", "{0d9b2a4e-0000-4000-8000-000000000001,NULL}"),
    "ja": ("jsonb[]", '{"{\\"a\\": 1.50}",NULL}'),
    "ia": ("interval[]", '{"1 mon",NULL}'),
}


@asynccontextmanager
async def node(directory: Path) -> AsyncIterator[Any]:
    db = await kvorum.aopen(directory)
    try:
        yield db
    finally:
        await db.close()


async def run(db: Any, name: str, **args: Any) -> dict[str, Any]:
    return dict(await db.wait(await db.submit(f"kvorum.{name}", args), timeout_ms=40_000))


async def declare(db: Any, name: str, columns: dict[str, str], key: str = "id") -> Any:
    told = [{"name": column, "type": kind} for column, kind in columns.items()]
    args = {"namespace": "default", "name": name, "columns": told, "primary_key": [key]}
    await db.wait(await db.submit("CreateTable", args), timeout_ms=20_000)
    return await catalog.lookup(db._backend.txn, "default", name)


async def stored(db: Any, *ids: int) -> list[tuple[bytes, bytes]]:
    found = []
    for id in ids:
        page = await db._backend.txn.scan(*table_range(id), limit=10_000)
        found += [(key[4:], value) for key, value, _ in page.items]
    return found


def refused(code: str) -> Any:
    return pytest.raises(kvorum.KvorumError, check=lambda error: error.code == code)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", formats.FORMATS)
async def test_every_type_there_and_back(kind: str, tmp_path: Path) -> None:
    """A value would come back as another one, or NULL as an empty text."""
    async with node(tmp_path / "a") as db:
        columns = {name: type_ for name, (type_, _) in TYPES.items()}
        one, two = [await declare(db, name, columns) for name in ("one", "two")]
        read = [formats.from_value(column) for column in one.columns]
        given = [value for _, value in TYPES.values()]
        row = [None if v is None else f(v) for f, v in zip(read, given, strict=True)]
        empty = [9, *[None] * (len(row) - 1)]
        t = await db._backend.txn.begin()
        for values in (row, empty):
            key, value = codec(one).encode_row(values)
            t.put(table_prefix(one.id) + key, value)
        await t.commit()
        where = tmp_path / "files"
        told = await run(db, "export", table=["default", "one"], target=where.as_uri(), format=kind)
        assert (told["rows"], told["files"]) == (2, 1)
        found = await run(db, "import", table=["default", "two"], source=where.as_uri())
        assert (found["rows"], found["skipped"]) == (2, 0)
        assert await stored(db, two.id) == await stored(db, one.id)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("numeric", "NaN", "column v: NaN has no form"),
        ("numeric(6,2)", "NaN", "column v: NaN has no form"),
        ("numeric", f"0.{19 * '1'}", "decimal128"),
        ("int4[]", "{{1,2},{3,4}}", "column v: {{1,2},{3,4}} has no form in Parquet"),
        ("uuid[]", "{{0d9b2a4e-0000-4000-8000-000000000001}}", "column v: {{0d9b2a4e"),
    ],
)
async def test_values_without_a_form_are_named(
    kind: str, value: str, told: str, tmp_path: Path
) -> None:
    """An export to Parquet ends with an error of a library that names no column; or the others'
    values are lost with the one that has no form.
    """
    async with node(tmp_path / "a") as db:
        table = await declare(db, "one", {"id": "int4", "v": kind})
        read = formats.from_value(table.columns[1])
        t = await db._backend.txn.begin()
        for row in ((1, None), (2, read(value))):
            key, packed = codec(table).encode_row(row)
            t.put(table_prefix(table.id) + key, packed)
        await t.commit()
        for form in formats.FORMATS:
            args = {"table": ["default", "one"], "target": (tmp_path / form).as_uri()}
            if form == "parquet":
                with refused("EXPORT_VALUE") as error:
                    await run(db, "export", **args, format=form)
                assert told in str(error.value)
            else:
                assert (await run(db, "export", **args, format=form))["rows"] == 2


@pytest.mark.parametrize("kind", formats.FORMATS)
async def test_plain_tables_there_and_back(kind: str, tmp_path: Path) -> None:
    """Bytes that are no text, or look like hex, would change."""
    rows = {b"a": b"1", b"\xff\x00": b"\x80", b"\\x41": b"\\x", b"uml\xc3\xa4ut": b""}
    rows[b'c,\n"'] = b"x"
    async with node(tmp_path / "a") as db:
        await db.create_table("default", "one", split_keys=["b"])
        await db.create_table("default", "two")
        for key, value in rows.items():
            await db.table("default", "one").put(key, value)
        where = (tmp_path / "files").as_uri()
        await run(db, "export", table=["default", "one"], target=where, format=kind)
        claim = claims.claim_of("of-a-command-that-died-before-it-let-go")
        (tmp_path / "files" / claim).write_bytes(b"{}\n")
        await run(db, "import", table=["default", "two"], source=where)
        items = (await db.table("default", "two").scan()).items
        assert {item.key: item.value for item in items} == rows


@pytest.mark.slow
async def test_export_is_of_one_moment_and_of_what_was_asked_for(tmp_path: Path) -> None:
    """Rows of later, other columns, or rows that the condition does not mean would be in it."""
    async with node(tmp_path / "a") as db:
        table = await declare(db, "t", {"id": "int4", "name": "text", "age": "int4"})
        t = await db._backend.txn.begin()
        for number in range(10):
            key, value = codec(table).encode_row([number, f"n{number}", number * 10 or None])
            t.put(table_prefix(table.id) + key, value)
        version = await t.commit()
        await db._backend.txn.write_one(kvorum_delete(table, 5))
        args = {"table": ["default", "t"], "format": "parquet", "columns": ["name", "id"]}
        where = "age > 20 AND name <> 'n4'"
        await run(db, "export", target=(tmp_path / "x").as_uri(), at=version, where=where, **args)
        got = pq.read_table(tmp_path / "x/part-00000.parquet").to_pylist()
        assert got == [{"name": f"n{n}", "id": n} for n in (3, 5, 6, 7, 8, 9)]
        told = json.loads((tmp_path / "x/export.json").read_text())
        assert (told["at"], told["rows"], told["columns"]) == (str(version), 6, ["name", "id"])
        for wrong in ("nosuch = 1", "age > 20 LIMIT 1", "true UNION SELECT false", "true, false"):
            with refused("INVALID_ARGUMENT"):
                bad = {**args, "where": wrong}
                await run(db, "export", target=(tmp_path / "y").as_uri(), **bad)
        assert not (tmp_path / "y").exists()
        with refused("TARGET_IN_USE"):
            await run(db, "export", target=(tmp_path / "x").as_uri(), **args)


def kvorum_delete(table: Any, number: int) -> Any:
    from kv.base.ops import delete

    return delete(table_prefix(table.id) + codec(table).encode_key([number]))


PEOPLE_CSV = """email,age
a@x,10
b@x,twenty
c@x,-5
a@x,30
"d@x, or so",40
e@x,50,60
f@x,
"""


async def people(db: Any) -> Any:
    await db.wait(await db.submit("CreateTable", {**PEOPLE, "replicas": 1}), timeout_ms=20_000)
    return await catalog.lookup(db._backend.txn, "default", "people")


@pytest.mark.slow
async def test_what_is_wrong_with_a_row_is_told_with_its_line(tmp_path: Path) -> None:
    """A user would look for one bad row among millions; a bad row would be half there."""
    source = tmp_path / "people.csv"
    source.write_text(PEOPLE_CSV)
    async with node(tmp_path / "a") as db:
        table = await people(db)
        args = {"table": ["default", "people"], "source": source.as_uri()}
        with refused("IMPORT_ROW") as error:
            await run(db, "import", **args)
        assert "people.csv, line 3: column age: invalid input syntax" in str(error.value)
        assert await stored(db, *table.storage_ids) == []
        found = await run(db, "import", on_error="skip", **args)
        assert (found["rows"], found["skipped"]) == (3, 4)
        assert [(line, code) for _, line, code, _ in found["errors"]] == [
            (3, "22P02"),
            (4, "23514"),
            (5, "23505"),
            (7, "INVALID_VALUE"),
        ]
        rows = [codec(table).decode_row(key, value) for key, value in await stored(db, table.id)]
        assert [row[1:] for row in rows] == [("a@x", 10), ("d@x, or so", 40), ("f@x", None)]
        for index in table.indexes:
            wanted = sorted(index_codec(table, index).entry(row) for row in rows)
            assert await stored(db, index.id) == wanted


@pytest.mark.slow
async def test_conflicts_are_errors_or_replace(tmp_path: Path) -> None:
    """Rows that are there would be changed without having been asked for, or keep old entries."""
    source = tmp_path / "people.json"
    async with node(tmp_path / "a") as db:
        table = await people(db)
        args = {"table": ["default", "people"], "source": source.as_uri()}
        rows = ('{"id": 1, "email": "a", "age": 10}', '{"id": 2, "email": "b", "age": 20}')
        source.write_text("\n".join(rows))
        await run(db, "import", **args)
        source.write_text('{"id": 3, "email": "c"}\n{"id": 2, "email": "new", "age": 21}\n')
        with refused("IMPORT_ROW") as error:
            await run(db, "import", **args)
        assert "line 2: duplicate key value" in str(error.value)
        await run(db, "import", on_conflict="replace", **args)
        rows = [codec(table).decode_row(*pair) for pair in await stored(db, table.id)]
        assert rows == [(1, "a", 10), (2, "new", 21), (3, "c", None)]
        for index in table.indexes:
            wanted = sorted(index_codec(table, index).entry(row) for row in rows)
            assert await stored(db, index.id) == wanted


@pytest.mark.slow
async def test_atomic_import_is_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows before a bad one would stay though nobody wanted a part."""
    monkeypatch.setattr(importing, "TRANSFER_CHUNK_ROWS", 3)
    source = tmp_path / "t.csv"
    source.write_text("key,value\n" + "".join(f"k{i},v{i}\n" for i in range(20)) + "k3,again\n")
    async with node(tmp_path / "a") as db:
        table = await db.create_table("default", "t")
        args = {"table": ["default", "t"], "source": source.as_uri()}
        with refused("IMPORT_ROW"):
            await run(db, "import", atomic=True, **args)
        assert await stored(db, table.id) == []
        with refused("IMPORT_ROW") as error:
            await run(db, "import", **args)
        assert "line 22: the key 'k3' exists already" in str(error.value)
        assert len(await stored(db, table.id)) == 18, "pieces before stay"
        found = await run(db, "import", atomic=True, on_conflict="replace", **args)
        assert found["rows"] == 21
        versions = {row[2] for row in await scanned(db, table.id)}
        assert len(versions) == 1


async def scanned(db: Any, id: int) -> Any:
    return (await db._backend.txn.scan(*table_range(id), limit=10_000)).items


@pytest.mark.slow
async def test_j18_import_goes_on_behind_its_last_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that was interrupted would write rows twice, or begin anew."""
    monkeypatch.setattr(importing, "TRANSFER_CHUNK_ROWS", 5)
    source = tmp_path / "t.csv"
    source.write_text("name\n" + "".join(f"n{i}\n" for i in range(60)))
    async with node(tmp_path / "a") as db:
        columns = [{"name": "n", "type": "int8", "sequence": {}}, {"name": "name", "type": "text"}]
        args = {"namespace": "default", "name": "t", "columns": columns, "primary_key": ["n"]}
        await db.wait(await db.submit("CreateTable", args), timeout_ms=20_000)
        table = await catalog.lookup(db._backend.txn, "default", "t")
        args = {"table": ["default", "t"], "source": source.as_uri(), "rate": 4096}
        monkeypatch.setattr("kvorum.transfer.services.pause_ms", lambda *_: 50)
        id = await db.submit("kvorum.import", args)
        while not await stored(db, table.id):  # noqa: ASYNC110 - nobody tells it
            await asyncio.sleep(0.01)
    async with node(tmp_path / "a") as db:
        assert (await db.wait(id, timeout_ms=40_000))["rows"] == 60
        rows = [codec(table).decode_row(*pair) for pair in await stored(db, table.id)]
        assert [name for _, name in rows] == [f"n{i}" for i in range(60)]


@pytest.mark.slow
async def test_large_exports_come_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows would be in memory at once; a file would be cut elsewhere when it is made again."""
    monkeypatch.setattr(exporting, "TRANSFER_EXPORT_ROWS", 7)
    async with node(tmp_path / "a") as db:
        await db.create_table("default", "t", split_keys=["k05", "k11"])
        for i in range(20):
            await db.table("default", "t").put(f"k{i:02}", "v")
        where = tmp_path / "x"
        args = {"table": ["default", "t"], "target": where.as_uri(), "format": "csv"}
        assert (await run(db, "export", **args))["files"] == 3
        counts = [len(p.read_text().splitlines()) - 1 for p in sorted(where.glob("part-*"))]
        assert counts == [7, 7, 6]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("", "INVALID_ARGUMENT", "the file is empty"),
        ("id,nosuch\n1,2\n", "INVALID_ARGUMENT", "has no column 'nosuch'"),
        ("id,id\n1,2\n", "INVALID_ARGUMENT", "names column 'id' twice"),
        ("name\nx\n", "IMPORT_ROW", 'null value in column "id"'),
        ('id,name\n1,"open\n', "IMPORT_ROW", "a quote is not where a field begins"),
        ("id,name\n99999999999,x\n", "IMPORT_ROW", "out of range"),
    ],
)
async def test_bad_files_are_told(text: str, code: str, told: str, tmp_path: Path) -> None:
    """A file that is not what it should be would load nothing, or nonsense, without a word."""
    (tmp_path / "f.csv").write_text(text)
    async with node(tmp_path / "a") as db:
        await declare(db, "t", {"id": "int4", "name": "text"})
        with refused(code) as error:
            await run(db, "import", table=["default", "t"], source=(tmp_path / "f.csv").as_uri())
        assert told in str(error.value)


async def test_u13_an_undo_that_cannot_reach_its_place_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused export kept its table's lock as long as its place did not answer: no backup, no
    change of the table; and nobody was told that files are left.
    """

    def away(*_: object) -> None:
        raise Unavailable("the place does not answer", code="PLACE_UNAVAILABLE")

    def refuses(*_: object) -> None:
        raise InvalidArgument("no room for that")

    undos = declaration(exporting.Export).undos
    assert isinstance(undos, dict)
    assert 0 < undos["give_up"].may_ms <= 120_000
    monkeypatch.setitem(undos, "give_up", replace(undos["give_up"], may_ms=300))
    args = {"table": ["default", "t"], "target": (tmp_path / "x").as_uri(), "format": "csv"}
    async with node(tmp_path / "a") as db:
        await declare(db, "t", {"id": "int4"})
        monkeypatch.setattr(Directory, "write", refuses)
        monkeypatch.setattr(Directory, "remove", away)
        id = await db.submit("kvorum.export", args)
        with refused("INVALID_ARGUMENT") as error:
            await db.wait(id, timeout_ms=40_000)
        assert "its undo give_up was given up" in str(error.value)
        (left,) = error.value.details["not_undone"]
        assert "the place does not answer" in left["message"]
        drop = {"namespace": "default", "names": ["t"]}
        await db.wait(await db.submit("DropTable", drop), timeout_ms=20_000)


async def test_u13_a_command_works_for_its_own_procedure_alone(tmp_path: Path) -> None:
    """Whoever may submit a procedure to the pool of a command reads and writes its user's files."""

    async def beside(call: Any) -> None:
        call()

    mine = asyncio.get_running_loop().create_future()
    unused = cast(Any, None)
    services = Services(unused, unused, beside, unused, mine=mine)
    asked = [cast(Any, SimpleNamespace(id=i, args={"target": str(tmp_path)})) for i in (7, 8)]
    waiting = [asyncio.create_task(services.place(ctx, "target", here=True)) for ctx in asked]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting), "it does not know yet which one is its own"
    mine.set_result(7)
    assert (await waiting[0]).uri == str(tmp_path)
    with pytest.raises(Refused, match="another procedure than 8"):
        await waiting[1]
    with pytest.raises(Refused, match="another procedure than 8"):
        await services.check_database(asked[1], "postgresql://db/x", here=True)


def test_u13_who_reaches_outside_does_so_for_a_bounded_time() -> None:
    """A step or an undo of a new type asks a place that does not answer, and keeps its locks."""
    modules = {name for name in sys.modules if name.startswith("kvorum.transfer.")}
    names = set()
    for cls in declared_in(modules):
        code = inspect.getsource(sys.modules[cls.__module__])
        declared = declaration(cls)
        if not re.search(r"services\.(place|check_database)\(", code) or "restore" in declared.name:
            continue  # a restore has no locks, and its undo asks no place
        names.add(declared.name)
        assert declared.timeout_ms, declared.name
        for method in (*declared.steps.values(), *declared.undos.values()):
            assert method.may_ms, (declared.name, method.name)
    assert names >= {"kvorum.backup", "kvorum.backup_here", "kvorum.export", "kvorum.import"}


async def test_u3_a_node_uses_listed_places_only_and_keeps_no_password(tmp_path: Path) -> None:
    """Whoever may submit procedures would write the node's files, or leave a password in them."""
    args = {"table": ["default", "t"], "format": "csv"}
    listed = (tmp_path / "listed").as_uri()
    async with trio(1, transfer_places=(listed,)) as cluster, client(cluster) as db:
        await db.create_table("default", "t")
        await db.table("default", "t").put("k", "v")
        other = (tmp_path / "listed-not").as_uri()
        for name, field in (("export", "target"), ("import", "source")):
            with refused("INVALID_ARGUMENT") as error:
                await run(db, name, **args, **{field: other})
            assert "transfer_places" in str(error.value)
        with refused("INVALID_ARGUMENT") as error:
            await run(db, "import", **args, source="postgresql://db/x?table=t")
        assert "transfer_places" in str(error.value)
        for name, place in (("backup", "target"), ("restore", "source")):
            with refused("INVALID_ARGUMENT") as error:
                await run(db, name, **{place: other}, locks=["namespace/default"])
            assert "transfer_places" in str(error.value)
        assert not (tmp_path / "listed-not").exists()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            evil = f"endpoint_override=127.0.0.1:{listener.getsockname()[1]}&scheme=http&region=x"
            for target in (f"s3://bucket/x?{evil}", f"gs://bucket/x?{evil}"):
                with refused("INVALID_ARGUMENT") as error:
                    await run(db, "export", **args, target=target)
                assert "transfer_places" in str(error.value)
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()
        assert (await run(db, "export", **args, target=f"{listed}/x"))["rows"] == 1
        assert (await run(db, "import", **args, source=f"{listed}/x", on_conflict="replace"))[
            "rows"
        ] == 1
        before = [info.id for info in await db.procedures()]
        with refused("INVALID_ARGUMENT") as error:
            await run(db, "import", **args, source="postgresql://me:hush@db/x?table=t")
        assert "PGPASSWORD" in str(error.value)
        assert "hush" not in str(error.value)
        assert [info.id for info in await db.procedures()] == before, "it was not submitted"


@pytest.mark.parametrize(
    "place", ["s3://AKIA:hush@bucket/x", "s3://bucket/x?secret_key=hush", "abfs://c:hu/sh@a/x"]
)
async def test_u3_keys_of_a_store_are_kept_nowhere(place: str, tmp_path: Path) -> None:
    """Keys in a URL would stand in the record of the procedure, its history and every backup."""
    calls = {
        "export": {"table": ["default", "t"], "format": "csv", "target": place},
        "import": {"table": ["default", "t"], "format": "csv", "source": place},
        "backup": {"locks": [], "target": place},
        "restore": {"source": place},
    }
    async with node(tmp_path / "a") as db:
        await db.create_table("default", "t")
        before = [info.id for info in await db.procedures()]
        for name, args in calls.items():
            with refused("INVALID_ARGUMENT") as error:
                await run(db, name, **args)
            assert "AWS_ACCESS_KEY_ID" in str(error.value)
            assert "hu" not in str(error.value).replace("https", "")
            with refused("INVALID_ARGUMENT"):
                await db.set_schedule("nightly", "0 3 * * *", f"kvorum.{name}", args)
        assert await db.schedules() == []
        assert [info.id for info in await db.procedures()] == before, "it was not submitted"


@pytest.mark.slow
async def test_u3_of_two_exports_to_one_place_one_is_refused(tmp_path: Path) -> None:
    """Both would find the place empty and write part-00000 over each other."""
    async with node(tmp_path / "a") as db:
        for name in ("one", "two"):
            await db.create_table("default", name)
            await db.table("default", name).put("k", name)
        where = tmp_path / "x"
        told = [
            await db.submit(
                "kvorum.export",
                {"table": ["default", name], "target": where.as_uri(), "format": "csv"},
            )
            for name in ("one", "two")
        ]
        ends = await asyncio.gather(
            *(db.wait(id, timeout_ms=40_000) for id in told), return_exceptions=True
        )
        done = [name for name, end in zip(("one", "two"), ends, strict=True) if type(end) is dict]
        (error,) = [end for end in ends if isinstance(end, kvorum.KvorumError)]
        assert error.code == "TARGET_IN_USE"
        assert sorted(path.name for path in where.iterdir()) == ["export.json", "part-00000.csv"]
        assert (where / "part-00000.csv").read_text() == f"key,value\nk,{done[0]}\n"


async def test_j18_a_file_that_is_changed_meanwhile_ends_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of two files of one name would be in the table, cut where neither has a row."""
    monkeypatch.setattr(importing, "TRANSFER_CHUNK_ROWS", 5)
    source = tmp_path / "t.csv"
    rows = [f"k{i:02},v" for i in range(40)]
    source.write_text("\n".join(["key,value", *rows]) + "\n")
    async with node(tmp_path / "a") as db:
        table = await db.create_table("default", "t")
        monkeypatch.setattr("kvorum.transfer.services.pause_ms", lambda *_: 50)
        args = {"table": ["default", "t"], "source": source.as_uri(), "rate": 4096}
        id = await db.submit("kvorum.import", args)
        while not await stored(db, table.id):  # noqa: ASYNC110 - nobody tells it
            await asyncio.sleep(0.01)
        source.write_text("\n".join(["key,value", *(row.upper() for row in rows)]) + "\n")
        with refused("SOURCE_CHANGED") as error:
            await db.wait(id, timeout_ms=40_000)
        assert "rows are in the table" in str(error.value)


@pytest.mark.slow
async def test_u3_pieces_do_not_list_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of ten thousand files is listed ten thousand times; or a file that comes or changes
    meanwhile is no longer noticed.
    """
    listed: list[Path] = []
    list_them = Directory._files
    monkeypatch.setattr(importing, "TRANSFER_CHUNK_ROWS", 5)
    monkeypatch.setattr("kvorum.transfer.services.pause_ms", lambda *_: 0)
    monkeypatch.setattr(Directory, "_files", lambda at: listed.append(at._path) or list_them(at))

    def write(folder: str) -> Path:
        (tmp_path / folder).mkdir()
        for number in range(4):
            rows = "".join(f"{folder}{number}{i:02},v\n" for i in range(12))
            (tmp_path / folder / f"{number}.csv").write_text("key,value\n" + rows)
        return tmp_path / folder

    async with node(tmp_path / "a") as db:
        await db.create_table("default", "t")
        args = {"table": ["default", "t"]}
        told = await run(db, "import", **args, source=write("x").as_uri())
        assert told["rows"] == 48
        assert listed == [tmp_path / "x"] * 2, "when it begins, and when it ends"
        comes, changes = write("y"), write("z")
        read = importing._Import._piece
        pieces: list[str] = []

        async def piece(self: Any, ctx: Any, name: str, table: Any) -> Any:
            pieces.append(name)
            if len(pieces) == 2:
                (comes / "9.csv").write_text("key,value\nnew,v\n")
                with (changes / "2.csv").open("a") as file:
                    file.write("more,v\n")
            return await read(self, ctx, name, table)

        monkeypatch.setattr(importing._Import, "_piece", piece)
        for source, last in ((comes, "3.csv"), (changes, "1.csv")):
            with refused("SOURCE_CHANGED"):
                await run(db, "import", **args, source=source.as_uri())
            assert pieces[-1] == last
            pieces[:] = []


FAMILY_CSV = """id,parent
1,
3,2
2,1
4,9
5,4
6,
7,6
"""


@pytest.mark.parametrize("skip", [False, True])
async def test_u3_rows_that_refer_find_what_they_refer_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip: bool
) -> None:
    """Rows without the parent that their table says they have; or all of a family is refused."""
    monkeypatch.setattr(importing, "TRANSFER_CHUNK_ROWS", 5)
    source = tmp_path / "family.csv"
    source.write_text(FAMILY_CSV)
    columns = [{"name": "id", "type": "int4"}, {"name": "parent", "type": "int4"}]
    key = {"columns": ["parent"], "table": "family"}
    async with node(tmp_path / "a") as db:
        args = {"namespace": "default", "name": "family", "columns": columns}
        args |= {"primary_key": ["id"], "foreign_keys": [key]}
        await db.wait(await db.submit("CreateTable", args), timeout_ms=20_000)
        table = await catalog.lookup(db._backend.txn, "default", "family")
        args = {"table": ["default", "family"], "source": source.as_uri()}
        if not skip:
            with refused("IMPORT_ROW") as error:
                await run(db, "import", **args)
            assert 'line 5: insert or update on table "family" violates' in str(error.value)
            assert "Key (parent)=(9) is not present" in str(error.value)
            assert await stored(db, table.id) == []
            return
        found = await run(db, "import", on_error="skip", **args)
        assert [(line, code) for _, line, code, _ in found["errors"]] == [
            (5, "23503"),
            (6, "23503"),
        ]
        rows = [codec(table).decode_row(*pair) for pair in await stored(db, table.id)]
        assert rows == [(1, None), (2, 1), (3, 2), (6, None), (7, 6)]
        assert (found["rows"], found["skipped"]) == (5, 2)


async def test_u3_a_parent_that_goes_while_its_child_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child is committed whose parent was deleted between the look and the commit."""
    source = tmp_path / "child.csv"
    source.write_text("id,parent\n1,1\n")
    async with node(tmp_path / "a") as db:
        parent = await declare(db, "parent", {"id": "int4"})
        row, value = codec(parent).encode_row([1])
        await db._backend.txn.write([kv_put(table_prefix(parent.id) + row, value)])
        columns = [{"name": "id", "type": "int4"}, {"name": "parent", "type": "int4"}]
        args = {"namespace": "default", "name": "child", "columns": columns, "primary_key": ["id"]}
        args |= {"foreign_keys": [{"columns": ["parent"], "table": "parent"}]}
        await db.wait(await db.submit("CreateTable", args), timeout_ms=20_000)
        child = await catalog.lookup(db._backend.txn, "default", "child")
        plain = loading.Loader.flush

        async def flush(self: loading.Loader) -> None:
            monkeypatch.setattr(loading.Loader, "flush", plain)
            await db._backend.txn.write([kvorum_delete(parent, 1)])
            await plain(self)

        monkeypatch.setattr(loading.Loader, "flush", flush)
        with refused("IMPORT_ROW") as error:
            await run(db, "import", table=["default", "child"], source=source.as_uri())
        assert "is not present in table" in str(error.value)
        assert await stored(db, child.id) == []


def test_csv_pieces_are_the_same_wherever_they_are_cut() -> None:
    """A quoted line break, \\r\\n, or an empty field at the end of a read would be torn."""
    data = 'a,b\r\n1,"x\r\ny"\r\n2,\r\n,"a""b"\r\n\r\n3,"é"\r\n'.encode()
    whole, end, lines = formats.csv_rows(data, 0, 100, True, 0)
    assert [row.values for row in whole] == [
        ("a", "b"),
        ("1", "x\r\ny"),
        ("2", None),
        (None, 'a"b'),
        ("3", "é"),
    ]
    assert [row.line for row in whole] == [1, 2, 4, 5, 7]
    assert end == len(data)
    for cut in range(len(data)):
        first, used, line = formats.csv_rows(data[:cut], 0, 100, False, 0)
        rest, _, last = formats.csv_rows(data[used:], 0, 100, True, line)
        assert [*first, *rest] == whole, cut
        assert last == lines


@pytest.mark.slow
async def test_u3_files_of_an_export_have_a_size_and_keep_to_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 rows of 100 KB were in memory at once, and read as fast as it goes."""
    monkeypatch.setattr(exporting, "TRANSFER_EXPORT_BYTES", 200_000)
    monkeypatch.setattr(exporting, "TRANSFER_EXPORT_STROKE_S", 1)
    async with node(tmp_path / "node") as db:
        await db.create_table("default", "t")
        for i in range(50):
            await db.table("default", "t").put(f"k{i:03}", bytes(10_000))
        args = {"table": ["default", "t"], "format": "json"}
        told = await run(db, "export", target=(tmp_path / "free").as_uri(), **args)
        assert (told["files"], told["rows"]) == (3, 50)
        began = time.monotonic()
        target = (tmp_path / "held").as_uri()
        told = await run(db, "export", target=target, rate=100_000, **args)
        assert (told["files"], told["rows"]) == (5, 50)
        assert time.monotonic() - began > 3
