"""The error codes are a public interface: clients switch on them."""

from __future__ import annotations

import re

from kv.base import errors


def classes() -> list[type[errors.KvorumError]]:
    """Every error class that clients know, the base first."""
    found: list[type[errors.KvorumError]] = []
    todo: list[type[errors.KvorumError]] = [errors.KvorumError]
    while todo:
        cls = todo.pop(0)
        found.append(cls)
        todo += cls.__subclasses__()
    return [cls for cls in found if cls.__module__ == errors.__name__]


def test_codes_are_unique() -> None:
    """Two classes with one code would come back from the wire as the wrong one."""
    seen: dict[str, str] = {}
    for cls in classes():
        other = seen.setdefault(cls.code, cls.__name__)
        assert other == cls.__name__, f"{cls.__name__} and {other} share {cls.code}"


def test_every_class_has_its_own_code() -> None:
    """An inherited code would make a class that no client can tell from its parent."""
    missing = [cls.__name__ for cls in classes() if "code" not in cls.__dict__]
    assert not missing


def test_codes_and_statuses_are_well_formed() -> None:
    """A code is shouted in letters, digits and underscores; a status is an HTTP error."""
    for cls in classes():
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*", cls.code), cls
        assert 400 <= cls.status <= 599, cls


def test_tree_at_the_top_of_the_file_is_complete() -> None:
    """The drawing is what people read; a class or code missing there is not documented."""
    drawing = errors.__doc__ or ""
    missing = [cls.__name__ for cls in classes() if not re.search(rf"\b{cls.__name__}\b", drawing)]
    assert not missing


def test_errors_survive_the_wire() -> None:
    """A node that re-raises another node's error must raise the same class, code and details."""
    for cls in classes():
        sent = cls("why", details={"key": "a"})
        got = errors.from_wire(errors.to_wire(sent))
        assert (type(got), got.code, got.message, got.details) == (
            cls,
            cls.code,
            "why",
            {"key": "a"},
        )


def test_a_class_of_its_own_travels_as_what_it_extends() -> None:
    """A client that does not know the class would take a refusal for a fault of the server."""

    class Special(errors.Refused):
        pass

    class Named(Special):
        code = "NAMED"

    for cls in (Special, Named):
        got = errors.from_wire(errors.to_wire(cls("why", code="OWN", details={"key": "a"})))
        assert (type(got), got.code, got.details) == (errors.Refused, "OWN", {"key": "a"})
