"""What users compute over the catalog and what could be long or large there: our own functions
(`sqlproxy.front.functions`), called by DuckDB. Its own backtrack in LIKE, count no bytes of what a
`repeat` makes, and end at no break.

The catalog's DuckDB has one thread, that of the statement: its breaks and its budget hold in here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from inspect import Parameter, Signature
from typing import Any, Final

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from sqlproxy.front.functions.all_functions import FUNCTIONS
from sqlproxy.values import memory
from sqlproxy.values.breaks import paused
from sqlproxy.values.errors import SqlError

FAILED: Final[ContextVar[list[SqlError] | None]] = ContextVar("failed", default=None)
"""Where a statement finds the error of what it computed: DuckDB passes on its text alone."""
_ARROW: Final = {
    "VARCHAR": pa.string(),
    "VARCHAR[]": pa.list_(pa.string()),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
}
_T: Final = "VARCHAR"
_COMPUTED: Final[dict[str, tuple[str, str, str]]] = {
    "kv_like": ("textlike", f"{_T} {_T}", "BOOLEAN"),
    "kv_ilike": ("texticlike", f"{_T} {_T}", "BOOLEAN"),
    "kv_like_escape": ("like_escape", f"{_T} {_T}", _T),
    "kv_matches": ("textregexeq", f"{_T} {_T}", "BOOLEAN"),
    "kv_imatches": ("texticregexeq", f"{_T} {_T}", "BOOLEAN"),
    "kv_joined": ("textcat", f"{_T} {_T}", _T),
    "kv_repeat": ("repeat", f"{_T} BIGINT", _T),
    "kv_lpad": ("lpad", f"{_T} BIGINT {_T}", _T),
    "kv_rpad": ("rpad", f"{_T} BIGINT {_T}", _T),
    "kv_replace": ("replace_text", f"{_T} {_T} {_T}", _T),
    "kv_replaced": ("textregexreplace", f"{_T} {_T} {_T} {_T}", _T),
    "kv_split": ("regexp_split_to_array_no_flags", f"{_T} {_T}", "VARCHAR[]"),
    "kv_match": ("regexp_match_no_flags", f"{_T} {_T}", "VARCHAR[]"),
    "kv_to_array": ("text_to_array", f"{_T} {_T}", "VARCHAR[]"),
    "kv_literal": ("quote_literal", _T, _T),
    "kv_quoted": ("quote_ident", _T, _T),
}
"""By DuckDB's name: whose function, its parameters, its result."""


def register(db: duckdb.DuckDBPyConnection) -> None:
    """In the whole database."""
    for name, (source, parameters, result) in _COMPUTED.items():
        taken: list[Any] = parameters.split()
        db.create_function(
            name,
            _column_wise(FUNCTIONS[source].call, len(taken), _ARROW[result]),
            taken,
            result,
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )


def _column_wise(
    call: Callable[..., object], count: int, kind: pa.DataType
) -> Callable[..., object]:
    def computed(*columns: pa.Array) -> pa.Array:
        try:
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            return pa.array(_values(call, rows), kind)
        except SqlError as error:
            failed = FAILED.get()
            if failed is not None:
                failed.append(error.bare())
            raise

    # DuckDB counts the parameters that the function says it has
    names = [Parameter(f"c{n}", Parameter.POSITIONAL_ONLY) for n in range(count)]
    computed.__dict__["__signature__"] = Signature(names)
    return computed


def _values(call: Callable[..., Any], rows: Any) -> Sequence[Any]:
    """Raises SqlError (53200) where they are too large together, besides what a call raises."""
    made = memory.Held()
    values = []
    with made:
        for row in paused(rows, 1):
            memory.now().fresh()
            value = None if None in row else call(*row)
            if value is not None and type(value) is not bool:
                made.add(memory.size_of(value))
            values.append(value)
    return values
