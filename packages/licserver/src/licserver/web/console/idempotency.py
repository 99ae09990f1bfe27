"""Forms that make something, done once however often they are sent (D-130).

A page puts an id of its own into each of them. It is the idempotency key under which the result is recorded,
as in the admin API.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from licserver.database.repositories.idempotency import IdempotencyKey
from licserver.domain.records import ActorKind
from licserver.errors import Conflict, WrongUse
from licserver.services import IdempotencyConflictError, Services
from licserver.services.idempotency import Response, run_once
from licserver.web.console.page_context import PageContext, Redirect
from licserver.web.console.sessions import CSRF_FIELD

FIELD: Final = "once"

_BYTES: Final = 16
_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_SEE_OTHER: Final = 303

Act = Callable[[PageContext], Redirect]
Prepared = TypeVar("Prepared")


def draw_id() -> str:
    """Draw the id of a form that is about to be shown."""
    return secrets.token_urlsafe(_BYTES)


def read_id(form: Mapping[str, str]) -> str | None:
    """Find the id that came with a form; None when there is none that could be ours."""
    found = form.get(FIELD, "")
    return found if _ID.fullmatch(found) else None


def once(act: Act) -> Act:
    """Let an action, all of which is done within one transaction, be done once for each form."""

    def act_once(visit: PageContext) -> Redirect:
        return do_once(visit, _nothing, lambda tx, _: act(visit._replace(services=tx)))

    return act_once


def do_once(
    visit: PageContext,
    prepare: Callable[[], Prepared],
    operation: Callable[[Services, Prepared], Redirect],
    *more: str,
) -> Redirect:
    """Do what a form asks for, or redirect to the result of the first time.

    Args:
        visit: With the form.
        prepare: Slow work before the transaction.
        operation: Runs within the transaction, with what `prepare` returned.
        more: What was sent beside the fields.

    Raises:
        WrongUse: for a form without an id of ours; and whatever the operation raises.
        Conflict: for one that was sent before with other content.
    """
    form_id = read_id(visit.form)
    if form_id is None:
        raise WrongUse("this form is of a page that is no more; look it through, and send it again")
    key = IdempotencyKey(ActorKind.USER, visit.who.user_id, form_id, _digest(visit, more))
    try:
        response, is_replayed = run_once(
            visit.services, key, prepare, lambda tx, prepared: _write(operation(tx, prepared))
        )
    except IdempotencyConflictError:
        raise Conflict(
            "this form was sent before with something else in it: that was done, and this was not; "
            "send it again if you want both"
        ) from None
    path, done = json.loads(response.body)
    return Redirect(path, "once" if is_replayed else done)


def _nothing() -> None:
    """Prepare nothing."""


def _write(moved: Redirect) -> Response:
    return Response(_SEE_OTHER, json.dumps(moved).encode())


def _digest(visit: PageContext, more: tuple[str, ...]) -> bytes:
    fields = {name: value for name, value in visit.form.items() if name not in {CSRF_FIELD, FIELD}}
    sent = [sorted(visit.parts.items()), sorted(fields.items()), more]
    return hashlib.sha256(json.dumps(sent).encode()).digest()
