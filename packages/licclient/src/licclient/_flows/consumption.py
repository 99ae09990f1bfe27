"""Count uses of a metered entitlement: by the service, or within an allowance until it answers (D-225)."""

from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from licclient._flows.context import Context
from licclient._flows.runners import Flow
from licclient._flows.verification import ask, call_lock, find_key, random_name, wait_for
from licclient._model import License, Quota, Source, is_entitlement_name
from licclient._policy import CLOCK_TOLERANCE
from licclient._protocol.extensions import Usage, consume_call, read_consume
from licclient._protocol.requests import read_instant
from licclient._protocol.responses import Reply
from licclient._records import Document, record_name
from licclient.errors import LicclientError, QuotaExceededError, ServiceUnavailableError


@dataclass(slots=True)
class _Tally:
    """What is remembered of an entitlement.

    Attributes:
        answer: The last answer with a usage, as it came; checked at each read.
        usage: What that said; None without an answer that can be believed.
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

    context: Context
    key: str = field(repr=False)
    domain: str
    name: str

    @property
    def record(self) -> str:
        return record_name("quota", self.context.settings.server, self.key, self.domain, self.name)

    def send(self, amount: int, use_id: str, tally: _Tally, seconds: float) -> Flow[Usage]:
        """Have a use counted, and remember the answer; raise why it was not counted."""
        context = self.context
        call = consume_call(context.settings, self.key, self.domain, self.name, amount, use_id)
        unknown = ServiceUnavailableError("This license service does not count uses.")
        answer = yield from ask(context, call, self._read, unknown=unknown, seconds=seconds)
        if isinstance(answer, QuotaExceededError):
            tally.answer, tally.usage = {}, None  # nothing offline before the next success
        if isinstance(answer, LicclientError):
            raise answer
        usage, reply = answer
        headers = dict(reply.headers) if context.settings.public_keys else {}
        tally.answer = {"headers": headers, "body": b64encode(reply.body).decode()}
        tally.answer |= {"amount": amount, "use_id": use_id}
        tally.usage, tally.answered_at = usage, context.now().isoformat()
        return usage

    def _read(self, reply: Reply) -> tuple[Usage, Reply] | LicclientError:
        usage = read_consume(reply, self.key, self.name)
        return usage if isinstance(usage, LicclientError) else (usage, reply)

    def load(self) -> _Tally:
        """Read what is remembered; a signed answer is checked again."""
        document = self.context.storage.load(self.record)
        match document:
            case {"answer": dict(answer), "answered_at": str(at), "pending": list(pending)}:
                known = [tuple(one) for one in pending if isinstance(one, list) and _is_pending(one)]
                return _Tally(answer, self._believe(answer), at, known)
            case _:
                return _Tally()

    def _believe(self, answer: dict[str, Any]) -> Usage | None:
        match answer:
            case {"headers": dict(headers), "body": str(body), "amount": int(amount), "use_id": str(use_id)}:
                pass
            case _:
                return None
        settings = self.context.settings
        try:
            reply = Reply(200, b64decode(body, validate=True), headers)
        except ValueError:
            return None
        if settings.public_keys:
            from licclient._signatures.responses import Signed, check_signature  # noqa: PLC0415 - for apps with pinned keys

            call = consume_call(settings, self.key, self.domain, self.name, amount, use_id)
            if not isinstance(check_signature(call, reply, settings.public_keys, nonce=None), Signed):
                return None
        usage = read_consume(reply, self.key, self.name)
        return usage if isinstance(usage, Usage) else None

    def save(self, tally: _Tally) -> None:
        """Remember a tally."""
        document: Document = {
            "answer": tally.answer,
            "answered_at": tally.answered_at,
            "pending": [list(one) for one in tally.pending],
        }
        self.context.storage.change(self.record, lambda _: document)


def _is_pending(one: list[Any]) -> bool:
    match one:
        case [str(), int(amount), bool()]:
            return amount > 0
        case _:
            return False


def consume(context: Context, name: str, amount: int) -> Flow[int]:
    """Use some of a metered entitlement of the activated license; return how much is left."""
    quota = _find_quota(context, name, amount)
    timeout = context.settings.timeout.total_seconds()
    with call_lock(context, quota.record) as lock:
        yield from wait_for(lock)
        tally, use_id, was_sent = quota.load(), random_name(), False
        try:
            while tally.pending:
                yield from _settle(quota, tally, lock.left(timeout))
            was_sent = True
            usage = yield from quota.send(amount, use_id, tally, lock.left(timeout))
            return usage.remaining
        except ServiceUnavailableError:
            left = _left_offline(context, tally, amount)
            if left is None:
                raise
            if tally.pending and not was_sent and not tally.pending[-1][2]:  # one request for all of them
                use_id, before, _ = tally.pending.pop()
                tally.pending.append((use_id, before + amount, False))
            else:
                tally.pending.append((use_id, amount, was_sent))
            return left
        finally:
            quota.save(tally)


def settle_uses(context: Context, found: License) -> Flow[None]:
    """Have the uses counted that were made offline; `found` is what the service has just confirmed."""
    timeout = context.settings.timeout.total_seconds()
    for name, value in found.entitlements.items():
        if found.source is not Source.SERVER or not isinstance(value, Quota):
            continue
        quota = _find_quota(context, name, 1)
        if not quota.load().pending:
            continue
        with call_lock(context, quota.record) as lock:
            yield from wait_for(lock)
            tally = quota.load()
            try:
                while tally.pending:
                    yield from _settle(quota, tally, lock.left(timeout))
            finally:
                quota.save(tally)


def _settle(quota: _Quota, tally: _Tally, seconds: float) -> Flow[None]:
    """Have the oldest use counted that was made offline; what does not fit any more is dropped."""
    use_id, amount, _ = tally.pending[0]
    tally.pending[0] = (use_id, amount, True)
    with suppress(QuotaExceededError):
        yield from quota.send(amount, use_id, tally, seconds)
    tally.pending.pop(0)


def _left_offline(context: Context, tally: _Tally, amount: int) -> int | None:
    """Return what is left after an offline use; None if it is not allowed."""
    usage, now, answered_at = tally.usage, context.now(), read_instant(tally.answered_at)
    if usage is None or answered_at is None or answered_at - now > CLOCK_TOLERANCE or now >= usage.resets_at:
        return None
    spent = sum(pending for _, pending, _ in tally.pending) + amount
    return usage.remaining - spent if spent <= usage.allowance else None


def _find_quota(context: Context, name: str, amount: int) -> _Quota:
    if not is_entitlement_name(name):
        raise TypeError(f"not the name of an entitlement, but a {type(name).__name__}")
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise TypeError(f"an amount is a whole number, not a {type(amount).__name__}")
    if amount < 1:
        raise ValueError("an amount is at least 1")
    key, subject = find_key(context, None)
    return _Quota(context, key, subject.domain, name)
