"""Count uses of a metered entitlement: by the service, or within an allowance until it answers (D-225)."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from licclient._core.arguments import check_count, wrong_type
from licclient._core.lazy import lazy
from licclient._core.model import License, Outage, Quota, Source, is_entitlement_name
from licclient._core.policy import CLOCK_TOLERANCE
from licclient._core.records import Document, record_name
from licclient._core.requests import read_instant
from licclient._core.responses import Reply
from licclient._core.runners import Flow
from licclient._core.session import Session, random_name, wait_for
from licclient._core.storage import CallLock
from licclient._uses.protocol import Usage, consume_call, read_consume
from licclient.errors import (
    LicclientError,
    QuotaExceededError,
    ServiceUnavailableError,
    StateUnreadableError,
)

if TYPE_CHECKING:
    from licclient._core import signed_responses
else:
    signed_responses = lazy("licclient._core.signed_responses")

_T = TypeVar("_T")


@dataclass(slots=True)
class _UseRecord:
    """The record of an entitlement.

    Attributes:
        answer: The last answer with a usage, as it came; checked at each read.
        usage: What that said; None without a valid response.
        answered_at: When it came, by our clock.
        pending: Uses that the service has not confirmed: id, amount, and whether it may have been sent.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    usage: Usage | None = None
    answered_at: str = ""
    pending: list[tuple[str, int, bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Quota:
    """An entitlement of the activated license on this computer."""

    session: Session
    key: str = field(repr=False)
    domain: str
    name: str

    @property
    def record(self) -> str:
        return record_name("quota", self.session.settings.server, self.key, self.domain, self.name)

    def send(self, amount: int, use_id: str, seconds: float) -> Flow[Usage]:
        """Have a use counted, and remember the answer; raise why it was not counted."""
        session = self.session
        call = consume_call(session.settings, self.key, self.domain, self.name, amount, use_id)
        words = "This license service does not count uses."
        unknown = ServiceUnavailableError(words, outage=Outage.UNUSABLE)
        answer = yield from session.call(call, self._read, self.key, unknown=unknown, seconds=seconds)
        if isinstance(answer, QuotaExceededError):
            self._note(use_id, {}, None)  # nothing offline before the next success
        if isinstance(answer, LicclientError):
            raise answer
        usage, reply = answer
        headers = dict(reply.headers) if session.settings.public_keys else {}
        answered = {"headers": headers, "body": b64encode(reply.body).decode()}
        self._note(use_id, answered | {"amount": amount, "use_id": use_id}, usage)
        return usage

    def _note(self, use_id: str, answer: dict[str, Any], usage: Usage | None) -> None:
        """Remember an answer to a use, which then is not pending any more."""

        def note(record: _UseRecord) -> None:
            record.answer, record.usage = answer, usage
            if usage is not None:
                record.answered_at = self.session.now().isoformat()
            record.pending = [use for use in record.pending if use[0] != use_id]

        with suppress(StateUnreadableError):  # it was counted: if it is pending, it is reported once more
            self._change(note)

    def begin_oldest(self) -> tuple[str, int] | None:
        """Return the oldest use that is pending, as sent from now on; None without any."""

        def begin(record: _UseRecord) -> tuple[str, int] | None:
            if not record.pending:
                return None
            use_id, amount, _ = record.pending[0]
            record.pending[0] = (use_id, amount, True)
            return use_id, amount

        return self._change(begin) if self.has_pending() else None

    def has_pending(self) -> bool:
        """Return whether there are uses that the service has not confirmed."""
        return bool(self._parse(self.session.storage.load(self.record)).pending)

    def use_offline(self, amount: int, use_id: str, *, was_sent: bool) -> int | None:
        """Count a use on this computer; return the rest, or None if it is not allowed."""

        def use(record: _UseRecord) -> int | None:
            remaining = _left_offline(self.session, record, amount)
            if remaining is None:
                return None
            if record.pending and not was_sent and not record.pending[-1][2]:  # one request for all of them
                last_id, before, _ = record.pending.pop()
                record.pending.append((last_id, before + amount, False))
            else:
                record.pending.append((use_id, amount, was_sent))
            return remaining

        return self._change(use)

    def _read(self, reply: Reply) -> tuple[Usage, Reply] | LicclientError:
        usage = read_consume(reply, self.key, self.name)
        return usage if isinstance(usage, LicclientError) else (usage, reply)

    def _change(self, act: "Callable[[_UseRecord], _T]") -> "_T":
        """Change the stored state, with no other thread or process between; return what `act` does."""
        result: list[_T] = []

        def edit(document: Document | None) -> Document | None:
            record = self._parse(document)
            result[:] = [act(record)]
            after = _format(record)
            return document if document is not None and after.items() <= document.items() else after

        self.session.storage.change(self.record, edit)
        return result[0]

    def _parse(self, document: Document | None) -> _UseRecord:
        """Read the stored state; verify a signed answer again."""
        match document:
            case {"answer": dict(answer), "answered_at": str(at), "pending": list(pending)}:
                pending_uses = [tuple(use) for use in pending if isinstance(use, list) and _is_pending(use)]
                return _UseRecord(answer, self._believe(answer), at, pending_uses)
            case _:
                return _UseRecord()

    def _believe(self, answer: dict[str, Any]) -> Usage | None:
        match answer:
            case {"headers": dict(headers), "body": str(body), "amount": int(amount), "use_id": str(use_id)}:
                pass
            case _:
                return None
        settings = self.session.settings
        try:
            reply = Reply(200, b64decode(body, validate=True), headers)
        except ValueError:
            return None
        if settings.public_keys:
            call = consume_call(settings, self.key, self.domain, self.name, amount, use_id)
            if not isinstance(
                signed_responses.check_signature(call, reply, settings.public_keys, nonce=None),
                signed_responses.Signed,
            ):
                return None
        usage = read_consume(reply, self.key, self.name)
        return usage if isinstance(usage, Usage) else None


def _format(record: _UseRecord) -> dict[str, Any]:
    return {
        "answer": record.answer,
        "answered_at": record.answered_at,
        "pending": [list(use) for use in record.pending],
    }


def _is_pending(use: list[Any]) -> bool:
    match use:
        case [str(), int(amount), bool()]:
            return amount > 0
        case _:
            return False


def consume(session: Session, name: str, amount: int) -> Flow[int]:
    """Use some of a metered entitlement of the activated license; return how much is left."""
    quota = _find_quota(session, name, amount)
    timeout = session.settings.timeout.total_seconds()
    with session.lock(quota.record) as lock:
        yield from wait_for(lock)
        use_id, was_sent = random_name(), False
        try:
            yield from _report_pending(quota, lock, timeout)
            was_sent = True
            usage = yield from quota.send(amount, use_id, lock.left(timeout))
        except ServiceUnavailableError:
            remaining = quota.use_offline(amount, use_id, was_sent=was_sent)
            if remaining is None:
                raise
            return remaining
        return usage.remaining


def report_uses(session: Session, license_: License) -> Flow[None]:
    """Have the uses counted that were made offline; `found` is what the service has just confirmed."""
    timeout = session.settings.timeout.total_seconds()
    for name, value in license_.entitlements.items():
        if license_.source is not Source.SERVER or not isinstance(value, Quota):
            continue
        quota = _find_quota(session, name, 1)
        if not quota.has_pending():
            continue
        with session.lock(quota.record) as lock:
            yield from wait_for(lock)
            yield from _report_pending(quota, lock, timeout)


def _report_pending(quota: _Quota, lock: CallLock, timeout: float) -> Flow[None]:
    """Have all uses counted that were made offline; what does not fit any more is dropped."""
    while (use := quota.begin_oldest()) is not None:
        use_id, amount = use
        with suppress(QuotaExceededError):
            yield from quota.send(amount, use_id, lock.left(timeout))


def _left_offline(session: Session, record: _UseRecord, amount: int) -> int | None:
    """Return the rest after an offline use; None if it is not allowed."""
    usage, now, answered_at = record.usage, session.now(), read_instant(record.answered_at)
    if usage is None or answered_at is None or answered_at - now > CLOCK_TOLERANCE or now >= usage.resets_at:
        return None
    spent = sum(pending for _, pending, _ in record.pending) + amount
    return usage.remaining - spent if spent <= usage.allowance else None


def _find_quota(session: Session, name: str, amount: int) -> _Quota:
    if not is_entitlement_name(name):
        raise wrong_type("entitlement", "the name of one", name)
    check_count("amount", amount)
    key, subject = session.license(None)
    return _Quota(session, key, subject.domain, name)
