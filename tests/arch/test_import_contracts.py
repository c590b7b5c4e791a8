"""Our own import contract finds what it must find (a contract that cannot break proves nothing)."""

from __future__ import annotations

import grimp
import pytest

from scripts.import_contracts import PureContract, RoomsContract


def faults(imports: list[tuple[str, str]], rooms: list[str]) -> list[str]:
    """What the contract of rooms says of `pkg` with these imports."""
    graph = grimp.ImportGraph()
    for name in sorted({name for pair in imports for name in pair} | {"pkg"}):
        graph.add_module(name)
    for importer, imported in imports:
        graph.add_import(
            importer=importer, imported=imported, line_number=1, line_contents="import"
        )
    contract = RoomsContract(
        name="rooms", session_options={}, contract_options={"container": "pkg", "rooms": rooms}
    )
    return list(contract.check(graph, verbose=False).metadata["faults"])


def broken_chains(imports: list[tuple[str, str]], **options: list[str]) -> list[tuple[str, ...]]:
    """What the contract reports for a graph of these imports (standard library names squashed)."""
    graph = grimp.ImportGraph()
    for name in sorted({name for pair in imports for name in pair} | {"pkg"}):
        graph.add_module(name, is_squashed=name in {"time", "socket"})
    for importer, imported in imports:
        graph.add_import(
            importer=importer, imported=imported, line_number=1, line_contents="import"
        )
    options = {"source_modules": ["pkg.*"], "forbidden_modules": ["time", "socket"], **options}
    contract = PureContract(name="pure", session_options={}, contract_options=options)
    return list(contract.check(graph, verbose=False).metadata["chains"])


def test_direct_and_indirect_imports_break_it() -> None:
    """A rule that reaches a clock through a helper module is no purer than one that reads it."""
    found = broken_chains([("pkg.rule", "pkg.helper"), ("pkg.helper", "time")])
    assert found == [("pkg.helper", "time"), ("pkg.rule", "pkg.helper", "time")]


def test_exempt_module_may_act_but_not_be_used_by_rules() -> None:
    """The adapter of a package may open sockets; a rule that imports the adapter may not hide."""
    imports = [("pkg.adapter", "socket"), ("pkg.rule", "pkg.other")]
    assert broken_chains(imports, exempt_modules=["pkg.adapter"]) == []
    imports.append(("pkg.rule", "pkg.adapter"))
    assert broken_chains(imports, exempt_modules=["pkg.adapter"]) == [
        ("pkg.rule", "pkg.adapter", "socket")
    ]


def test_planned_module_is_checked_from_the_day_it_appears() -> None:
    """Contracts are written before the code; they must wake up with it."""
    planned = {"source_modules": ["pkg.rule"], "planned_modules": ["pkg.later"]}
    assert broken_chains([("pkg.rule", "pkg.x")], **planned) == []
    found = broken_chains([("pkg.rule", "pkg.x"), ("pkg.later", "time")], **planned)
    assert found == [("pkg.later", "time")]


def test_renamed_module_does_not_drop_out() -> None:
    """A contract whose module is gone must fail, or a rename would switch it off."""
    with pytest.raises(ValueError, match="mend the contract"):
        broken_chains([("pkg.rule", "pkg.x")], source_modules=["pkg.gone"])


ROOMS = [("pkg.low.a", "pkg.low.b"), ("pkg.mid.a", "pkg.low.a"), ("pkg.top", "pkg.mid.a")]


def test_rooms_import_whom_they_name() -> None:
    """An arrow that nobody declared is how a package becomes a heap again."""
    assert faults(ROOMS, ["low", "mid low", "top mid"]) == []
    assert faults([*ROOMS, ("pkg.top", "pkg.low.b")], ["low", "mid low", "top mid"]) == [
        "top may not import low: pkg.top -> pkg.low.b"
    ]


def test_rooms_cannot_declare_a_circle() -> None:
    """Two rooms that may import each other are one room with two names."""
    circle = [*ROOMS, ("pkg.low.b", "pkg.mid.a")]
    assert faults(circle, ["low mid", "mid low", "top mid"]) == [
        "low names mid, which is not above it"
    ]


@pytest.mark.parametrize(
    ("rooms", "fault"),
    [
        (["low", "mid low", "top low mid"], "top names low and imports nothing of it"),
        (["low", "mid low"], "top is not listed"),
        (["low", "mid low", "top mid", "gone"], "gone is not there any more"),
        (["low", "mid low", "top mid", "low"], "low is there twice"),
    ],
)
def test_list_of_rooms_is_the_picture_of_what_is(rooms: list[str], fault: str) -> None:
    """A list with more or fewer arrows than there are is read as if it were true."""
    assert faults(ROOMS, rooms) == [fault]
