"""What a submission needs is the same over every surface, and no way around DEFINE."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import msgpack
import pytest

import kvorum
from kv.base.errors import Forbidden, KvorumError
from kv.base.rights import CLUSTER, Action, Kind, Resource, table
from kvorum.api.submissions import is_own, needed
from tests.kit.machine import ROOT, free_port_base

SHOP = Resource(Kind.NAMESPACE, "shop")


@pytest.mark.parametrize(
    ("type_", "args", "action", "resource"),
    [
        ("pay", {"namespace": "shop"}, Action.SUBMIT, Resource(Kind.PROCEDURE_TYPE, "pay")),
        ("CreateTable", {"namespace": "shop", "name": "t"}, Action.DEFINE, SHOP),
        ("DropNamespace", {"namespace": "shop"}, Action.DEFINE, SHOP),
        ("DropTable", {"namespace": "shop", "name": "t"}, Action.DEFINE, table("shop", "t")),
        ("DropTable", {"namespace": "shop", "names": ["t"]}, Action.DEFINE, table("shop", "t")),
        ("DropTable", {"namespace": "shop", "names": 7}, Action.DEFINE, SHOP),
        ("DropTable", None, Action.OPERATE, CLUSTER),
        ("kvorum.lock", {"resource": "r"}, Action.WRITE, Resource(Kind.LOCK, "r")),
        ("kvorum.lock", [], Action.OPERATE, CLUSTER),
        ("kvorum.decommission_node", {"namespace": "shop"}, Action.OPERATE, CLUSTER),
        ("OfALaterVersion", {}, Action.OPERATE, CLUSTER),
    ],
)
def test_what_a_submission_needs(
    type_: str, args: object, action: Action, resource: Resource
) -> None:
    """One action on one thing, by type and arguments; what is not well formed needs the most."""
    assert needed(type_, args) == [(frozenset({action}), resource)]


def test_each_table_that_is_named_counts() -> None:
    """Somebody else's table would go with one's own."""
    names = ["mine", "yours"]
    asked = needed("DropTable", {"namespace": "shop", "names": names})
    assert [one.resource for one in asked] == [table("shop", name) for name in names]


def test_the_databases_own_types_are_known_by_their_names() -> None:
    """A type that is named otherwise could be submitted by whoever may submit users' types."""
    found = set()
    for package in ("procedures", "sqlproxy", "kvorum"):
        for path in sorted((ROOT / package).rglob("*.py")):
            found |= set(re.findall(r'@procedure\("([\w.]+)"', path.read_text()))
    assert len(found) > 30
    assert [name for name in sorted(found) if not is_own(name)] == []


class Both:
    """A node with an administrator, asked natively and over HTTP."""

    def __init__(self, base: int, root: str) -> None:
        self.base, self.root = base, root

    def token(self, user: str, actions: str, kind: str, name: str) -> str:
        with kvorum.connect(f"127.0.0.1:{self.base}", token=self.root) as db:
            db.access("user.create", {"name": user})
            said = {"actions": actions.split(","), "kind": kind} | ({"name": name} if name else {})
            db.access("grant.give", {"role": user, **said})
            return str(db.access("token.create", {"user": user, "name": "t"})["token"])

    def may(self, token: str, type_: str, args: dict[str, Any]) -> tuple[bool, bool]:
        """Natively, over HTTP."""
        with kvorum.connect(f"127.0.0.1:{self.base}", token=token) as db:
            try:
                db.submit(type_, args)
                natively = True
            except Forbidden:
                natively = False
            except KvorumError:
                natively = True  # it was let in, and found wrong
        url = f"http://127.0.0.1:{self.base + 2}/v1/procedures/{type_}"
        answer = httpx.post(url, json=args, headers={"authorization": f"Bearer {token}"})
        return natively, answer.status_code != 403


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("n") / "data", port=base) as db:
        db.create_namespace("shop")
        db.create_table("shop", "orders")
        yield Both(base, str(db.access("init")["token"]))


