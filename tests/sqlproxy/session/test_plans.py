"""What is remembered of statements stays within its bounds."""

from __future__ import annotations

from sqlproxy.session.services import Plans


def test_the_least_used_plans_go_first() -> None:
    """A client that sends other texts all the time would fill the memory, or throw out the rest."""
    plans = Plans(3, 1_000)
    for name in "abc":
        plans.put(name, name.upper(), 10)
    assert plans.get("a") == "A"
    plans.put("d", "D", 10)
    assert [plans.get(name) for name in "abcd"] == ["A", None, "C", "D"]


def test_texts_of_plans_are_bounded_together() -> None:
    """Statements of a thousand rows are remembered, but not a thousand of them."""
    plans = Plans(100, 1_000)
    plans.put("small", 1, 10)
    plans.put("large", 2, 900)
    assert plans.get("small") == 1
    plans.put("larger", 3, 950)
    assert [plans.get(name) for name in ("small", "large", "larger")] == [1, None, 3]
    for _ in range(3):
        plans.put("larger", 3, 950)  # once more is not twice
    assert [plans.get(name) for name in ("small", "larger")] == [1, 3]
    plans.put("largest", 4, 1_001)
    assert plans.get("largest") is None
