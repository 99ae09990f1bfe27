"""Days and instants that the admin API takes: written in full, or refused with a word about how."""

import pytest

from harness.engines import both_engines

BEYOND = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
NO_INSTANT = [*BEYOND, "2026", "0", "2026-06-15", "2026-06-15T12:00:00", "2026-06-31T12:00:00Z", "soon", ""]
NO_DAY = [
    "2026",
    "0000",
    "86400",
    "20260615",
    "2026-W25-1",
    "2026-02-30",
    "2026-06-15T00:00:00Z",
    "0000-01-01",
    "0027-01-31",  # CareTogether/CareTogetherCMS#971: a browser makes it of 27
    "0999-12-31",
]
EDGES = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59+23:59"]


async def test_what_is_no_instant_is_refused(api, site):
    """Numbers, days, no zone, and what UTC cannot write: 422 with how to write it, and nothing ends."""
    site.world.key(subscription_id="s")
    for text in NO_INSTANT:
        for query in ({"since": text}, {"until": text}):
            status, body = await api("GET", "/audit", params=query)
            assert (status, *body["errors"]) == (422, *query), text
    for at in (*NO_INSTANT, 2026, 1.5, True):
        status, body = await api("POST", "/subscriptions/s/end", {"at": at})
        assert (status, *body["errors"]) == (422, "at"), at
    assert "2027-01-31T12:00:00Z" in body["errors"]["at"][0]
    assert (await api("GET", "/subscriptions/s"))[1]["ended_at"] is None


@pytest.mark.sampled(1, "at")
@both_engines
@pytest.mark.parametrize("at", EDGES)
async def test_the_ends_of_the_calendar_are_instants(api, site, at):
    """What UTC can just write is kept and can be asked for, on either engine."""
    site.world.key(subscription_id="s")
    assert (await api("POST", "/subscriptions/s/end", {"at": at}))[0] == 200
    for name in ("since", "until"):
        assert (await api("GET", "/audit", params={name: at}))[0] == 200


async def test_what_is_no_day_is_refused(api, site):
    """A bare number would have been a count of seconds: 422, and no license is issued."""
    for text in NO_DAY:
        for name in ("expires_from", "expires_until"):
            status, body = await api("GET", "/licenses", params={name: text})
            assert (status, *body["errors"]) == (422, name), text
    for day in (*NO_DAY, 0, 86400):
        for name in ("expires_on", "support_until"):
            status, body = await api("POST", "/licenses", {"product": "app", name: day})
            assert (status, *body["errors"]) == (422, name), day
    assert list(site.world.services.licenses.list_all()) == []
    assert (await api("GET", "/licenses", params={"expires_from": "2026-06-15"}))[0] == 200
    assert (await api("POST", "/licenses", {"product": "app", "expires_on": "2027-01-31"}))[0] == 201
