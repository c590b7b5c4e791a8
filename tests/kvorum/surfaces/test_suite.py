"""The one suite: everything a database does, through embedded, SDK and HTTP alike (A5, U8)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import kvorum
from kv.base.limits import BATCH_OPS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX
from kvorum import Delete, Put
from tests.kvorum.surfaces.conftest import SURFACES, Served

ODD_KEYS = [
    b"\x00",
    b"\x00\xff",
    b"a\x00",
    b"a/b?c#d%20 e",
    b"\xff",
    b"\xff\xff\x00",
    "ключ".encode(),
]


def values(page: kvorum.Page) -> list[tuple[bytes, bytes]]:
    return [(item.key, item.value) for item in page.items]


def filled(table: kvorum.Table, keys: str = "acegikmoqsuwy") -> list[bytes]:
    """Keys over all three partitions, each with its own name as the value."""
    for key in keys:
        table.put(key, key)
    return [key.encode() for key in keys]


# ------------------------------------------------------------------------------------ one record


def test_a5_every_surface_sees_the_same_data(served: Served, table: kvorum.Table) -> None:
    """A surface with a view of its own would give two users of one cluster two truths."""
    version = table.put("k", b"v")
    for name in SURFACES:
        found = served.by_name[name].table(table.ns, table.name).get("k")
        assert found == (b"v", version), name


def test_b1_put_get_delete(table: kvorum.Table) -> None:
    """A record that does not come back as it was written is lost."""
    assert table.get("k") is None
    first = table.put("k", b"one")
    assert table.get("k") == (b"one", first)
    second = table.put("k", b"")
    assert second > first
    assert table.get("k") == (b"", second)
    third = table.delete("k")
    assert third > second
    assert table.get("k") is None
    assert table.delete("k") > third


def test_a_time_to_live_of_nothing_is_refused(db: kvorum.Database, table: kvorum.Table) -> None:
    """A time to live that was computed to 0 means for ever."""
    for ttl_ms in (0, -1, True, 1.5):
        with pytest.raises(kvorum.InvalidArgument, match="ttl_ms"):
            table.put("k", b"v", ttl_ms=ttl_ms)  # type: ignore[arg-type]
        with db.transaction() as t, pytest.raises(kvorum.InvalidArgument, match="ttl_ms"):
            t.table(table.ns, table.name).put("k", b"v", ttl_ms=ttl_ms)  # type: ignore[arg-type]
    assert table.get("k") is None


def test_what_is_there_may_be_made_again(db: kvorum.Database, table: kvorum.Table) -> None:
    """A program that makes its tables when it starts fails at its second start, or changes them."""
    with pytest.raises(kvorum.AlreadyExists):
        db.create_namespace(table.ns)
    db.create_namespace(table.ns, exists_ok=True)
    table.put("k", b"v")
    with pytest.raises(kvorum.AlreadyExists):
        db.create_table(table.ns, table.name)
    columns = [kvorum.Column("id", "int8", nullable=False)]
    found = db.create_table(
        table.ns, table.name, columns=columns, primary_key=["id"], exists_ok=True
    )
    assert (found.name, found.columns) == (table.name, ())
    assert table.get("k") is not None
    with pytest.raises(kvorum.NotFound):
        db.create_table("nowhere", table.name, exists_ok=True)


@pytest.mark.few(7)
@pytest.mark.parametrize("key", ODD_KEYS, ids=repr)
def test_b1_any_bytes_are_a_key_and_a_value(table: kvorum.Table, key: bytes) -> None:
    """A key that an encoding mangles is another key."""
    version = table.put(key, key)
    assert table.get(key) == (key, version)
    assert values(table.scan()) == [(key, key)]
    table.delete(key)


def test_b1_old_versions_are_read_by_their_timestamp(table: kvorum.Table) -> None:
    """A snapshot that shows later writes is none."""
    first = table.put("k", b"one")
    second = table.put("k", b"two")
    assert table.get("k", at=first) == (b"one", first)
    assert table.get("k", at=second) == (b"two", second)
    assert table.get("k", at=first - 1) is None


def test_b2_one_of_many_racing_puts_if_absent_wins(table: kvorum.Table) -> None:
    """Two winners of one name would both believe that it is theirs."""

    def attempt(i: int) -> int | kvorum.ConditionFailed:
        try:
            return table.put("k", str(i), if_absent=True)
        except kvorum.ConditionFailed as e:
            return e

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(attempt, range(100)))
    won = [r for r in results if isinstance(r, int)]
    assert len(won) == 1
    lost = [r.details["version"] for r in results if isinstance(r, kvorum.ConditionFailed)]
    assert lost == [str(won[0])] * 99


def test_b3_racing_increments_lose_nothing(table: kvorum.Table) -> None:
    """A compare-and-swap that lets two through loses one of them."""
    table.put("n", b"0")

    def increment(times: int) -> None:
        while times:
            found = table.get("n")
            assert found is not None
            try:
                table.put("n", str(int(found.value) + 1), if_version=found.version)
            except kvorum.ConditionFailed:
                continue
            times -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(increment, [10] * 4))
    found = table.get("n")
    assert found is not None
    assert found.value == b"40"


def test_b4_delete_checks_the_version(table: kvorum.Table) -> None:
    """Deleting what somebody else has changed meanwhile destroys their work."""
    stale = table.put("k", b"one")
    fresh = table.put("k", b"two")
    with pytest.raises(kvorum.ConditionFailed) as refused:
        table.delete("k", if_version=stale)
    assert refused.value.details["version"] == str(fresh)
    assert table.get("k") == (b"two", fresh)
    table.delete("k", if_version=fresh)
    assert table.get("k") is None


def test_b5_an_expired_record_is_gone_for_every_read(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """Get, multi-get and scan that disagree at one snapshot make it no snapshot."""
    version = table.put("k", b"v", ttl_ms=300)
    table.put("stays", b"v")
    assert table.get("k") == (b"v", version)
    wait = threading.Event()
    while table.get("k") is not None:
        wait.wait(0.02)
    at = db.timestamp()
    assert at >> 18 >= (version >> 18) + 300
    assert table.multi_get(["k", "stays"], at=at)[0] is None
    assert [k for k, _ in values(table.scan(at=at))] == [b"stays"]
    assert table.get("k", at=version) == (b"v", version)
    table.put("k", b"again", if_absent=True)


# ----------------------------------------------------------------------------------- many records


def test_b6_a_batch_over_partitions_has_one_version(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """Two versions would be two moments, and a reader between them sees half."""
    ns, name = table.ns, table.name
    table.put("b", b"old")
    version = db.batch([Put(ns, name, "a", "1"), Delete(ns, name, "b"), Put(ns, name, "z", "2")])
    assert table.multi_get(["a", "b", "z"]) == [(b"1", version), None, (b"2", version)]


def test_b6_the_last_op_on_a_key_counts(db: kvorum.Database, table: kvorum.Table) -> None:
    """Ops on one key happen in their order, though at one version."""
    ns, name = table.ns, table.name
    version = db.batch([Put(ns, name, "k", "1"), Delete(ns, name, "k"), Put(ns, name, "k", "2")])
    assert table.get("k") == (b"2", version)


def test_b7_one_failed_condition_refuses_the_batch(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """Half a batch is the one thing a batch must never be."""
    ns, name = table.ns, table.name
    version = table.put("z", b"there")
    with pytest.raises(kvorum.ConditionFailed) as refused:
        db.batch([Put(ns, name, "a", "1"), Put(ns, name, "z", "2", if_absent=True)])
    details = refused.value.details
    key = details["key"]
    assert (key.encode() if isinstance(key, str) else key) == b"z"
    assert details["op"] == 1
    assert details["version"] == str(version)
    assert table.multi_get(["a", "z"]) == [None, (b"there", version)]
    db.batch([Put(ns, name, "a", "1"), Put(ns, name, "z", "2", if_version=version)])
    assert [r and r.value for r in table.multi_get(["a", "z"])] == [b"1", b"2"]


def test_b8_multi_get_is_one_snapshot(db: kvorum.Database, table: kvorum.Table) -> None:
    """A total that changes while money only moves shows two moments in one answer."""
    accounts = ["a", "i", "q", "z"]
    ns, name = table.ns, table.name
    db.batch([Put(ns, name, k, "100") for k in accounts])
    stop = threading.Event()

    def move() -> None:
        i = 0
        while not stop.is_set():
            giver, taker = accounts[i % 4], accounts[(i + 1) % 4]
            i += 1

            def work(t: kvorum.Transaction, giver: str = giver, taker: str = taker) -> None:
                rows = t.table(ns, name)
                a, b = rows.get(giver), rows.get(taker)
                assert a is not None
                assert b is not None
                rows.put(giver, str(int(a.value) - 1))
                rows.put(taker, str(int(b.value) + 1))

            db.run(work)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(40):
            found = table.multi_get(accounts)
            assert sum(int(r.value) for r in found if r is not None) == 400
    finally:
        stop.set()
        mover.join()


def test_b9_multi_write_answers_each_op(db: kvorum.Database, table: kvorum.Table) -> None:
    """One refused op must neither stop the others nor hide which one it was."""
    ns, name = table.ns, table.name
    there = table.put("b", b"there")
    results = db.multi_write(
        [
            Put(ns, name, "a", "1"),
            Put(ns, name, "b", "2", if_absent=True),
            Delete(ns, name, "nothing"),
            Put(ns, name, "z", "3"),
        ]
    )
    assert isinstance(results[1], kvorum.ConditionFailed)
    assert results[1].details["version"] == str(there)
    assert all(isinstance(results[i], int) for i in (0, 2, 3))
    found = [r and r.value for r in table.multi_get(["a", "b", "z"])]
    assert found == [b"1", b"there", b"3"]


# ------------------------------------------------------------------------------------------ scans


def test_b10_pages_of_a_scan_are_one_snapshot(table: kvorum.Table) -> None:
    """A scan that meets writes made after it began mixes two states."""
    keys = filled(table)
    page = table.scan(limit=4)
    table.put("b", b"late")
    table.delete("y")
    seen = values(page)
    while page.cursor is not None:
        page = table.scan(limit=4, cursor=page.cursor)
        seen += values(page)
    assert seen == [(k, k) for k in keys]
    assert [i.key for i in table.rows()] == sorted([*keys[:-1], b"b"])


def test_b10_bounds(table: kvorum.Table) -> None:
    """A bound that is off by one shows a record too many or hides one."""
    keys = filled(table)
    assert [i.key for i in table.rows(start="e", end="o")] == keys[2:7]
    assert [i.key for i in table.rows(start="f", end="oo")] == keys[3:8]
    assert [i.key for i in table.rows(start="o", end="e")] == []
    assert [i.key for i in table.rows(start="zz")] == []
    assert [i.key for i in table.rows(prefix="g", start="a", end="gg")] == [b"g"]


def test_b11_prefix_edges(table: kvorum.Table) -> None:
    """The successor of a prefix of ff bytes, and of one with 00, is where prefix scans go wrong."""
    keys = [
        b"a",
        b"a\x00",
        b"a\x00b",
        b"a\xff",
        b"a\xff\xff",
        b"b",
        b"\xff",
        b"\xff\xff",
        b"\xff\xffx",
    ]
    for key in keys:
        table.put(key, b"")
    for prefix in (b"a", b"a\x00", b"a\xff", b"a\xff\xff", b"\xff", b"\xff\xff", b"c", b""):
        wanted = sorted(k for k in keys if k.startswith(prefix))
        assert [i.key for i in table.rows(prefix=prefix)] == wanted, prefix


def test_b12_reverse_is_the_forward_scan_backwards(table: kvorum.Table) -> None:
    """A cursor that loses or repeats a record in reverse does so at every page border."""
    filled(table)
    forward = list(table.rows(start="c", end="u"))
    assert list(table.rows(start="c", end="u", reverse=True)) == forward[::-1]
    page = table.scan(start="c", end="u", reverse=True, limit=2)
    seen = list(page.items)
    while page.cursor is not None:
        page = table.scan(cursor=page.cursor, limit=3)
        seen += page.items
    assert seen == forward[::-1]


def test_b12_a_foreign_cursor_is_refused(table: kvorum.Table) -> None:
    """A cursor of another scan would silently skip what lies between."""
    filled(table)
    cursor = table.scan(limit=2, end="m").cursor
    assert cursor is not None
    for bad in ("", "x", cursor[:-1], cursor[:-2] + "AA", cursor + "A"):
        with pytest.raises(kvorum.InvalidArgument, match="cursor"):
            table.scan(cursor=bad)
    with pytest.raises(kvorum.InvalidArgument, match="another scan"):
        table.scan(cursor=cursor, start="e")
    with pytest.raises(kvorum.InvalidArgument, match="another scan"):
        table.scan(cursor=cursor, reverse=True)


# ------------------------------------------------------------------------- namespaces and tables


def test_a7_tables_are_apart(db: kvorum.Database, table: kvorum.Table) -> None:
    """One key in two tables is two records, and dropping one table leaves the other."""
    other = db.create_table("default", f"{table.name}b")
    twin = db.table("default", other.name)
    table.put("k", b"mine")
    twin.put("k", b"theirs")
    assert other.name in [t.name for t in db.tables("default")]
    db.drop_table("default", other.name)
    found = table.get("k")
    assert found is not None
    assert found.value == b"mine"
    with pytest.raises(kvorum.NotFound) as gone:
        twin.get("k")
    assert gone.value.code == "TABLE_NOT_FOUND"
    db.create_table("default", other.name)
    assert twin.get("k") is None
    assert [t.id for t in db.tables("default") if t.name == other.name] != [other.id]


def test_a7_namespaces(db: kvorum.Database, table: kvorum.Table) -> None:
    """A namespace that can be dropped under its tables takes them along."""
    ns = f"ns-{table.name}"
    db.create_namespace(ns)
    assert ns in db.namespaces()
    with pytest.raises(kvorum.AlreadyExists):
        db.create_namespace(ns)
    db.create_table(ns, table.name)
    db.table(ns, table.name).put("k", b"v")
    assert table.get("k") is None
    with pytest.raises(kvorum.Refused):
        db.drop_namespace(ns)
    db.drop_table(ns, table.name)
    db.drop_namespace(ns)
    assert ns not in db.namespaces()
    with pytest.raises(kvorum.NotFound):
        db.tables(ns)


def test_a7_declared_columns_come_back(db: kvorum.Database, table: kvorum.Table) -> None:
    """SQL and Spark read a table by the columns that were declared."""
    columns = [
        kvorum.Column("id", "int8", nullable=False),
        kvorum.Column("name", "text"),
    ]
    name = f"{table.name}c"
    db.create_table("default", name, columns=columns, primary_key=["id"])
    (found,) = [t for t in db.tables("default") if t.name == name]
    assert found.columns == tuple(columns)
    assert found.primary_key == ("id",)


# ------------------------------------------------------------------------------------ transactions


def test_p10_a_transaction_reads_its_snapshot_and_its_own_writes(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """Reads that move while a transaction runs make every decision in it doubtful."""
    before = table.put("a", b"old")
    table.put("z", b"old")
    with db.transaction() as t:
        rows = t.table(table.ns, table.name)
        assert rows.get("a") == (b"old", before)
        table.put("q", b"later")
        assert rows.get("q") is None
        rows.put("b", b"mine")
        rows.delete("z")
        assert rows.get("b") == (b"mine", 0)
        assert rows.get("z") is None
        assert values(rows.scan()) == [(b"a", b"old"), (b"b", b"mine")]
        assert values(rows.scan(reverse=True, limit=1)) == [(b"b", b"mine")]
        assert rows.multi_get(["z", "b", "a"])[::2] == [None, rows.get("a")]
        assert rows.multi_get(["b"]) == [(b"mine", 0)]
        assert table.get("b") is None
    assert t.version is not None
    assert table.get("b") == (b"mine", t.version)
    assert table.get("z") is None
    assert db.status(t.id) == kvorum.TxnState("committed", t.version)


def test_d7_a_raised_block_writes_nothing(db: kvorum.Database, table: kvorum.Table) -> None:
    """A block that raised and left its writes would half-do what it gave up."""
    seen: list[int] = []

    def block() -> None:
        with db.transaction() as t:
            seen.append(t.id)
            t.table(table.ns, table.name).put("a", b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert table.get("a") is None
    assert db.status(seen[0]).status == "aborted"


def test_p11_a_lost_update_is_impossible(db: kvorum.Database, table: kvorum.Table) -> None:
    """Two read-modify-writes on one key: the second to commit must be told."""
    table.put("n", b"1")
    t = db.transaction()
    rows = t.table(table.ns, table.name)
    rows.get("n")
    rows.put("n", b"2")
    table.put("n", b"10")
    with pytest.raises(kvorum.WriteConflict) as conflict:
        t.commit()
    assert conflict.value.disposition == "restart_txn"
    found = table.get("n")
    assert found is not None
    assert found.value == b"10"


def test_d1_run_tries_again_until_it_commits(db: kvorum.Database, table: kvorum.Table) -> None:
    """Conflicts are normal; a product that leaves retrying to its users gets it wrong there."""
    table.put("n", b"0")

    def increment(t: kvorum.Transaction) -> None:
        rows = t.table(table.ns, table.name)
        found = rows.get("n")
        assert found is not None
        rows.put("n", str(int(found.value) + 1))

    def many(times: int) -> None:
        for _ in range(times):
            db.run(increment, attempts=100)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(many, [8] * 4))
    found = table.get("n")
    assert found is not None
    assert found.value == b"32"


def test_d1_run_gives_up_on_what_retrying_does_not_mend(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """A wrong request repeated twenty times is wrong twenty times."""
    runs: list[int] = []

    def wrong(t: kvorum.Transaction) -> None:
        runs.append(t.id)
        t.table("default", "no-such-table").put("k", b"v")

    with pytest.raises(kvorum.NotFound):
        db.run(wrong)
    assert len(runs) == 1


def test_d4_status_of_what_never_was(db: kvorum.Database) -> None:
    """An id from the future must not be reserved as aborted, nor answered at all."""
    with pytest.raises(kvorum.InvalidArgument):
        db.status(db.timestamp() + (1 << 40))


def test_snapshot_keeps_its_state(db: kvorum.Database, table: kvorum.Table) -> None:
    """Reports over several reads add up only at one snapshot."""
    table.put("a", b"1")
    snapshot = db.snapshot()
    table.put("a", b"2")
    table.put("b", b"2")
    rows = snapshot.table(table.ns, table.name)
    assert [r and r.value for r in rows.multi_get(["a", "b"])] == [b"1", None]
    assert values(rows.scan()) == [(b"a", b"1")]
    assert rows.get("b") is None


# -------------------------------------------------------------------------------------- procedures


def test_m2_a_procedure_is_waited_for(db: kvorum.Database, table: kvorum.Table) -> None:
    """A result that cannot be had is an operation of unknown end."""
    table.put("a", b"10")
    args = {"table": table.name, "from": "a", "to": "z", "amount": 3}
    procedure = db.submit("sample.transfer", args)
    assert db.wait(procedure, timeout_ms=10_000) == {"moved": 3}
    assert [r and r.value for r in table.multi_get(["a", "z"])] == [b"7", b"3"]
    info = db.procedure(procedure)
    assert (info.id, info.name, info.state) == (procedure, "sample.transfer", "SUCCESS")
    assert [s["step"] for s in info.steps] == ["withdraw", "deposit"]
    assert procedure in [p.id for p in db.procedures(name="sample.transfer")]


def test_u8_a_transaction_and_a_procedure_work_on_the_same_rows(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """Who has to change the surface in the middle of a task has two half databases."""
    with db.transaction() as t:
        t.table(table.ns, table.name).put("a", b"10")
        t.table(table.ns, table.name).put("z", b"1")
    args = {"table": table.name, "from": "a", "to": "z", "amount": 4}
    db.wait(db.submit("sample.transfer", args), timeout_ms=10_000)
    with db.transaction() as t:
        rows = t.table(table.ns, table.name)
        found = [rows.get("a"), rows.get("z")]
        rows.put("sum", str(sum(int(r.value) for r in found if r)))
    assert [r and r.value for r in table.multi_get(["a", "z", "sum"])] == [b"6", b"5", b"11"]


def test_m2_the_error_of_a_procedure_comes_back(db: kvorum.Database, table: kvorum.Table) -> None:
    """A rolled back procedure must say why, and leave nothing."""
    table.put("a", b"10")
    args = {"table": table.name, "from": "a", "to": "z", "amount": 3, "refuse": True}
    procedure = db.submit("sample.transfer", args)
    with pytest.raises(kvorum.Refused) as refused:
        db.wait(procedure, timeout_ms=10_000)
    assert refused.value.code == "NO_SUCH_ACCOUNT"
    assert db.procedure(procedure).state == "ROLLED_BACK"
    assert [r and r.value for r in table.multi_get(["a", "z"])] == [b"10", None]


def test_j4_one_nonce_is_one_procedure(db: kvorum.Database, table: kvorum.Table) -> None:
    """A client that asks again after a lost answer must not start it twice."""
    table.put("a", b"10")
    args = {"table": table.name, "from": "a", "to": "z", "amount": 1}
    ids = {db.submit("sample.transfer", args, nonce=f"n-{table.name}") for _ in range(3)}
    assert len(ids) == 1
    db.wait(ids.pop(), timeout_ms=10_000)
    found = table.get("z")
    assert found is not None
    assert found.value == b"1"


def test_j3_a_refused_write_is_told_in_the_users_terms(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """Storage keys in an error are riddles: users know tables and keys."""
    args = {"table": table.name, "key": "seat"}
    db.wait(db.submit("sample.claim", args), timeout_ms=10_000)
    with pytest.raises(kvorum.ConditionFailed) as refused:
        db.wait(db.submit("sample.claim", args), timeout_ms=10_000)
    assert f"b'seat' of default.{table.name}" in refused.value.message
    details = refused.value.details
    assert (details["ns"], details["table"]) == ("default", table.name)
    assert details["key"] in (b"seat", "seat")


def test_m8_abort_ends_a_waiting_procedure(db: kvorum.Database) -> None:
    """What nobody can stop must be killed with its node."""
    procedure = db.submit("sample.wait")
    with pytest.raises(kvorum.DeadlineExceeded):
        db.wait(procedure, timeout_ms=50)
    db.abort_procedure(procedure, "only asking", dry_run=True)
    assert not db.procedure(procedure).finished, "a dry run changes nothing"
    db.abort_procedure(procedure, "the test is over")
    info = db.procedure(procedure, wait_ms=10_000)
    assert info.state in ("ROLLED_BACK", "FAILED")


def test_m8_what_succeeded_is_not_aborted(db: kvorum.Database, table: kvorum.Table) -> None:
    """An abort that is accepted after the end would promise a rollback that never comes."""
    args = {"table": table.name, "from": "a", "to": "z", "amount": 1}
    procedure = db.submit("sample.transfer", args)
    db.wait(procedure, timeout_ms=10_000)
    for dry_run in (True, False):
        with pytest.raises(kvorum.Refused):
            db.abort_procedure(procedure, "too late", dry_run=dry_run)


def test_j3_unknown_procedures(db: kvorum.Database) -> None:
    """A misspelt name must be refused when it is submitted, not found out by waiting."""
    with pytest.raises(kvorum.NotFound):
        db.submit("sample.no-such")
    with pytest.raises(kvorum.NotFound):
        db.procedure(1 << 50)


# --------------------------------------------------------------------------------------- bad input

Call = Callable[[kvorum.Database, kvorum.Table], object]
BAD: dict[str, tuple[type[kvorum.KvorumError], Call]] = {
    "empty key": (kvorum.InvalidArgument, lambda db, t: t.put("", b"v")),
    "long key": (kvorum.TooLarge, lambda db, t: t.put(b"k" * (KEY_BYTES_MAX + 1), b"v")),
    "long value": (kvorum.TooLarge, lambda db, t: t.put("k", bytes(VALUE_BYTES_MAX + 1))),
    "long key read": (kvorum.TooLarge, lambda db, t: t.get(b"k" * (KEY_BYTES_MAX + 1))),
    "both conditions": (
        kvorum.InvalidArgument,
        lambda db, t: t.put("k", b"v", if_absent=True, if_version=1),
    ),
    "version 0": (kvorum.InvalidArgument, lambda db, t: t.put("k", b"v", if_version=0)),
    "negative ttl": (kvorum.InvalidArgument, lambda db, t: t.put("k", b"v", ttl_ms=-1)),
    "snapshot ahead": (kvorum.InvalidArgument, lambda db, t: t.get("k", at=1 << 63)),
    "huge page": (kvorum.InvalidArgument, lambda db, t: t.scan(limit=1_000_000)),
    "unknown table": (kvorum.NotFound, lambda db, t: db.table(t.ns, "nope").put("k", b"v")),
    "unknown namespace": (kvorum.NotFound, lambda db, t: db.table("nope", "t").put("k", b"v")),
    "unknown table of a batch": (
        kvorum.NotFound,
        lambda db, t: db.batch([Put(t.ns, t.name, "k", "v"), Put(t.ns, "nope", "k", "v")]),
    ),
    "too many ops": (
        kvorum.KvorumError,
        lambda db, t: db.batch([Put(t.ns, t.name, "k", "v")] * (BATCH_OPS_MAX + 1)),
    ),
    "bad table name": (kvorum.InvalidArgument, lambda db, t: db.create_table("default", "a\x00b")),
    "bad split keys": (
        kvorum.InvalidArgument,
        lambda db, t: db.create_table("default", "s", split_keys=["b", "a"]),
    ),
    "unknown isolation": (
        kvorum.InvalidArgument,
        lambda db, t: db.transaction(isolation="dirty"),
    ),
}


@pytest.mark.few(16)
@pytest.mark.parametrize("what", BAD)
def test_c15_bad_input_is_refused_and_changes_nothing(
    db: kvorum.Database, table: kvorum.Table, what: str
) -> None:
    """What is refused must be refused by its own class, with nothing written."""
    expected, call = BAD[what]
    with pytest.raises(expected) as refused:
        call(db, table)
    assert refused.value.disposition == "no"
    if expected is kvorum.TooLarge:
        assert refused.value.details["limit"] < refused.value.details["actual"]
    assert list(table.rows()) == []


def test_nodes_and_partitions_are_listed(db: kvorum.Database, table: kvorum.Table) -> None:
    """Operators and clients find the data by these lists."""
    (node,) = db.nodes()
    assert node["state"] == "live"
    found = db.partitions()
    assert [p["start"] for p in found] == sorted(p["start"] for p in found)
    ids = [p["id"] for p in found]
    assert len(set(ids)) == len(ids) == node["replicas"] >= 4
