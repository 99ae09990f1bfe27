"""The pages, a module each: plain functions of a `PageContext` that call `services`.

Here is what they take and return, and how a form is carried out once.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from licserver.database.repositories.tokens import IdempotencyKey
from licserver.domain.records import ActorKind
from licserver.errors import ConflictError, InvalidInputError
from licserver.services import IdempotencyConflictError, Services
from licserver.services import Page as Some
from licserver.services.licenses import MAX_REASON
from licserver.services.tokens import Response, run_once
from licserver.services.users import SignedIn
from licserver.web.console.sessions import CSRF_FIELD

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_FORM_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")


class Page:
    """A template and its values."""

    def __init__(self, template: str, **values: Any) -> None:
        self.template, self.values = template, values


class Redirect(NamedTuple):
    """A redirect to the path `to`, whose page shows the message `done` (`formatting.DONE`)."""

    to: str
    done: str = ""


class Csv(NamedTuple):
    """A list as a file: name without ending, header, and rows that are read as the browser takes them."""

    name: str
    columns: Sequence[str]
    pages: Iterable[Sequence[Sequence[Any]]]


class TextFile(NamedTuple):
    """A text that the browser saves."""

    name: str
    text: str


class PageContext(NamedTuple):
    """A request of a user who is signed in.

    Args:
        services: Acting as `user`.
        path: Of the request.
        page: The path of the page, also while a form on it is carried out.
        parts: The variable parts of the path, by name.
        query: Of a name that is given twice, the last.
        form: The same; empty unless something was posted.
        problem: Why the form could not be carried out; the page is shown again with it.
        once: The id of its form (`do_once`); None for a new one.
    """

    services: Services
    user: SignedIn
    now: datetime
    path: str
    page: str
    parts: Mapping[str, str] = _NOTHING
    query: Mapping[str, str] = _NOTHING
    form: Mapping[str, str] = _NOTHING
    problem: str | None = None
    once: str | None = None

    def from_query(self, name: str) -> str:
        """Return a value of the query, stripped; empty if it is missing."""
        return self.query.get(name, "").strip()

    def from_form(self, name: str) -> str:
        """Return a value of the form, stripped; empty if it is missing."""
        return self.form.get(name, "").strip()

    def typed(self, *names: str) -> dict[str, str]:
        """Return values of the form, as the page shows them again if it could not be carried out."""
        return {name: self.from_form(name) for name in names}

    @property
    def after(self) -> str | None:
        """The cursor of the page of a list; None for the first one."""
        return self.from_query("after") or None

    def further(self, cursor: str | None, **query: str | None) -> str | None:
        """Return the address of the next page of a list; None after the last one."""
        return cursor and with_query(self.page, {**query, "after": cursor})

    def back(self, done: str) -> Redirect:
        """Return to the page on which the form is, with the message `done`."""
        return Redirect(self.page, done)

    def ask(
        self, question: str, effects: Sequence[str], button: str, *, asks_reason: bool = False
    ) -> Page | None:
        """Return the page that asks before something is destroyed, and sends the same form again.

        None if the form came from that page.
        """
        if self.from_form("sure") == "yes":
            return None
        left_out = {CSRF_FIELD, "sure", *(["reason"] if asks_reason else [])}
        return Page(
            "confirm.html",
            question=question,
            effects=effects,
            button=button,
            action=self.path,
            back=self.page,
            fields={name: value for name, value in self.form.items() if name not in left_out},
            asks_reason=asks_reason,
            reason=self.from_form("reason"),
            max_reason=MAX_REASON,
        )


Reply = Page | Redirect | Csv | TextFile
Show = Callable[[PageContext], Reply]
Act = Callable[[PageContext], Redirect]
Actions = Mapping[str, Show]


def act(done: str, call: Callable[[PageContext], object]) -> Act:
    """Make an action of a call, after which its page shows the message `done`."""

    def carry_out(context: PageContext) -> Redirect:
        call(context)
        return context.back(done)

    return carry_out


def in_pages(read: Callable[[str | None], Some[Any]]) -> Iterator[Sequence[Any]]:
    """Read a list to its end, page by page; the first one now, so that a wrong query fails early."""
    first = read(None)

    def rest() -> Iterator[Sequence[Any]]:
        page = first
        yield page.items
        while page.cursor is not None:
            page = read(page.cursor)
            yield page.items

    return rest()


def with_query(path: str, query: Mapping[str, str | None]) -> str:
    """Return an address with the parameters that are not empty."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


# --- forms that create something, carried out once however often they are sent (D-130) --------


def read_form_id(form: Mapping[str, str]) -> str | None:
    """Return the id of a form, or None if it has no valid one."""
    found = form.get("once", "")
    return found if _FORM_ID.fullmatch(found) else None


def once(act: Act) -> Act:
    """Make an action, all of which is one transaction, run once for each form."""
    return lambda context: do_once(context, lambda tx, _: act(context._replace(services=tx)))


def do_once(
    context: PageContext,
    operation: Callable[[Services, Any], Redirect],
    prepare: Callable[[], object] = lambda: None,
    more: Sequence[str] = (),
) -> Redirect:
    """Carry out a form, or redirect to the result of the first time.

    Args:
        operation: Runs within a transaction, with what `prepare` returned.
        prepare: Slow work before the transaction.
        more: What was sent beside the fields.
    """
    form_id = read_form_id(context.form)
    if form_id is None:
        raise InvalidInputError("this form is of an outdated page; look it through, and send it again")
    fields = {name: value for name, value in context.form.items() if name not in {CSRF_FIELD, "once"}}
    sent = json.dumps([sorted(context.parts.items()), sorted(fields.items()), list(more)])
    digest = hashlib.sha256(sent.encode()).digest()
    key = IdempotencyKey(ActorKind.USER, context.user.user_id, form_id, digest)

    def operate(tx: Services, prepared: object) -> Response:
        return Response(303, json.dumps(operation(tx, prepared)).encode())

    try:
        response, is_replayed = run_once(context.services, key, prepare, operate)
    except IdempotencyConflictError:
        raise ConflictError(
            "this form was sent before with other fields: that was done, and this was not; "
            "send it again if you want both"
        ) from None
    path, done = json.loads(response.body)
    return Redirect(path, "once" if is_replayed else done)
