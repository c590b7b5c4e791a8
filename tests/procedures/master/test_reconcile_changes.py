"""Which replicas a node makes and removes while partitions are split and merged (H2, H4)."""

from __future__ import annotations

from dataclasses import replace

from kv.base.descriptors import PartitionDescriptor
from kv.base.ids import NodeId, PartitionId
from procedures.master.map.partitions import Placed
from procedures.master.members.reconcile import differences

ME = NodeId(1)
WHOLE = PartitionDescriptor(PartitionId(5), b"a", b"z", 1, (ME,))
LOWER = replace(WHOLE, end=b"m", epoch=2)
UPPER = PartitionDescriptor(PartitionId(6), b"m", b"z", 1, (ME,))


def row(d: PartitionDescriptor, *change: object) -> Placed:
    return Placed(d, d.voters, (), 0, change)


def test_h2_what_a_split_made_is_nobodys_only_if_the_map_never_heard_of_it() -> None:
    """The master dies between the split and the map: every node would remove the new half."""
    own = [LOWER, UPPER]
    assert differences(ME, own, [row(WHOLE, "split", 6, b"m")]).foreign == ()
    assert differences(ME, own, [row(WHOLE)]).foreign == (6,)


def test_h2_a_half_is_not_made_where_the_whole_still_is() -> None:
    """Two replicas would write the same rows; the log of the whole one brings the half."""
    rows = [row(LOWER), row(UPPER)._replace(first=())]
    assert differences(ME, [WHOLE], rows).missing == ()
    missing = differences(ME, [LOWER], rows).missing
    assert [(d.id, d.voters) for d in missing] == [(6, ())], "it begins with nothing"


def test_h4_what_stands_still_for_a_merge_stays_until_it_is_taken_in() -> None:
    """The map has forgotten it, but this node's log is not there yet: without its rows the merge
    cannot be applied here.
    """
    rows = [row(replace(WHOLE, epoch=3))]
    assert differences(ME, [LOWER, UPPER], rows, frozen={UPPER.id}).foreign == ()
    assert differences(ME, [LOWER, UPPER], rows).foreign == (6,)
    assert differences(ME, [UPPER], rows, frozen={UPPER.id}).foreign == (6,)


def test_h4_what_stood_still_goes_where_nobody_will_take_it_in() -> None:
    """Merged and split again while this node was away: a snapshot brought it behind both. What the
    second split made would never get a replica here.
    """
    again = replace(UPPER, id=PartitionId(7))
    lower = replace(LOWER, epoch=4)
    rows = [row(lower), row(again)]
    found = differences(ME, [lower, UPPER], rows, frozen={UPPER.id})
    assert found.foreign == (6,)
    assert [d.id for d in found.missing] == [7]
