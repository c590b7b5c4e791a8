"""Several writes of a Spark program, to several tables, in one commit.

    with kvorum.spark.job(spark, "nightly", app_id="nightly", version=20261122) as job:
        job.write(orders, "shop.orders")
        job.write(totals, "shop.totals", mode="overwrite")

A job is a procedure (`kvorum.spark_job`): each write stages its rows and hands them to it, the end
of the block commits all of them at once. If the program dies or raises, what is staged stays
prepared: the same program, run again with the same `app_id` and `version`, does the writes that are
missing and commits. It takes the same writes in the same order. A version that was committed is
skipped. A job without `app_id` could not be taken up by anybody: it says that it lives while its
block runs, and is let go of ten minutes after its program died. `kvorum proc list` and `kvorum
spark sinks` show jobs; `job.abort()` or `kvorum spark abort` lets go of one.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kv.base.adapters import SystemRng
from kv.base.errors import InvalidArgument, KvorumError, Refused
from kvorum.spark.sinks import Sinks
from kvorum.spark.tables import cluster_of, login_of
from procedures.engine.client import ENDED
from procedures.sink.format.sink_parts import SPARK_JOB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRIES: Final = 1_000  # how often one version may have been aborted before


def job(
    spark: SparkSession,
    name: str,
    app_id: str | None = None,
    version: int | None = None,
    *,
    endpoint: str = "",
) -> Job:
    """A job; use it in `with`. Without `app_id` and `version` it is atomic, but cannot be resumed.
    `endpoint` HOST:BASE[,…] is by default the setting `spark.kvorum.endpoint`.
    """
    cluster = cluster_of(spark, endpoint)
    if (app_id is None) != (version is None):
        raise InvalidArgument("app_id and version belong together; one is missing")
    once = app_id is None
    app = f"{name}-{SystemRng().token(8).hex()}" if app_id is None else app_id
    return Job(spark, name, app, 0 if version is None else version, cluster, once=once)


class Job:
    """`id` is the procedure's, known inside of `with`. `done`: this version was committed before,
    or is now; `aborted`: this program let go of it.
    """

    def __init__(
        self,
        spark: object,
        name: str,
        app: str,
        version: int,
        cluster: dict[str, str],
        *,
        once: bool,
    ) -> None:
        self.name, self.app, self.version, self.endpoint = name, app, version, cluster["endpoint"]
        self._cluster = cluster
        self.id = 0
        self.done = False
        self.aborted = False
        self.result: Any = None
        self._spark, self._once = spark, once
        self._sinks: Sinks | None = None
        self._ordinal = 0
        self._prepared: set[int] = set()

    def __repr__(self) -> str:
        state = (
            "aborted"
            if self.aborted
            else "committed"
            if self.done
            else f"{self._ordinal} writes"
            if self.id
            else "not begun"
        )
        return f"<kvorum Spark job {self.name!r}, {self.app}@{self.version}, {state}>"

    def __enter__(self) -> Self:
        self._sinks = Sinks("kvorum://" + self.endpoint, **login_of(self._cluster))
        try:
            self._begin(self._sinks)
        except BaseException:
            self._sinks.close()
            raise
        return self

    def _begin(self, sinks: Sinks) -> None:
        """Attach to the job of this version, or start one; the last may have been aborted."""
        args: dict[str, object] = {"app": self.app, "version": self.version, "name": self.name}
        if self._once:
            args["once"] = True
        for number in range(_TRIES):
            nonce = f"spark-job/{self.app}/{self.version}/{number}"
            try:
                self.id = int(sinks.ask(sinks.procedures.submit(SPARK_JOB, args, nonce=nonce)))
            except Refused as error:  # it had another name then: app and version say which it is
                if error.code != "NONCE_REUSED":
                    raise
                self.id = int(error.details["procedure"])
            info = sinks.ask(sinks.procedures.get(self.id))
            if info["state"] == "SUCCESS":
                self.done, self.result = True, info["result"]
                return
            if info["state"] not in ENDED:
                self._prepared = sinks.prepared(self.id)
                if self._once:
                    sinks.keep_alive(self.id)
                return
        raise Refused(
            f"version {self.version} of {self.app} was aborted {_TRIES} times: take another",
            code="SINK_ABORTED",
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        sinks = self._open()
        try:
            if self.aborted:
                return
            if error is None:
                self.commit()
            elif not self.done:
                self._explain(sinks, error)
        finally:
            sinks.close()
            self._sinks = None

    def _explain(self, sinks: Sinks, error: BaseException) -> None:
        """A job that nobody could resume is let go of; another says that it waits."""
        if self._once:
            try:
                sinks.abort_job(self.id, f"its program raised {type(error).__name__}")
            except KvorumError as failed:  # it is let go of when it has been silent for long
                error.add_note(f"Spark job {self.id} could not be aborted: {failed}")
            return
        error.add_note(
            f"Spark job {self.id} ({self.app}@{self.version}) keeps what it has staged: run the"
            f" program again to go on, or let go of it: kvorum spark abort {self.id}"
        )

    def write(self, df: DataFrame, table: str, *, mode: str = "append", **options: object) -> bool:
        """Stage a frame for `namespace.table`. False: it was staged, or committed, by an earlier
        run. `options` are those of format("kvorum"). Spark raises what is refused.
        """
        self._open()
        if self.aborted:
            raise InvalidArgument("the job is aborted: a write needs one that goes on")
        ordinal, self._ordinal = self._ordinal, self._ordinal + 1
        if self.done or ordinal in self._prepared:
            return False
        given: dict[str, Any] = {
            **self._cluster,
            "table": table,
            "jobId": self.id,
            "jobOrdinal": ordinal,
        }
        given |= {name: value for name, value in options.items() if value is not None}
        df.write.format("kvorum").options(**given).mode(mode).save()
        return True

    def commit(self) -> Any:
        """All writes at once; its result. Doing it again is harmless."""
        if not self.done:
            self.result = self._open().commit_job(self.id)
            self.done = True
        return self.result

    def abort(self, reason: str = "aborted by its program") -> None:
        """Let go of everything that is staged; the end of the block commits nothing then. Raises
        Refused if it is being committed.
        """
        self._open().abort_job(self.id, reason)
        self.aborted = True

    @property
    def progress(self) -> dict[str, object]:
        """As `kvorum proc show` has it."""
        sinks = self._open()
        info: dict[str, object] = sinks.ask(sinks.procedures.get(self.id))
        return info

    def _open(self) -> Sinks:
        if self._sinks is None:
            raise InvalidArgument("the job is not open: with kvorum.spark.job(…) as job:")
        return self._sinks
