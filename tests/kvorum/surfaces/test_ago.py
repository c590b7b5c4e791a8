"""Moments as `-10s`: the same words in SQL, SDK, HTTP and Spark."""

from __future__ import annotations

import pytest

from kv.base.adapters import SystemClock
from kv.base.errors import InvalidArgument
from kv.base.timestamps import ago_ms, compose, physical_ms
from kvorum import connect
from kvorum.http.wire.fields import snapshot
from kvorum.sdk.tables import snapshot_at
from sqlproxy.session.running.as_of import at_replicas, bounded, timestamp_of

AGO = {"-10s": 10_000, "- 1.5 s": 1_500, "-250ms": 250, "-2min": 120_000, "-1h": 3_600_000}
NO_TEXT = (
    "10s",
    "-s",
    "-10",
    "-10 years",
    "--10s",
    "-1e3s",
    "-10s ago",
    "",
    "-\u0661s",
    "-" + "9" * 99,
)


@pytest.mark.parametrize("text", AGO)
def test_so_long_ago_is_the_same_everywhere(text: str) -> None:
    """One surface read another moment than the others for the same words."""
    ms = AGO[text]
    assert ago_ms(text) == ms
    assert timestamp_of(text, 1_700_000_000_000) == compose(1_700_000_000_000 - ms)
    for read in (snapshot_at, lambda at: snapshot(at, "at")):
        before = SystemClock().now_ms()
        assert before - ms <= physical_ms(read(text)) <= SystemClock().now_ms() - ms


def test_the_words_of_others_are_moments_too() -> None:
    """A program that comes from CockroachDB read the present, or older rows than it allows."""
    assert bounded("with_max_staleness('10s')") == "-10s"
    assert bounded("-10s") == "-10s"
    newest = "follower_read_timestamp()"
    assert at_replicas(newest, 1_700_000_000_000, 5_000) == compose(1_699_999_995_000)
    assert at_replicas(newest, 1_700_000_000_000, 0) == compose(1_699_999_997_000)
    assert at_replicas("-10s", 1_700_000_000_000, 5_000) is None


@pytest.mark.parametrize("text", NO_TEXT)
def test_other_words_are_refused(text: str) -> None:
    """A wrong word was taken for some moment, or for now."""
    assert ago_ms(text) is None
    with pytest.raises(InvalidArgument, match="at"):
        snapshot_at(text)
    with pytest.raises(InvalidArgument, match="at"):
        snapshot(text, "at")


def test_before_all_timestamps_there_is_nothing() -> None:
    """A negative timestamp came out, which some surfaces take for now."""
    for text in ("-999999999d", "-999999999999h"):
        with pytest.raises(InvalidArgument, match="before all timestamps"):
            snapshot_at(text)
        with pytest.raises(InvalidArgument, match="before all timestamps"):
            snapshot(text, "at")


@pytest.mark.parametrize("near", ["eu", "zone=eu", "dc=", "dc=eu,dc=us"])
def test_where_a_client_is_must_be_labels(near: str) -> None:
    """A client with a label of its own invention read anywhere, and did not learn of it."""
    with pytest.raises(InvalidArgument, match="near"):
        connect("kvorum://127.0.0.1:1", near=near)
