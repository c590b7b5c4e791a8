"""Labels and tags of a node, from the flag to the members table (I12, I14)."""

from __future__ import annotations

import pytest

from kv.base.config import NodeConfig, load
from kv.base.errors import InvalidArgument
from kv.base.ids import NodeId
from procedures.master.map.nodes import NodeRow, NodeState, decode_node, encode_node, node_key


def test_i12_labels_and_tags_are_settings() -> None:
    """From flags, variables and the file; the server is what --machine says."""
    flags = {"labels": "dc=fra,rack=r7,server=s12", "tags": "ssd,eu"}
    config = load(flags, {})
    assert (config.site, config.server, config.tags) == (("fra", "r7"), "s12", ("ssd", "eu"))
    assert load({}, {"KVORUM_LABELS": "rack=r1", "KVORUM_MACHINE": "m"}).server == "m"
    assert NodeConfig().site == ("", "")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"labels": "row=3"}, "a name of dc, rack, server"),
        ({"labels": "dc="}, "letters, digits"),
        ({"labels": "dc=a b"}, "letters, digits"),
        ({"labels": "dc=a,dc=b"}, "twice"),
        ({"labels": "server=a", "machine": "b"}, "two names of one thing"),
        ({"tags": "ssd,ssd"}, "none is named twice"),
        ({"tags": "s s d"}, "letters, digits"),
        ({"tags": ",".join(f"t{i}" for i in range(17))}, "the limit is 16"),
    ],
)
def test_i14_labels_and_tags_that_make_no_sense_are_refused(
    flags: dict[str, str], why: str
) -> None:
    """Replicas would be placed by a typing error."""
    with pytest.raises(InvalidArgument, match=why):
        load(flags, {})


@pytest.mark.parametrize(
    "row",
    [
        NodeRow(NodeId(1), "a:1", "1"),
        NodeRow(NodeId(1), "a:1", "1", NodeState.LEAVING, witness=True),
        NodeRow(NodeId(1), "a:1", "1", label="m"),
        NodeRow(NodeId(1), "a:1", "1", dc="d"),
        NodeRow(NodeId(1), "a:1", "1", label="m", dc="d", rack="r", tags=("x", "y")),
        NodeRow(NodeId(1), "a:1", "1", tags=("x",)),
    ],
)
def test_i12_the_members_table_keeps_them(row: NodeRow) -> None:
    """Rows of earlier versions have none; those that need none look as before."""
    assert decode_node(node_key(1), encode_node(row)) == row
    assert row.domains == (row.dc, row.rack, row.label or "a")
