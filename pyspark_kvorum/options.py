"""The options of `format("kvorum")`, read from Spark's case-insensitive map into one checked value.

    endpoint              HOST:BASE[,HOST:BASE…], required
    table                 namespace.table, required
    ca                    a file of who signs the nodes: they are spoken with over TLS
    tls_dir               a directory with ca.crt and perhaps a client's certificate and key, on
                          the driver and on every executor: nodes are spoken with over TLS
    token, token_file     who reads or writes; token_file: on the driver and on every executor.
                          Left out, these four: what KVORUM_TLS_DIR, KVORUM_CA, KVORUM_TOKEN and
                          KVORUM_TOKEN_FILE say there
    columns               read: a,b,c: only these, in this order
    where                 read: a SQL condition, evaluated at the source
                          (pyspark_kvorum.where_option)
    keyFrom, keyTo        read: the first primary-key column (or the key) from, and up to but not
                          including
    pageRows              read: rows fetched per request, at most (default 10000)
    asOf, at, owner, parts, changes, startingVersion, maxRowsPerBatch, holdHistory, numericAsText
                          read: pyspark_kvorum.read_options
    appId                 stream: a name; default is Spark's query id, which survives restarts
    resetTxnApp           stream: true: this query takes the place of the one that wrote under appId
    delivery              stream: exactly-once (default), at-least-once, at-most-once
    txnAppId, txnVersion  batch: make a resubmitted write idempotent, as in Delta Lake
    op                    write: upsert (default), insert (a key that is there is an error), delete
    opColumn              write: a column that says it row by row: I or U (upsert), D (delete)
    duplicates            write: error (default): two rows of one batch with one key; last: any
    dedupeBy              write: of rows with one key the one with the highest value of this column
    replaceWhere          overwrite: replace the rows that this SQL condition means, not all; and
                          keyFrom, keyTo: those of a range of keys
    bulk                  write: true: the rows of each task come in key order, which stores take
                          faster (kvorum.spark.bulk_load sorts them); runs: nearly so;
                          staged: they are not laid in the table before the commit
    timeoutMs             how long one step may retry, default 120000

Predicates and columns are options because Spark's own pushdown hook leaks filters between scans of
one `load()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kv.base import limits
from kv.base.credentials import Credential, from_file
from kv.base.errors import InvalidArgument
from pyspark_kvorum.read_options import KNOWN as READING

_NAMES = (
    *("endpoint", "table", "columns", "where", "keyFrom", "keyTo", "at", "pageRows", "timeoutMs"),
    *("appId", "txnAppId", "txnVersion", "resetTxnApp", "delivery", "op", "opColumn", "bulk"),
    *("duplicates", "dedupeBy", "replaceWhere", "jobId", "jobOrdinal"),
    *("tls_dir", "ca", "token", "token_file"),
)
_KNOWN = {name.lower() for name in _NAMES}
_HIDDEN = {"jobid", "jobordinal"}  # kvorum.spark.job sets them
EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
AT_MOST_ONCE = "at-most-once"
DELIVERIES = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)
UPSERT, INSERT, DELETE = OPS = ("upsert", "insert", "delete")
DUPLICATES = ("error", "last")
READ, BATCH, STREAM = "a read", "a batch write", "a stream's write"
_READ_NAMES = ("asOf", "startingVersion", "maxRowsPerBatch", "holdHistory", "numericAsText")
_SPELT = {name.lower(): name for name in (*_NAMES, *_READ_NAMES)}
_OF_STREAMS = {"appid", "resettxnapp", "delivery"}
_OF_BATCHES = {"txnappid", "txnversion"}
_WRITING = {"op", "opcolumn", "duplicates", "dedupeby", "replacewhere", "bulk"}
_MEANT_FOR = {
    **dict.fromkeys(
        (READING - {"numericastext"}) | {"columns", "where", "at", "pagerows"}, (READ,)
    ),  # numericAsText: what one read may be written; text is taken anyway
    **dict.fromkeys(_WRITING, (BATCH, STREAM)),
    **dict.fromkeys(_OF_STREAMS, (STREAM,)),
    **dict.fromkeys(_OF_BATCHES, (BATCH,)),
}
_SAID = {  # what to say instead
    ("appid", BATCH): "txnAppId and txnVersion",
    ("txnappid", STREAM): "appId",
    ("where", BATCH): "df.where, or replaceWhere in mode overwrite",
    ("columns", BATCH): "df.select",
}
# What Spark itself puts into the map of a stream or a save.
_SPARKS_OWN = {"checkpointlocation", "queryname", "outputmode", "path"}


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options. `addresses` are (host, base port)."""

    addresses: tuple[tuple[str, int], ...]
    namespace: str
    table: str
    tls_dir: str = ""
    ca: str = ""
    credential: Credential | None = None  # of whoever runs it, if nobody is named
    columns: tuple[str, ...] = ()
    where: str = ""
    key_from: str | None = None
    key_to: str | None = None
    page_rows: int = limits.SCAN_ROWS_MAX
    app: str = ""
    txn_app: str = ""
    txn_version: int = -1
    timeout_ms: int = limits.DEADLINE_MS_MAX
    reset: bool = False
    delivery: str = EXACTLY_ONCE
    op: str = UPSERT
    op_column: str = ""
    duplicates: str = "error"
    dedupe_by: str = ""
    replace_where: str = ""
    bulk: str = ""  # "true", "runs" or "staged"
    job: int = 0
    ordinal: int = 0

    @staticmethod
    def check_use(raw: Mapping[str, str], use: str) -> None:
        """Nothing may be given that this use of a table (READ, BATCH, STREAM) would ignore. Raises
        InvalidArgument.
        """
        for name in sorted(raw):
            meant = _MEANT_FOR.get(name.lower(), (use,))
            if use in meant:
                continue
            instead = _SAID.get((name.lower(), use))
            advice = f"; give {instead}" if instead else ""
            raise InvalidArgument(
                f"option {_spelt(name)} is for {' or '.join(meant)}, and this is {use}, which would"
                f" ignore it{advice}"
            )

    def check_named(self) -> None:
        """What a batch without an application did is remembered for an hour: one that asked for
        longer could do it again. Raises InvalidArgument.
        """
        if not self.txn_app and not self.job and self.timeout_ms > limits.SINK_UNNAMED_MS_MAX:
            raise InvalidArgument(
                f"option timeoutMs is at most {limits.SINK_UNNAMED_MS_MAX} for a write without"
                f" txnAppId and txnVersion, got {self.timeout_ms}: what such a write did is not"
                " remembered for longer, and it could be done twice"
            )

    def check_write(self, overwrite: bool) -> None:
        """Raises InvalidArgument for what only the other mode takes."""
        if overwrite:
            _check_replacing(self)
            return
        for option, given in (
            ("replaceWhere", self.replace_where or None),
            ("keyFrom", self.key_from),
            ("keyTo", self.key_to),
        ):
            if given is not None:
                raise InvalidArgument(
                    f"option {option} says what mode overwrite replaces; this is mode append"
                )

    @staticmethod
    def parse(raw: Mapping[str, str]) -> Options:
        """Raises InvalidArgument with the option's name, what was given and what is allowed."""
        given = {k.lower(): v for k, v in raw.items()}
        if not given or "provider" in given:
            raise InvalidArgument(
                "Spark gives a Python data source no options of tables in its own catalog (CREATE"
                " TABLE … USING kvorum, saveAsTable): they cannot be read or written. Use CREATE"
                " TEMPORARY VIEW … USING kvorum OPTIONS (endpoint '…', table '…'),"
                " kvorum.spark.table, or df.write….save()"
            )
        unknown = sorted(set(given) - _KNOWN - READING - _SPARKS_OWN)
        if unknown:
            raise InvalidArgument(
                f"unknown option {unknown[0]!r} for format kvorum; known:"
                f" {', '.join(map(_spelt, sorted((_KNOWN | READING) - _HIDDEN)))}"
            )
        if given.get("path"):
            raise InvalidArgument(
                "kvorum has no paths: use .option('table', 'namespace.table').save() without a path"
            )
        namespace, _, table = _required(given, "table").partition(".")
        if not namespace or not table:
            raise InvalidArgument(f"option table must be namespace.table, got {given['table']!r}")
        has_app, has_version = "txnappid" in given, "txnversion" in given
        if has_app != has_version:
            raise InvalidArgument("options txnAppId and txnVersion belong together; one is missing")
        if has_app and "jobid" in given:
            raise InvalidArgument(
                "options txnAppId and txnVersion are not for a write of a job, which has its own:"
                " kvorum.spark.job(…, app_id=…, version=…)"
            )
        if given.get("opcolumn") and given.get("op"):
            raise InvalidArgument("options op and opColumn contradict each other: give one")
        if given.get("dedupeby") and given.get("duplicates"):
            raise InvalidArgument("options dedupeBy and duplicates contradict each other: give one")
        return Options(
            addresses=tuple(_address(a) for a in _required(given, "endpoint").split(",")),
            namespace=namespace,
            table=table,
            tls_dir=given.get("tls_dir", "").strip(),
            ca=given.get("ca", "").strip(),
            credential=_credential(given),
            columns=tuple(c.strip() for c in given.get("columns", "").split(",") if c.strip()),
            where=given.get("where", "").strip(),
            key_from=given.get("keyfrom"),
            key_to=given.get("keyto"),
            page_rows=_number(given, "pagerows", limits.SCAN_ROWS_MAX, 1, limits.SCAN_ROWS_MAX),
            app=given.get("appid", ""),
            txn_app=given.get("txnappid", ""),
            txn_version=_number(given, "txnversion", -1, 0, 2**62),
            timeout_ms=_number(given, "timeoutms", limits.DEADLINE_MS_MAX, 1_000, 24 * 3_600_000),
            reset=_choice(given, "resettxnapp", ("false", "true")) == "true",
            delivery=_choice(given, "delivery", DELIVERIES),
            op=_choice(given, "op", OPS),
            op_column=given.get("opcolumn", "").strip(),
            duplicates=_choice(given, "duplicates", DUPLICATES),
            dedupe_by=given.get("dedupeby", "").strip(),
            replace_where=given.get("replacewhere", "").strip(),
            bulk=_choice(given, "bulk", ("false", "true", "runs", "staged")).removeprefix("false"),
            job=_number(given, "jobid", 0, 0, 2**63 - 1),
            ordinal=_number(given, "jobordinal", 0, 0, limits.SINK_PARTS_MAX - 1),
        )


