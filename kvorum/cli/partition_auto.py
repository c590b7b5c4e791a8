"""`kvorum partition auto [on|off]`: whether and why the master splits and merges partitions
(docs/guides/partitions.md).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, opened
from procedures.engine.plain_data import Plain

_SETTING = "partition.auto"


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


def auto(
    switch: Annotated[
        Switch | None, typer.Argument(metavar="[on|off]", help="Change it.", show_default=False)
    ] = None,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print what the master splits and merges by itself, what it does not, and why; or switch it
    on or off.
    """
    from procedures.master.shape.splitter import EXPLAIN

    with opened(connect, json) as db:
        if switch is not None:
            value = int(switch is Switch.ON)
            db.wait(db.submit("kvorum.set_setting", {"name": _SETTING, "value": value}))
        answer: Plain = db.wait(db.submit(EXPLAIN, {}))
    if json:
        output.emit(answer)
        return
    limits = f"above {output.size(answer['bytes_max'])} or {answer['load_min']:g} units/s"
    state = f"partitions are split {limits}" if answer["auto"] else "nothing is split or merged"
    output.lines([f"{'on' if answer['auto'] else 'off'}: {state}"])
    output.lines(f"done     {text}" for text in answer["done"])
    output.lines(f"working  procedure {id_} ({name})" for id_, name, _ in answer["working"])
    rows = [f"not now  partition {partition}: {text}" for partition, text in answer["refused"]]
    if answer["more_refused"]:
        rows.append(f"not now  {answer['more_refused']} more")
    output.lines(rows)
