"""The pages of the console, a module each: plain functions of a `PageContext` that call `services`.

This module has their arguments and results, and the idempotent execution of forms.
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
from licserver.domain.records import ActorKind, Product
from licserver.errors import ConflictError, InvalidInputError
from licserver.services.installation import Services
from licserver.services.licenses import MAX_REASON_CHARS
from licserver.services.lists import Page
from licserver.services.tokens import IdempotencyConflictError, Response
from licserver.services.users import SignedIn
from licserver.web.console.sessions import CSRF_FIELD

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_FORM_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")


class HtmlPage:
    """A template and its values."""

    def __init__(self, template: str, **values: Any) -> None:
        self.template, self.values = template, values


class Redirect(NamedTuple):
    """A redirect to the path `to`, whose page shows the message `done` (`formatting.DONE`)."""

    to: str
    done: str = ""


class Csv(NamedTuple):
    """A list as a CSV file: its name without ending, its header, and pages of rows that are read lazily."""

    name: str
    columns: Sequence[str]
    pages: Iterable[Sequence[Sequence[Any]]]


class TextFile(NamedTuple):
    """A text that the browser saves."""

    name: str
    text: str


class PageContext(NamedTuple):
    """A request of a signed-in user, the argument of page functions.

    1. `handlers.Console` authenticates a request, and calls a page function on a thread.
    2. The function reads `from_query` and `from_form`, and calls `services` on behalf of `user`.
    3. It returns an `HtmlPage`, a `Redirect`, a `Csv` or a `TextFile`.
    4. If it raises an `InvalidInputError`, the page of the form is shown again with `problem`.

    Example::

        def rename(context: PageContext) -> Redirect:
            context.services.products.rename(context.parts["slug"], context.from_form("name"))
            return context.back("renamed")

    Args:
        services: The services, acting as `user`.
        path: The path of the request.
        page: The path of the page, also for the forms on it.
        parts: The variable parts of the path, by name.
        query: The query's parameters; of a repeated name the last.
        form: The form's fields; of a repeated name the last; empty for a GET.
        problem: The message of a failed form.
        once: The id of the form (`do_once`); None for a new id.
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
        """Return values of the form, for a page that shows a failed form again."""
        return {name: self.from_form(name) for name in names}

    @property
    def after(self) -> str | None:
        """The cursor of the page of a list; None for the first page."""
        return self.from_query("after") or None

    def further(self, cursor: str | None, **query: str | None) -> str | None:
        """Return the address of the next page of a list; None after the last page."""
        return cursor and with_query(self.page, {**query, "after": cursor})

    def back(self, done: str) -> Redirect:
        """Return a redirect to the form's page, with the message `done`."""
        return Redirect(self.page, done)

    def ask(
        self, question: str, effects: Sequence[str], button: str, *, asks_reason: bool = False
    ) -> HtmlPage | None:
        """Return the page that asks to confirm a destructive form; None for a confirmed form."""
        if self.from_form("sure") == "yes":
            return None
        left_out = {CSRF_FIELD, "sure", *(["reason"] if asks_reason else [])}
        return HtmlPage(
            "confirm.html",
            question=question,
            effects=effects,
            button=button,
            action=self.path,
            back=self.page,
            fields={name: value for name, value in self.form.items() if name not in left_out},
            asks_reason=asks_reason,
            reason=self.from_form("reason"),
            max_reason=MAX_REASON_CHARS,
        )


Reply = HtmlPage | Redirect | Csv | TextFile
Show = Callable[[PageContext], Reply]
Act = Callable[[PageContext], Redirect]
Actions = Mapping[str, Show]


def act(done: str, call: Callable[[PageContext], object]) -> Act:
    """Return an action that calls a function and redirects to its page with the message `done`."""

    def carry_out(context: PageContext) -> Redirect:
        call(context)
        return context.back(done)

    return carry_out


def in_pages(read: Callable[[str | None], Page[Any]]) -> Iterator[Sequence[Any]]:
    """Read a list to its end, page by page; the first page at once, so that a wrong query fails early."""
    first = read(None)

    def rest() -> Iterator[Sequence[Any]]:
        page = first
        yield page.items
        while page.cursor is not None:
            page = read(page.cursor)
            yield page.items

    return rest()


def list_plans(services: Services, products: Iterable[Product]) -> list[tuple[str, list[str]]]:
    """Return the name of each product, and the names of its plans."""
    return [
        (product.name, [plan.name for plan in services.plans.list_all(product.slug)]) for product in products
    ]


def with_query(path: str, query: Mapping[str, str | None]) -> str:
    """Return an address with the parameters that are not empty."""
    present = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(present)}" if present else path


# --- idempotent forms (D-130) -----------------------------------------------------------------


def read_form_id(form: Mapping[str, str]) -> str | None:
    """Return the id of a form, or None if it is missing or malformed."""
    form_id = form.get("once", "")
    return form_id if _FORM_ID.fullmatch(form_id) else None


def once(act: Act) -> Act:
    """Return an action that runs once for each form, in a single transaction."""
    return lambda context: do_once(context, lambda tx, _: act(context._replace(services=tx)))


def do_once(
    context: PageContext,
    operation: Callable[[Services, Any], Redirect],
    prepare: Callable[[], object] = lambda: None,
    more: Sequence[str] = (),
) -> Redirect:
    """Carry out a form once; redirect a repeated form to the result of the first.

    Args:
        operation: Runs within a transaction, with the result of `prepare`.
        prepare: Slow work before the transaction.
        more: Further values that identify the form, beside its fields.
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
        response, is_replayed = context.services.run_once(key, prepare, operate)
    except IdempotencyConflictError:
        raise ConflictError(
            "this form was sent before with other fields: that was done, and this was not; "
            "send it again if you want both"
        ) from None
    path, done = json.loads(response.body)
    return Redirect(path, "once" if is_replayed else done)
