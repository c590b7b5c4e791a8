"""What counts for a tenant while it is under way: the requests of one connection."""

from __future__ import annotations

import pytest

from kv.base.accounts import NAMESPACE, USER
from kv.base.errors import InvalidArgument
from kv.base.fair_turns import FairTurns
from kv.base.methods import GET, PING
from kv.base.tenants import Tenants
from kv.server.connection_rights import Metering


@pytest.mark.parametrize("method", [GET, PING])
def test_ids_of_requests_that_are_the_same_keep_nobody_out(method: int) -> None:
    """Of many requests by one id one ended: the others counted for the namespace for ever, and kept
    all its users out; or a brief one by the same id ended the count of a long one.
    """
    tenants = Tenants(lambda: 0, FairTurns(lambda: 0.0))
    tenants.follow(f"{NAMESPACE}.requests_max", "", 2)
    user, shop = tenants.user("ann"), tenants.namespace("shop")
    assert (user.kind, shop.kind) == (USER, NAMESPACE)
    metering = Metering(tenants)
    metering.begin([1, GET, 0, 5, 1, b"k", 0], user, "shop", asked=True)
    with pytest.raises(InvalidArgument, match="request 1 is under way"):
        metering.begin([1, method, 0, 5, 1, b"k", 0], user, "shop", asked=True)
    assert (user.under_way, shop.under_way) == (1, 1)
    metering.ended([1, 0, None, 0])
    metering.begin([1, GET, 0, 5, 1, b"k", 0], user, "shop", asked=True)
    metering.close()
    assert (user.under_way, shop.under_way) == (0, 0)
