"""What the processes of `kvorum start --stores N` are told, and which data they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kv.base.config import SUPERVISED, NodeConfig, load
from kv.base.errors import InvalidArgument
from kvorum.programs.stores import check_layout, command, configs, environment, marked, reason

ALONE = NodeConfig(data=Path("d"), port=7600, stores=3)
LIST = ("127.0.0.1:7600", "127.0.0.1:8600", "127.0.0.1:9600")


def test_f8_the_first_store_founds_and_the_others_join_it() -> None:
    """Each would found a cluster of its own, or all would want one directory and one port."""
    first, *later = configs(ALONE)
    assert (first.data, first.port, first.join) == (Path("d/store-0"), 7600, ())
    assert [(c.data, c.port) for c in later] == [
        (Path("d/store-1"), 7610),
        (Path("d/store-2"), 7620),
    ]
    assert all(c.join == ("127.0.0.1:7600",) and c.place is None for c in later)


def test_f8_the_first_store_is_a_founder_among_machines() -> None:
    """The list that founds a cluster names one node of each machine."""
    config = NodeConfig(
        data=Path("d"), port=8600, stores=2, node_id=2, join=LIST, cluster_secret="s" * 16
    )
    first, second = configs(config)
    assert (first.node_id, first.place, first.join) == (2, 2, LIST)
    assert (second.node_id, second.place, second.join) == (0, None, LIST)
    later = replace(config, port=5600, node_id=1)
    assert [c.join for c in configs(later)] == [LIST, LIST], "a machine that comes later"
    named = replace(config, join=(*LIST, "127.0.0.1:8610"))
    with pytest.raises(InvalidArgument, match="name the first one only"):
        configs(named)


def test_f8_a_witness_is_not_several() -> None:
    """Cores are of no use to a node without data."""
    config = NodeConfig(port=9600, stores=2, node_id=3, join=LIST, witnesses=(3,))
    with pytest.raises(InvalidArgument, match="witness"):
        configs(config)
    with pytest.raises(InvalidArgument, match="witness"):
        configs(replace(config, port=5600, node_id=1, witness=True, witnesses=()))


def test_f8_a_store_is_told_every_setting_and_the_secret_by_no_flag() -> None:
    """A setting that the file or the environment has would hold for no store, or for all: the
    directory, the number of stores.
    """
    config = NodeConfig(
        data=Path("d"),
        port=7600,
        stores=2,
        http=False,
        machine="rack-9",
        procedure_modules=("a.b", "c"),
        cluster_secret="very secret indeed",
    )
    for one in configs(config):
        words = command(one)
        assert not any("secret" in word for word in words)
        flags = dict(zip(words[5::2], words[6::2], strict=True))
        names = {flag.removeprefix("--").replace("-", "_"): v for flag, v in flags.items()}
        own = environment(one, {"KVORUM_STORES": "2", "KVORUM_DATA": "x", "HOME": "h"})
        assert set(own) == {"HOME", SUPERVISED, "KVORUM_CLUSTER_SECRET"}
        assert load(names, own) == one


def test_f8_data_of_another_number_of_stores_are_not_passed_over(tmp_path: Path) -> None:
    """A node beside data that it does not look at is an empty node that seems to be the old one."""
    check_layout(tmp_path, 1)
    check_layout(tmp_path, 2)
    (tmp_path / "state").mkdir()
    check_layout(tmp_path, 1)
    with pytest.raises(InvalidArgument, match="move what is in it to"):
        check_layout(tmp_path, 2)
    (tmp_path / "state").rmdir()
    for i in range(3):
        (tmp_path / f"store-{i}").mkdir()
    check_layout(tmp_path, 3)
    check_layout(tmp_path, 4)
    with pytest.raises(InvalidArgument, match="--stores 3"):
        check_layout(tmp_path, 1)
    with pytest.raises(InvalidArgument, match="store-2 would not run"):
        check_layout(tmp_path, 2)


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        (1, '{"error": {"code": "CANNOT_LISTEN", "message": "in use"}}', "CANNOT_LISTEN: in use"),
        (1, "kvorum: fatal: the disk is gone", "fatal: the disk is gone"),
        (1, '{"level": "info", "message": "the last thing"}', "the last thing"),
        (1, '{"error": "odd"}', '{"error": "odd"}'),
        (-9, '{"message": "all is well"}', "it was killed by signal 9"),
        (3, "", "it gave no reason (exit code 3)"),
        (1, "[1, 2", "[1, 2"),
    ],
)
def test_f8_why_a_store_ended(code: int, line: str, expected: str) -> None:
    """ "Store 1 ended" leaves a person to search the logs of all."""
    assert reason(code, line) == expected


def test_f8_log_lines_say_which_store_speaks() -> None:
    """Lines of several processes in one stream, and readers that want JSON."""
    assert marked(1, '{"level": "info"}') == '{"store": 1, "level": "info"}'
    assert marked(1, "Traceback") == "store 1: Traceback"
    assert marked(1, "{}") == "store 1: {}"
