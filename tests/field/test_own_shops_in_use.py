"""A shop of one's own in use: numbered refunds, totals of products, odd addresses."""

from typing import Any

import pytest

from harness import sales, shops

pytestmark = pytest.mark.usefixtures("shop_secrets")


@pytest.fixture
def world(world: Any) -> Any:
    """A product, and a shop of one's own whose products are mapped to it."""
    world.services.products.add("app", "App")
    sales.add(world, "standard", mapped=False)
    for name in ("app-1", "app-2"):
        world.services.sources.map("standard", name, "app")
    return world


@pytest.mark.parametrize("kind", ["refunded", "disputed"])
def test_a_shop_that_numbers_refunds_for_each_order(world: Any, kind: str) -> None:
    """The second refund 1 took that of the first order back, whose license was valid again."""
    for order in ("w1", "w2"):
        bought: dict[str, Any] = {"order_id": order, "external_id": "app-1", "total": 30}
        sales.process(world, "standard", shops.standard("purchase.completed", **bought))
    for order in ("w1", "w2"):
        data: dict[str, Any] = {"refund_id": "1", "amount": 30} if kind == "refunded" else {"dispute_id": "1"}
        sales.process(world, "standard", shops.standard(f"purchase.{kind}", order_id=order, **data))
    assert [license_.revoked_at is None for license_ in sales.licenses(world)] == [False, False]
    assert sales.states(world, "standard") == ["done"] * 4


def test_an_order_of_two_deliveries_with_different_totals(world: Any) -> None:
    """They may be those of the products: whether a refund of 10 is of a part is not known."""
    for name, total in (("app-1", 20), ("app-2", 10)):
        bought: dict[str, Any] = {"order_id": "5", "external_id": name, "total": total}
        sales.process(world, "standard", shops.standard("purchase.completed", **bought))
    sales.process(
        world, "standard", shops.standard("purchase.refunded", order_id="5", refund_id="1", amount=10)
    )
    assert [license_.revoked_at for license_ in sales.licenses(world)] == [None, None]
    (problem,) = world.services.sale_problems.list_open().items
    assert "it is not known whether in part or all" in problem.message


def test_an_address_that_mail_would_read_as_another_one(world: Any) -> None:
    """The key was issued, its mail given up, and the vendor not asked: the customer waited for it."""
    bought: dict[str, Any] = {"order_id": "5", "external_id": "app-1", "customer_email": "=?utf-8?q?a?=@x.de"}
    sales.process(world, "standard", shops.standard("purchase.completed", **bought))
    (problem,) = world.services.sale_problems.list_open().items
    assert problem.name.startswith("address:")
