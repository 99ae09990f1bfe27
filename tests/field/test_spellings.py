"""Spellings of one name that a server counts as several machines."""

import pytest

from licserver.domain.environments import normalise_domain

ENDS = ["", "/", ".", ":8443", ".:8443/shop?x=1"]


@pytest.mark.parametrize(
    ("spellings", "normal"),
    [
        pytest.param(
            ["ex_ample.example.org", "EX_AMPLE.example.org"], "ex_ample.example.org", id="kjd/idna#17"
        ),
        pytest.param(["tjhughes_co_uk.cdn.example"], "tjhughes_co_uk.cdn.example", id="kjd/idna#48"),
        pytest.param(["test_a.abc.example"], "test_a.abc.example", id="kjd/idna#69, aio-libs/yarl#152"),
        pytest.param(["moar_underscores"], "moar_underscores", id="benoitc/hackney#558"),
        pytest.param(["\U0001f414\U0001f414.tk", "xn--co8ha.tk"], "xn--co8ha.tk", id="kjd/idna#18"),
        pytest.param(["\u2603.example", "XN--N3H.example"], "xn--n3h.example", id="kjd/idna#40"),
        pytest.param(
            ["\u2615\U0001f98a\u2708.ws", "xn--53hy7af013i.ws"], "xn--53hy7af013i.ws", id="kjd/idna#61"
        ),
        pytest.param(["xn--lw8h.xn--9s9h.it.example"], "xn--lw8h.xn--9s9h.it.example", id="kjd/idna#255"),
        pytest.param(["\u2105.example"], "\u2105.example", id="python-hyper/hyperlink#19"),
        pytest.param(
            ["r3--cache.example", "R3--Cache.example"], "r3--cache.example", id="EmpCloud/emp-monitor#260"
        ),
    ],
)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("scheme", ["", "https://", "//"])
def test_each_spelling_is_one_machine(spellings: list[str], normal: str, scheme: str, end: str) -> None:
    """Names that IDNA refuses lose scheme, port, path and dot as all others do."""
    assert {normalise_domain(scheme + name + end) for name in spellings} == {normal}