@pytest.mark.parametrize("type_", ["DropTable", "TruncateTable", "kvorum.flush_table"])
def test_who_may_submit_everything_changes_no_table(both: Both, type_: str) -> None:
    """A right to begin procedures would be one to drop everybody's tables."""
    token = both.token(f"runner_{type_[-6:]}", "submit", "cluster", "")
    args = {"namespace": "shop", "name": "orders"}
    assert both.may(token, type_, args) == (False, False)
    assert both.may(token, "users.own", args) == (True, True)


def test_who_may_define_in_a_namespace_does_so_natively(both: Both) -> None:
    """The same user got 403 on one surface and a table on the other."""
    token = both.token("maker", "define", "namespace", "shop")
    for namespace, right in (("shop", True), ("default", False)):
        args = {"namespace": namespace, "name": f"t_{right}"}
        assert both.may(token, "CreateTable", args) == (right, right)


def test_a_schedule_is_changed_by_who_may_submit_what_it_starts(both: Both) -> None:
    """Whoever may submit one type could replace the nightly jobs of all others."""
    token = both.token("scheduler", "submit", "procedure type", "users.own")
    url = f"http://127.0.0.1:{both.base + 2}/v1/schedules"
    args = {"namespace": "shop", "name": "orders"}
    nightly = {"name": "nightly", "cron": "0 3 * * *", "procedure": "TruncateTable", "args": args}
    made = httpx.post(url, json=nightly, headers={"authorization": f"Bearer {both.root}"})
    assert made.status_code == 200, made.text
    for name, status in (("nightly", 403), ("another", 404)):  # 404: nobody has declared the type
        said = {"name": name, "cron": "0 4 * * *", "procedure": "users.own"}
        answer = httpx.post(url, json=said, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == status, answer.text
        assert "TruncateTable" not in answer.text


def test_a_spark_job_writes_tables_that_one_may_write(both: Both) -> None:
    """Its signals say which rows of which table go: who may submit jobs could empty all tables."""
    part = {"attempt": "at", "manifest": [], "replace": [b"", b"", ""]}
    body = {"app": "eve", "version": 1, "name": "n"}
    with kvorum.connect(f"127.0.0.1:{both.base}", token=both.root) as db:
        (table,) = (one.id for one in db.tables("shop") if one.name == "orders")
    signal = {
        "name": "job",
        "payload": {"do": "add", "ordinal": 1, "table": "t", "part": {**part, "table": table}},
    }
    runner = both.token("jobs", "submit", "procedure type", "kvorum.spark_job")
    headers = {"authorization": f"Bearer {runner}", "content-type": "application/msgpack"}
    url = f"http://127.0.0.1:{both.base + 2}/v1/procedures"
    id = httpx.post(
        f"{url}/kvorum.spark_job", json=body, headers={"authorization": headers["authorization"]}
    ).json()["id"]
    answer = httpx.post(f"{url}/{id}/signals", content=msgpack.packb(signal), headers=headers)
    assert answer.status_code == 403, answer.content
    with kvorum.connect(f"127.0.0.1:{both.base}", token=runner) as db:
        with pytest.raises(Forbidden):
            db.signal(int(id), "job", signal["payload"])
        db.signal(int(id), "job", {"do": "alive"})


def test_versions_are_chosen_by_who_operates_their_type(both: Both) -> None:
    """Whoever may operate one type could send all others' procedures back to old code."""
    token = both.token("deployer", "operate", "procedure type", "users.own")
    url = f"http://127.0.0.1:{both.base + 2}/v1/versions"
    headers = {"authorization": f"Bearer {token}"}
    with kvorum.connect(f"127.0.0.1:{both.base}", token=token) as db:
        for name, refusal, status in (
            ("users.own", kvorum.NotFound, 404),  # let in: nobody has declared it here
            ("users.other", Forbidden, 403),
        ):
            with pytest.raises(refusal):
                db.set_version(name, default=1)
            with pytest.raises(refusal):
                db.roll_back_version(name)
            with pytest.raises(refusal):
                db.move_version(name, 2)
            for path, body in (("", {}), ("/rollback", {}), ("/move", {"to": 2})):
                answer = httpx.post(f"{url}/{name}{path}", json=body, headers=headers)
                assert answer.status_code == status, answer.text
        assert db.versions() == []
        with pytest.raises(Forbidden):
            db.set_limit("emails", max_concurrent=1)
    assert httpx.get(url, headers=headers).json() == {"items": []}
