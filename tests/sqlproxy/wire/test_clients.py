"""Real clients against the wire: psql, psycopg 3 (sync, async, pipeline, binary, COPY), asyncpg."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import shutil
import uuid
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import pq

from kv.base.errors import DeadlineExceeded, KvorumError, NotLeader, Unavailable
from tests.sqlproxy.wire.conftest import Served

NAIVE = dt.datetime(1999, 12, 31, 23, 59, 59, 500)  # noqa: DTZ001 - a timestamp without zone
PSQL = shutil.which("psql")


async def psql(served: Served, script: str, *options: str) -> tuple[int, str, str]:
    """A script through psql's standard input: exit code, output, errors."""
    if PSQL is None:
        pytest.fail("psql is not installed: apt-get install postgresql-client")
    process = await asyncio.create_subprocess_exec(
        PSQL,
        "-X",
        "-q",
        "-A",
        "-t",
        *options,
        served.url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(script.encode())
    return process.returncode or 0, out.decode(), err.decode()


async def test_psql_script_with_many_statements_errors_and_notices(served: Served) -> None:
    """psql could not run scripts: rows, an error in the middle, a notice, the state of BEGIN."""
    code, out, err = await psql(
        served,
        "select 1 as a, 'x y'::text as b;\nfail;\nnotice;\nbegin;\n"
        "select * from rows(3);\ncommit;\nbogus;\n",
    )
    assert code == 0
    assert out == "1|x y\n0|name 0\n1|name 1\n2|name 2\n"
    assert "ERROR:  division by zero" in err
    assert "HINT:  Do not." in err
    assert "NOTICE:  look here" in err
    assert 'syntax error at or near "bogus"' in err


async def test_psql_several_statements_in_one_message(served: Served) -> None:
    """`-c` with several statements is one simple query: all results, one implicit transaction."""
    process = await asyncio.create_subprocess_exec(
        PSQL or "psql",
        "-X",
        "-A",
        "-t",
        served.url,
        "-c",
        "insert into log values (1); select 1; select 2",
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert out.decode().split() == ["INSERT", "0", "1", "1", "2"]
    assert served.sessions.shared.log == ["1"]


async def test_psql_copy_both_ways(served: Served) -> None:
    """\\copy and COPY through psql lost rows, or their NULLs and tabs."""
    script = "copy t from stdin;\n1\ta\\tb\n2\t\\N\n\\.\ncopy t to stdout;\n"
    code, out, err = await psql(served, script)
    assert (code, err) == (0, "")
    assert out == "1\ta\\tb\n2\t\\N\n"
    assert served.sessions.shared.copied == [(1, "a\tb"), (2, None)]


async def test_psql_copy_error_names_line_and_column_and_the_session_goes_on(
    served: Served,
) -> None:
    """A bad row of a COPY broke the connection, or nobody could tell which row it was."""
    _, out, err = await psql(served, "copy t from stdin;\n1\ta\nx\tb\n\\.\nselect 7;\n")
    assert 'invalid input syntax for type integer: "x"' in err
    assert 'COPY t, line 2, column id: "x"' in err
    assert out == "7\n"


async def aconnect(served: Served, **options: Any) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(served.url, **options)


async def test_psycopg_parameters_of_every_kind_come_back(served: Served) -> None:
    """A parameter or a result lost its value, in text or in binary."""
    values = [
        True,
        7,
        1 << 40,
        1.5,
        "tëxt",
        b"\x00\xff",
        decimal.Decimal("-12345.6700"),
        dt.date(2024, 2, 29),
        NAIVE,
        dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC),
        dt.time(1, 2, 3),
        uuid.UUID(int=5),
        [1, None, 3],
        ["a b", None, 'q"'],
        None,
    ]
    types = "bool int4 int8 float8 text bytea numeric date timestamp timestamptz time uuid int4[] text[] int4"  # noqa: E501 - one list
    query = "select " + ", ".join(f"%s::{name}" for name in types.split())
    async with await aconnect(served) as conn:
        for binary in (False, True):
            async with conn.cursor(binary=binary) as cursor:
                await cursor.execute(query, values)
                row = await cursor.fetchone()
                assert list(row or ()) == values


async def test_psycopg_prepared_statements_and_pipeline(served: Served) -> None:
    """Statements sent ahead were answered in another order, or an error took later ones along."""
    async with await aconnect(served, prepare_threshold=0, autocommit=True) as conn:
        async with conn.pipeline():
            cursors = [await conn.execute("select %s::int4", (i,)) for i in range(50)]
        assert [(await c.fetchone() or [None])[0] for c in cursors] == list(range(50))
        async with conn.pipeline() as pipeline:
            await conn.execute("select 1")
            await conn.execute("fail")
            await conn.execute("select 2")
            with pytest.raises(psycopg.errors.DivisionByZero):
                await pipeline.sync()
        assert (await (await conn.execute("select 3")).fetchone() or [0])[0] == 3


async def test_psycopg_server_cursor_reads_in_pieces(served: Served) -> None:
    """A declared cursor could not be described or fetched from."""
    async with await aconnect(served) as conn, conn.cursor("c") as cursor:
        cursor.itersize = 7
        await cursor.execute("select * from rows(20)")
        assert [row[0] async for row in cursor] == list(range(20))


async def test_psycopg_copy_in_text_and_binary_and_out(served: Served) -> None:
    """COPY of a driver lost rows; binary is what bulk loads use."""
    rows = [(i, None if i % 7 == 0 else f"näme\t{i}\\") for i in range(5000)]
    async with await aconnect(served) as conn, conn.cursor() as cursor:
        async with cursor.copy("COPY t FROM STDIN") as copy:
            for row in rows:
                await copy.write_row(row)
        assert cursor.rowcount == 5000
        async with cursor.copy("COPY t FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "text"])
            for row in rows:
                await copy.write_row(row)
        assert served.sessions.shared.copied == rows + rows
        for form in ("", " (FORMAT binary)"):
            async with cursor.copy(f"COPY t TO STDOUT{form}") as copy:
                copy.set_types(["int4", "text"])
                assert [row async for row in copy.rows()] == rows + rows


async def give_up_in_the_middle(conn: psycopg.AsyncConnection[Any]) -> None:
    async with conn.cursor() as cursor, cursor.copy("COPY t FROM STDIN") as copy:
        await copy.write_row((1, "a"))
        raise ZeroDivisionError


async def test_psycopg_copy_that_the_client_gives_up(served: Served) -> None:
    """CopyFail kept the rows, or left the connection waiting for more."""
    async with await aconnect(served, autocommit=True) as conn:
        with pytest.raises(ZeroDivisionError):
            await give_up_in_the_middle(conn)
        assert served.sessions.shared.copied == []
        assert conn.info.transaction_status == pq.TransactionStatus.IDLE
        assert (await (await conn.execute("select 3")).fetchone() or [0])[0] == 3


async def test_psycopg_errors_carry_their_fields_and_fail_the_transaction(
    served: Served,
) -> None:
    """Drivers choose what to do by the SQLSTATE and the transaction's status."""
    async with await aconnect(served) as conn:
        await conn.execute("select 1")
        with pytest.raises(psycopg.errors.DivisionByZero) as caught:
            await conn.execute("fail")
        assert caught.value.diag.message_hint == "Do not."
        assert caught.value.diag.statement_position == "3"
        assert conn.info.transaction_status == pq.TransactionStatus.INERROR
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            await conn.execute("select 1")
        await conn.rollback()
        assert (await (await conn.execute("select 3")).fetchone() or [0])[0] == 3


@pytest.mark.parametrize("extended", [True, False])
async def test_commit_that_fails_is_not_told_as_done(served: Served, extended: bool) -> None:
    """A client was told `INSERT 0 1` of a row whose commit failed."""
    async with await aconnect(served, autocommit=True) as conn:
        query = "insert into log values (%s)" if extended else "insert into log values ('refuse')"
        with pytest.raises(psycopg.errors.SerializationFailure):
            await conn.execute(query, ("refuse",) if extended else None)
        assert served.sessions.shared.log == []
        assert conn.info.transaction_status == pq.TransactionStatus.IDLE


async def test_psycopg_cancel_ends_the_statement_and_not_the_connection(
    served: Served,
) -> None:
    """A cancel request hit nothing, or more than the statement."""
    async with await aconnect(served, autocommit=True) as conn:
        sleeping = asyncio.create_task(conn.execute("sleep"))
        await served.sessions.shared.running.wait()
        await conn.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            await sleeping
        assert (await (await conn.execute("select 3")).fetchone() or [0])[0] == 3
    assert served.server.counters.cancels == 1


def blocking_client(url: str) -> list[Any]:
    """What a program without asyncio does."""
    found: list[Any] = []
    notices: list[str] = []
    with psycopg.connect(url, options="-c TimeZone=Europe/Paris") as conn:
        conn.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        found.append(conn.execute("select 1, 'a'::text").fetchall())
        conn.execute("notice")
        when = conn.execute("select '2024-07-01 12:00+00'::timestamptz").fetchone()
        found += [notices, str((when or [None])[0])]
        conn.execute("set TimeZone to 'Asia/Kolkata'")
        when = conn.execute("select '2024-07-01 12:00+00'::timestamptz").fetchone()
        found += [str((when or [None])[0]), conn.info.timezone.key]
    return found


async def test_psycopg_sync_sees_notices_and_its_zone(served: Served) -> None:
    """Settings at the start or SET TimeZone did not reach the text of timestamps."""
    assert await asyncio.to_thread(blocking_client, served.url) == [
        [(1, "a")],
        ["look here"],
        "2024-07-01 14:00:00+02:00",
        "2024-07-01 17:30:00+05:30",
        "Asia/Kolkata",
    ]


async def asyncpg_connect(served: Served, **options: Any) -> Any:
    return await asyncpg.connect(
        host="127.0.0.1", port=served.port, user="bob", database="db", **options
    )


async def test_asyncpg_values_prepared_cursor_and_transaction(served: Served) -> None:
    """asyncpg speaks binary only, suspends portals and keeps its statements."""
    conn = await asyncpg_connect(served)
    interval = dt.timedelta(days=3, hours=4, microseconds=5)
    values = [
        5,
        "t",
        2.5,
        True,
        b"\x01",
        decimal.Decimal("1.50"),
        dt.date(2000, 1, 1),
        NAIVE,
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        uuid.UUID(int=9),
        interval,
        None,
        '{"a": 1}',
        '{"b": 2}',
    ]
    types = "int8 text float8 bool bytea numeric date timestamp timestamptz uuid interval text json jsonb"  # noqa: E501 - one list
    query = "select " + ", ".join(
        f"${n}::{name} as c{n}" for n, name in enumerate(types.split(), 1)
    )
    for _ in range(3):
        assert list(await conn.fetchrow(query, *values)) == values
    statement = await conn.prepare("select * from rows(1000)")
    async with conn.transaction():
        found = [record["id"] async for record in statement.cursor(prefetch=64)]
    assert found == list(range(1000))
    with pytest.raises(asyncpg.DivisionByZeroError):
        async with conn.transaction():
            await conn.execute("fail")
    assert await conn.fetchval("select $1::int4", 3) == 3
    await conn.close()


async def test_asyncpg_copy_records(served: Served) -> None:
    """asyncpg copies in binary and in large pieces."""
    conn = await asyncpg_connect(served)
    rows = [(i, f"n{i}") for i in range(20_000)]
    tag = await conn.copy_records_to_table("t", records=rows)
    assert tag == "COPY 20000"
    assert served.sessions.shared.copied == rows
    await conn.close()


async def test_large_results_arrive_whole(served: Served) -> None:
    """Rows beyond the output bound were lost or reordered."""
    conn = await asyncpg_connect(served)
    found = await conn.fetch("select * from wide(2500)")
    assert [record["id"] for record in found] == list(range(2500))
    assert {len(record["name"]) for record in found} == {10_000}
    await conn.close()


async def test_unknown_database_is_refused_before_anything_runs(served: Served) -> None:
    """A client of a database that does not exist was let in."""
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(host="127.0.0.1", port=served.port, user="bob", database="nowhere")


@pytest.mark.parametrize(
    "late",
    [
        Unavailable("the oracle's durable bound is reached", code="TSO_BOUND"),
        NotLeader("the meta partition has no leader"),
        DeadlineExceeded("nobody has answered"),
    ],
    ids=lambda late: late.code,
)
async def test_who_comes_too_early_is_told_to_connect_again(
    served: Served, late: KvorumError
) -> None:
    """A program would take it for a transaction of its own that failed (40001), or for a
    cancellation, and a driver with several hosts would not go on to the next one.
    """
    served.sessions.shared.late = late
    with pytest.raises(asyncpg.CannotConnectNowError) as refused:
        await asyncpg.connect(host="127.0.0.1", port=served.port, user="bob", database="db")
    assert (refused.value.sqlstate, refused.value.detail) == ("57P03", late.message)
