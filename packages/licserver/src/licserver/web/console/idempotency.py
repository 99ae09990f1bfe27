"""Forms that create something, carried out once however often they are sent (D-130).

A page puts an id into each of them, which is used as an idempotency key.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from licserver.database.repositories.idempotency import IdempotencyKey
from licserver.domain.records import ActorKind
from licserver.errors import ConflictError, InvalidInputError
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
    """Draw the id of a form."""
    return secrets.token_urlsafe(_BYTES)


def read_id(form: Mapping[str, str]) -> str | None:
    """Return the id of a form, or None if it has no valid one."""
    found = form.get(FIELD, "")
    return found if _ID.fullmatch(found) else None


def once(act: Act) -> Act:
    """Make an action, all of which is one transaction, run once for each form."""

    def act_once(context: PageContext) -> Redirect:
        return do_once(context, _nothing, lambda tx, _: act(context._replace(services=tx)))

    return act_once


def do_once(
    context: PageContext,
    prepare: Callable[[], Prepared],
    operation: Callable[[Services, Prepared], Redirect],
    *more: str,
) -> Redirect:
    """Carry out a form, or redirect to the result of the first time.

    Args:
        context: With the form.
        prepare: Slow work before the transaction.
        operation: Runs within the transaction, with what `prepare` returned.
        more: What was sent beside the fields.

    Raises:
        InvalidInputError: for a form without an id; and whatever the operation raises.
        ConflictError: for a form that was sent before with other fields.
    """
    form_id = read_id(context.form)
    if form_id is None:
        raise InvalidInputError("this form is of an outdated page; look it through, and send it again")
    key = IdempotencyKey(ActorKind.USER, context.user.user_id, form_id, _digest(context, more))
    try:
        response, is_replayed = run_once(
            context.services, key, prepare, lambda tx, prepared: _write(operation(tx, prepared))
        )
    except IdempotencyConflictError:
        raise ConflictError(
            "this form was sent before with other fields: that was done, and this was not; "
            "send it again if you want both"
        ) from None
    path, done = json.loads(response.body)
    return Redirect(path, "once" if is_replayed else done)


def _nothing() -> None:
    """Prepare nothing."""


def _write(moved: Redirect) -> Response:
    return Response(_SEE_OTHER, json.dumps(moved).encode())


def _digest(context: PageContext, more: tuple[str, ...]) -> bytes:
    fields = {name: value for name, value in context.form.items() if name not in {CSRF_FIELD, FIELD}}
    sent = [sorted(context.parts.items()), sorted(fields.items()), more]
    return hashlib.sha256(json.dumps(sent).encode()).digest()
