"""Cases of the client's cache: when it sends a request, and which licenses are valid without a response."""

from datetime import UTC, datetime

from licconform.cases import expect
from licconform.client.service import OTHER_KEY, Reply, refusal, success
from licconform.client.subject import CASES, NO, NO_ANSWER, YES, Client

DOWN = Reply(503, {"message": "Down."})
REVOKED = refusal(403, "License has been revoked.")
OFFLINE = Reply(drop=True)


@CASES.case("cache-hit", "spec 1", "After a success no second request is sent.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.verify(expected=YES)
    client.expect_verifies(1)


@CASES.case("cache-offline", "spec 1", "A cached success holds without the service.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.service.verify = OFFLINE
    client.verify(expected=YES)


@CASES.case("cache-23-hours", "spec 8", "A success is cached for at least 24 hours.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.later(23)
    client.verify(expected=YES)
    client.expect_verifies(1)


@CASES.case("cache-force", "spec 1", "If the customer requests a re-check, a request is sent.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.verify(force=True, expected=YES)
    client.expect_verifies(2)


@CASES.case("cache-force-refused", "spec 1", "The answer to a re-check counts, not the cache.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.service.verify = REVOKED
    client.verify(force=True, expected=NO)


@CASES.case("cache-other-key", "spec 1", "A success counts for its key only.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.service.verify = refusal(404, "License not found.")
    client.verify(OTHER_KEY, expected=NO)
    client.expect_verifies(2)


@CASES.case("cache-refusal", "spec 1", "A refusal is not cached: the next verify sends a request.")
def _(client: Client) -> None:
    client.service.verify = [REVOKED, success()]
    client.verify(expected=NO)
    client.verify(expected=YES)


@CASES.case("cache-ends", "D-41", "After its time (24 hours) a request is sent.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.later(25)
    client.service.verify = REVOKED
    client.verify(expected=NO)


@CASES.case("cache-removed", "D-41", "A refusal removes the cached success.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.service.verify = REVOKED
    client.verify(force=True, expected=NO)
    client.service.verify = OFFLINE
    client.never_yes(client.verify)


@CASES.case("cache-expiry", "D-41", "A success never holds past the key's own expiry day.")
def _(client: Client) -> None:
    today = datetime.now(UTC).date().isoformat()  # noqa: TID251 - the day that the client has
    client.service.verify = success(expiry=today)
    client.verify(expected=YES)
    client.service.verify = OFFLINE
    client.later(25)
    client.never_yes(client.verify)


@CASES.table(
    "cache-damaged",
    "D-41",
    "A cache that cannot be read is a miss ({0}).",
    [("empty", b""), ("garbage", b"\xff{]\x00" * 50), ("JSON", b"[]")],
)
def _(client: Client, content: bytes) -> None:
    client.verify(expected=YES)
    for path in client.state.rglob("*"):
        if path.is_file():
            path.write_bytes(content)
    client.verify(expected=YES)
    client.expect_verifies(2)


@CASES.table(
    "grace",
    "D-42",
    "Without an answer the last success holds for 72 hours more ({0}).",
    [("503", DOWN), ("offline", OFFLINE)],
)
def _(client: Client, reply: Reply) -> None:
    client.verify(expected=YES)
    client.later(30)
    client.service.verify = reply
    client.verify(expected=YES)
    expect(len(client.verifies) > 1, "expected a request")


@CASES.case("grace-ends", "D-42", "After the grace period it is no answer.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.later(24 + 72 + 1)
    client.service.verify = OFFLINE
    client.verify(expected=NO_ANSWER)


@CASES.case("grace-refused", "D-42", "A refusal ends the grace period at once.")
def _(client: Client) -> None:
    client.verify(expected=YES)
    client.later(30)
    client.service.verify = REVOKED
    client.verify(expected=NO)


@CASES.case("clock-back", "D-43", "A success of the future is a miss: a request is sent.")
def _(client: Client) -> None:
    client.later(48)
    client.verify(expected=YES)
    client.later(0)
    client.service.verify = REVOKED
    client.verify(expected=NO)


@CASES.case("clock-ahead", "D-43", "A clock that was ahead once locks no customer out.")
def _(client: Client) -> None:
    client.later(24 * 400)
    client.verify()
    client.later(0)
    client.verify(expected=YES)
