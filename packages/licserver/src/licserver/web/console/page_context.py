"""The argument of a page function, and what it may return."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from licserver.services import Page as Some
from licserver.services import Services
from licserver.services.accounts import SignedIn

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class PageContext(NamedTuple):
    """A request of a user who is signed in.

    Args:
        services: Acting as `user`.
        now: The instant of the request.
        parts: The variable parts of the path, by name.
        query: Of a name that is given twice, the last.
        form: The same; empty unless something was posted.
        problem: Why the form could not be carried out; the page is shown again with it.
        once: The id of its form (`idempotency`); None for a new one.
    """

    services: Services
    user: SignedIn
    now: datetime
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


class File(NamedTuple):
    """An uploaded file: where it is for now, its validated name, its digest."""

    path: Path
    name: str
    sha256: bytes


class Page(NamedTuple):
    """A template and its values."""

    template: str
    values: Mapping[str, Any]


class Redirect(NamedTuple):
    """A redirect to the path `to`, whose page shows the message `done` (`messages.DONE`)."""

    to: str
    done: str = ""


class Csv(NamedTuple):
    """A list as a file.

    Args:
        name: The file's, without its ending.
        columns: The header.
        pages: The rows, some at a time; read as the browser takes them.
    """

    name: str
    columns: Sequence[str]
    pages: Iterable[Sequence[Sequence[Any]]]


Reply = Page | Redirect | Csv


def in_pages(read: Callable[[str | None], Some[Any]]) -> Iterator[Sequence[Any]]:
    """Read a list to its end, page by page; the first one now, so that a wrong query fails early."""
    first = read(None)

    def rest() -> Iterator[Sequence[Any]]:
        page = first
        while True:
            yield page.items
            if page.cursor is None:
                return
            page = read(page.cursor)

    return rest()
