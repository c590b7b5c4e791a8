"""A saga: a flight, a car and a hotel are booked; when one cannot be had, what was booked before is
cancelled, the last first.

    python -m demo.samples.trip       in a directory of its own; kill it, and start it again
"""

from __future__ import annotations

from dataclasses import dataclass

import kvorum
from demo.samples import outside
from kvorum import procedures


@dataclass
class Trip:
    customer: str
    bookings: list[str]


def book(ctx: kvorum.StepContext, what: str) -> str:
    if what.endswith("sold out"):
        raise kvorum.Refused(f"there is no {what}", code="SOLD_OUT")
    return outside.ask(ctx.token, f"book {what}")


def cancel(ctx: kvorum.StepContext, what: str) -> None:
    outside.ask(ctx.token, f"cancel {what}")


@kvorum.workflow("trip")
async def trip(flow: kvorum.Flow, trip: Trip) -> list[str]:
    return [await flow.step(book, what, undo=cancel) for what in trip.bookings]


if __name__ == "__main__":
    with procedures.open("trips", procedures=[trip]) as p:
        wanted = [["flight", "car", "hotel" if n % 2 else "hotel sold out"] for n in range(100)]
        ids = [
            p.submit(trip, Trip(f"customer {n}", bookings), nonce=f"trip {n}")
            for n, bookings in enumerate(wanted)
        ]
        for procedure in ids:
            try:
                print(procedure, p.wait(procedure))
            except kvorum.Refused as error:
                print(procedure, error.code, error.message)
