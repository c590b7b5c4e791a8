"""The command line, and how a case becomes clients."""

from __future__ import annotations

import pytest

from bench import compare, kv
from bench.__main__ import parse
from bench.spec import shares, user_key


def test_lists_are_parsed() -> None:
    """A list read as one number would measure one case in silence."""
    args = parse(["kv", "--clients", "1,64", "--ops", "put,get", "--sizes", "100"])
    assert (args.clients, args.ops, args.sizes) == ([1, 64], ["put", "get"], [100])
    assert (args.transport, args.reps, args.secs) == (["native"], 3, 2.0)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nothing"],
        ["kv", "--clients", "0"],
        ["kv", "--clients", "a"],
        ["kv", "--ops", "put,fly"],
        ["kv", "--transport", "carrier-pigeon"],
        ["kv", "--reps", "0"],
        ["kv", "--secs", "-1"],
        ["stores", "--stores", "1,0"],
        ["compare", "mysql"],
        ["report"],
    ],
)
def test_wrong_arguments_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong option must end with usage and code 2 before anything is started."""
    with pytest.raises(SystemExit) as ended:
        parse(argv)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_compare_does_everything_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The landing run names no part and must not miss one; the peers' folder comes from outside."""
    monkeypatch.setenv("PEERS_SCRIPTS", "/somewhere")
    args = parse(["compare"])
    assert args.names == list(compare.NAMES)
    assert str(args.peers) == "/somewhere"
    assert parse(["compare", "kv"]).names == ["kv"]


def test_every_client_process_gets_work() -> None:
    """A process without clients would end at once and spoil the window."""
    assert shares(256, 2) == [128, 128]
    assert shares(5, 3) == [2, 2, 1]
    assert shares(1, 4) == [1]


def test_keys_sort_like_their_numbers() -> None:
    """Scans start at a key and expect a full page behind it."""
    keys = [user_key(n) for n in range(0, 100_000, 997)]
    assert keys == sorted(keys)
    assert {len(k) for k in keys} == {16}


def test_cases_choose_a_client_that_can_do_them() -> None:
    """The lean multiplexing client knows only put and get; a case it cannot do must not be run."""
    found = kv.cases(
        ops=["put", "txn"], clients=[64], sizes=[100], transports=["mux", "http"], client="lean"
    )
    assert [(c.transport, c.op, c.client) for c in found] == [
        ("mux", "put", "lean"),
        ("http", "put", "lean"),
        ("http", "txn", "lean"),
    ]
    auto = kv.cases(ops=["txn"], clients=[64], sizes=[100], transports=["mux"], client="auto")
    assert [c.client for c in auto] == ["sdk"]