def _spelt(name: str) -> str:
    """As the documentation writes it; Spark's map is of lower case."""
    return _SPELT.get(name.lower(), name)


def _check_replacing(options: Options) -> None:
    """What mode overwrite takes. Raises InvalidArgument."""
    if options.op != UPSERT or options.op_column:
        raise InvalidArgument(
            "mode overwrite replaces rows: options op and opColumn are for mode append"
        )
    if options.replace_where and (options.key_from is not None or options.key_to is not None):
        raise InvalidArgument(
            "options replaceWhere and keyFrom, keyTo contradict each other: say the range in the"
            " condition"
        )


def _credential(given: Mapping[str, str]) -> Credential | None:
    token, file = (given.get(name, "").strip() for name in ("token", "token_file"))
    if token and file:
        raise InvalidArgument("options token and token_file contradict each other: give one")
    if file:
        token = from_file(file, "token_file")
    return Credential(token) if token else None


def _required(given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "").strip()
    if not value:
        raise InvalidArgument(f"option {name} is missing: format kvorum needs endpoint and table")
    return value


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    url = not {"/", "@"}.isdisjoint(host)  # perhaps with a login, which Spark would show
    if url or not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        said = "a URL" if url else repr(text)
        raise InvalidArgument(f"option endpoint must be HOST:BASE[,…], got {said}")
    return host.strip("[]"), int(port)


def _choice(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """One of the words; the first if nothing is said."""
    said = given.get(name, choices[0]).strip().lower()
    if said not in choices:
        allowed = " or ".join(choices)
        raise InvalidArgument(f"option {_spelt(name)} must be {allowed}, got {given[name]!r}")
    return said


def _number(given: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or not low <= int(text) <= high:
        raise InvalidArgument(
            f"option {_spelt(name)} must be between {low} and {high}, got {text!r}"
        )
    return int(text)
