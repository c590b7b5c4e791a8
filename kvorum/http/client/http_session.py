"""A transaction over HTTP, from the client's side: the node that it was begun at holds it open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kv.base.errors import NotFound, TxnAborted, UnknownOutcome
from kv.base.limits import MULTI_KEYS_MAX
from kvorum.api.model import Page, Record, ScanSpec, TableKey
from kvorum.http.client.calls import Calls, Effect, rows_of, version_of
from procedures.engine.plain_data import Plain
from txn.commit.trace import CommitTrace
from txn.shared.refusals import is_over


class HttpSession:
    """A transaction that the server holds open."""

    def __init__(self, calls: Calls, txn: int, start_ts: int) -> None:
        self._calls = calls
        self._id = txn
        self._start_ts = start_ts
        self._lost: TxnAborted | None = None  # why it must not go on

    @property
    def id(self) -> int:
        return self._id

    @property
    def start_ts(self) -> int:
        return self._start_ts

    async def _post(self, verb: str, body: Mapping[str, object], *, twice: Effect = "same") -> Any:
        """A verb, usually one that may be sent twice: a commit answers the same again."""
        if self._lost is not None:
            raise self._lost
        return await self._calls.call("POST", f"/v1/txn/{self._id}/{verb}", body, twice=twice)

    async def _write(self, verb: str, body: dict[str, object], cond: int | None) -> None:
        """Buffer an op. With a condition it is not the same twice (the second one meets the first),
        so when its answer is lost the transaction is over: what it holds is not known.
        """
        if cond is None:
            await self._post(verb, body)
            return
        body |= {"if_version": str(cond)} if cond else {"if_absent": True}
        try:
            await self._post(verb, body, twice="more")
        except UnknownOutcome as lost:
            self._lost = is_over(self._id, f"the answer to one of its writes was lost ({lost})")
            raise self._lost from None

    async def get(self, ns: str, table: str, key: bytes) -> Record | None:
        answer = await self._post("get", {"ns": ns, "table": table, "key": key}, twice="none")
        if answer["value"] is None:
            return None
        return _own(answer)

    async def multi_get(self, keys: Sequence[TableKey]) -> list[Record | None]:
        found: list[Record | None] = []
        for at in range(0, len(keys), MULTI_KEYS_MAX):  # one snapshot, however many requests
            part = [key._asdict() for key in keys[at : at + MULTI_KEYS_MAX]]
            answer = await self._post("multi-get", {"keys": part}, twice="none")
            found += [None if i is None else _own(i) for i in answer["items"]]
        return found

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        body: dict[str, object] = {"ns": ns, "table": table}
        for name in ("prefix", "start", "end", "cursor", "reverse", "limit"):
            bound = getattr(spec, name)
            if bound:
                body[name] = bound
        answer = await self._post("scan", body, twice="none")
        return Page(rows_of(answer), answer.get("cursor"), self._start_ts)

    async def put(
        self,
        ns: str,
        table: str,
        key: bytes,
        value: bytes,
        cond: int | None = None,
        ttl_ms: int = 0,
    ) -> None:
        body: dict[str, object] = {"ns": ns, "table": table, "key": key, "value": value}
        if ttl_ms:
            body["ttl_ms"] = ttl_ms
        await self._write("put", body, cond)

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None = None) -> None:
        await self._write("delete", {"ns": ns, "table": table, "key": key}, cond)

    async def lock(
        self, ns: str, table: str, key: bytes, wait: str = "wait", strength: str = "update"
    ) -> Record | None:
        body: dict[str, object] = {"ns": ns, "table": table, "key": key}
        if wait != "wait":
            body["wait"] = wait
        if strength != "update":
            body["strength"] = strength
        # Nothing but the transaction has it, and it is the same twice: nobody need doubt it.
        answer = await self._post("lock", body, twice="none")
        return None if answer["value"] is None else _own(answer)

    async def commit(self) -> int:
        return version_of(await self._post("commit", {}))

    async def abort(self) -> None:
        self._lost = None
        try:
            await self._post("abort", {})
        except NotFound as e:
            if e.code != "TXN_NOT_FOUND":  # its node forgot it, and nobody else could commit it
                raise

    async def heartbeat(self) -> None:
        await self._post("heartbeat", {})

    def trace(self) -> CommitTrace | None:
        return None  # its node coordinates it


def _own(answer: Plain) -> Record:
    """A record that a transaction read; what it wrote itself has no version yet."""
    return Record(answer["value"], int(answer["version"] or 0))
