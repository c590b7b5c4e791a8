"""Write the tables of verbs of docs/reference/rpc.md from their declarations (kv/base/verbs.py).

    python -m scripts.document_verbs

A test fails while the page is not current.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import kvorum.api.verbs  # noqa: F401 - every verb is in the table then
from kv.base.verbs import NODE_METHODS, VERBS, Repeat, Verb

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "rpc.md"
BEGIN: Final = "<!-- written by scripts/document_verbs.py -->"
END: Final = "<!-- end -->"


def page(text: str) -> str:
    """The page with current tables."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = (
        ("Requests to a partition", [verb for verb in VERBS if verb.number < NODE_METHODS]),
        ("Requests to a node", [verb for verb in VERBS if verb.number >= NODE_METHODS]),
    )
    tables = "\n\n".join(f"### {title}\n\n{_table(verbs)}" for title, verbs in parts)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def _table(verbs: list[Verb]) -> str:
    rows = ["| | request | answer | who | right | again |", "|--:|---|---|---|---|---|"]
    return "\n".join(rows + [_row(verb) for verb in verbs])


def _row(verb: Verb) -> str:
    fewest = len(verb.fields) - verb.optional
    needed, optional = verb.fields[:fewest], verb.fields[fewest:]
    args = ", ".join(needed) + "".join(f"[, {field}" for field in optional) + "]" * len(optional)
    answer = " ".join((verb.request.__doc__ or "").split()).removeprefix("→ ")
    again = verb.repeat if verb.repeat is not Repeat.ONCE or not verb.nonce else f"by {verb.nonce}"
    who = ", ".join(verb.callers) + (" → master" if verb.master else "")
    cells = (
        str(verb.number),
        f"**{verb.name}** {args}".strip(),
        answer,
        who,
        f"{verb.action}: {verb.resource}",
        again,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
