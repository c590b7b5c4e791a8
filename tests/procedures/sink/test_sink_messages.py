"""What Spark's tasks tell the driver, and what the driver sends: no node, no Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import CPickleSerializer
from pyspark.sql import types as T

from kv.base import limits
from kv.base.errors import KvorumError
from procedures.sink.format.sink_records import add_crc, unpack_chunk
from procedures.verbs import SINK_COMMIT, SINK_SEAL, SINK_STAGE
from pyspark_kvorum import KvorumDataSource, writer
from pyspark_kvorum.options import Options
from pyspark_kvorum.session import Session
from pyspark_kvorum.writer import KvorumBatchWriter, KvorumStreamWriter, Staged
from sqlproxy.rows.schema import Table

OPTIONS = {"endpoint": "127.0.0.1:9", "table": "ns.t"}


class _Column:
    def __init__(self, name: str, nullable: bool) -> None:
        self.name, self.type, self.nullable = name, "text", nullable


TABLE = Table.declare(
    "ns", "t", columns=[_Column("k", False), _Column("v", True)], primary_key=["k"]
)


class Heard:
    """In place of a node: notes what it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[int, tuple[Any, ...]]] = []

        async def ask(_session: Session, method: int, *args: Any) -> list[Any]:
            self.asked.append((method, args))
            return [0]

        async def opened(_session: Session) -> None:
            """There is nobody to connect to."""

        monkeypatch.setattr(Session, "ask", ask)
        monkeypatch.setattr(Session, "opened", opened)

    def methods(self) -> list[int]:
        return [method for method, _ in self.asked]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard(monkeypatch)


def task(part: int, rows: int, *, width: int = 100, **options: str) -> Staged:
    """A task's message; its keys rise."""
    parsed = Options.parse(OPTIONS | options)

    def batches() -> Any:
        for at in range(0, rows, 10_000):
            some = range(at, min(rows, at + 10_000))
            columns = [
                pa.array([f"{part}/{n:09d}" for n in some]),
                pa.array(["x" * width] * len(some)),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["k", "v"])

    with Session(parsed, TABLE, late=True) as session:
        return session.run(writer._Stage(session, TABLE, "attempt", part, "").all(batches()))


def packed(message: Staged) -> int:
    return len(CPickleSerializer().dumps(message))


def test_o14_a_message_does_not_grow_with_rows(heard: Heard) -> None:
    """The driver's memory grows with the rows that tasks wrote."""
    few, many = task(0, 2_000), task(1, 30_000)
    assert few.inline is None
    assert many.inline is None
    assert many.chunks > few.chunks
    assert packed(many) - packed(few) < 20, "the same but for its numbers"
    assert packed(many) < 1_000
    small = task(2, 50)
    assert small.inline is not None
    assert packed(small) < limits.SINK_INLINE_BYTES + 1_000
    assert SINK_STAGE in heard.methods()


def test_o14_messages_of_many_small_tasks_are_bounded(heard: Heard) -> None:
    """Ten thousand tasks of 30 KB are 300 MB in the driver."""
    sizes = []
    for part in (0, 31, 32, 200, 9_999):
        message = task(part, 240)
        sizes.append(len(message.inline or b""))
        assert bool(message.inline) is (part <= 31), part
    assert 16 * 1024 < sizes[0] <= limits.SINK_INLINE_BYTES
    assert task(200, 5).inline is not None, "a stream's 200 tasks of a few rows stage nothing"
    room = [
        min(limits.SINK_INLINE_BYTES, limits.SINK_INLINE_DRIVER // (part + 1))
        for part in range(limits.SINK_TASKS_MAX)
    ]
    assert sum(room) < 8 * limits.SINK_INLINE_DRIVER


def test_o14_a_small_task_asks_nobody(heard: Heard) -> None:
    """A task of ten rows stages them, or its message is not the chunk that it tells of."""
    message = task(0, 10)
    assert heard.asked == []
    assert message.inline is not None
    keys, values = unpack_chunk(message.inline, "it")
    assert (len(keys), len(values)) == (10, 10)
    assert message.manifest_row() == [0, message.task, 1, 10, add_crc(0, 0, message.inline)]
    nothing = task(1, 0)
    assert (nothing.rows, nothing.inline, heard.asked) == (0, None, [])


def test_o10_tasks_of_a_job_stage_always(heard: Heard) -> None:
    """The rows of a job's write die with the program that holds its messages."""
    message = task(0, 10, jobid="7")
    assert message.inline is None
    assert heard.methods() == [SINK_SEAL]


def test_o14_rows_travel_with_the_commit_or_are_staged_by_it(heard: Heard) -> None:
    """A commit leaves rows of messages out, or sends more than a message of it may have."""
    made = KvorumBatchWriter(Options.parse(OPTIONS), TABLE, "attempt")
    few = [task(n, 10) for n in range(3)]
    made.commit([*few])
    ((method, (request,)),) = heard.asked
    assert method == SINK_COMMIT
    assert request["inline"] == {m.task: m.inline for m in few}
    assert request["manifest"] == [m.manifest_row() for m in few]
    heard.asked.clear()
    many = [task(n, 200) for n in range(20)]
    assert sum(len(m.inline or b"") for m in many) > limits.SINK_INLINE_TOTAL
    made.commit([*many])
    assert heard.methods() == [SINK_SEAL] * 20 + [SINK_COMMIT]
    assert {args[3]: args[7] for _, args in heard.asked[:-1]} == {m.task: m.inline for m in many}
    assert "inline" not in heard.asked[-1][1][0]


def test_o14_a_commit_whose_record_is_kept_has_few_rows_with_it(heard: Heard) -> None:
    """Batches without an application fill the store with their rows for an hour."""
    made = KvorumBatchWriter(Options.parse(OPTIONS), TABLE, "attempt")
    some = [task(n, 200) for n in range(4)]
    size = sum(len(m.inline or b"") for m in some)
    assert limits.SINK_INLINE_KEPT < size < limits.SINK_INLINE_TOTAL
    made.commit([*some])
    assert heard.methods() == [SINK_SEAL] * 4 + [SINK_COMMIT]
    heard.asked.clear()
    named = {**OPTIONS, "txnAppId": "app", "txnVersion": "1"}
    KvorumBatchWriter(Options.parse(named), TABLE, "attempt").commit([*some])
    ((_, (request,)),) = heard.asked
    assert len(request["inline"]) == 4


def test_o13_who_only_commits_looks_nothing_up(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each micro-batch looks its table up twice; or a commit goes to another than its rows."""

    async def described(_session: Session) -> Table:
        raise AssertionError("the table was looked up")

    monkeypatch.setattr(Session, "described", described)
    pickler = CPickleSerializer()
    source = pickler.loads(pickler.dumps(KvorumDataSource({**OPTIONS, "appId": "app"})))
    schema = T.StructType([T.StructField("k", T.StringType()), T.StructField("v", T.StringType())])
    made = source.streamWriter(schema, False)
    assert isinstance(made, KvorumStreamWriter)
    empty = Staged("attempt", 1, "t1", 0, 0, 0, "query", TABLE.id)
    made.commit([task(0, 10), empty], 7)
    ((_, (request,)),) = heard.asked
    told = {name: request[name] for name in ("attempt", "table", "app", "version", "query")}
    assert told == {
        "attempt": "attempt",
        "table": TABLE.id,
        "app": "app",
        "version": 7,
        "query": "query",
    }
    heard.asked.clear()
    made.commit([empty], 8)
    ((_, (request,)),) = heard.asked
    assert request["manifest"] == []
    assert request["attempt"]


@pytest.mark.slow
def test_o14_sessions_connect_when_they_are_asked() -> None:
    """A late session connects before anything is asked of it, or not even then."""
    nobody = Options.parse(OPTIONS | {"timeoutMs": "1000"})
    with (
        Session(nobody, TABLE, late=True) as session,
        pytest.raises(KvorumError, match=r"127\.0\.0\.1:9.*--advertise"),
    ):
        session.run(session.ask(SINK_SEAL))
