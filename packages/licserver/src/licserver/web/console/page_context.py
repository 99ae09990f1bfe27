"""What a page is told, and what it may answer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from licserver.services import Page as Some
from licserver.services import Services
from licserver.services.users import SignedIn

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class PageContext(NamedTuple):
    """One request of somebody who is signed in.

    Args:
        services: What can be done; on behalf of `who`.
        who: The user.
        now: The instant of the request.
        parts: The parts of the path that a route names.
        query: As sent; of a name that comes twice, the last.
        form: The same; empty unless something was posted.
        problem: Why what was posted could not be done; the page is shown again with it.
        once: The id that its form has (`console.once`); None for a new one.
    """

    services: Services
    who: SignedIn
    now: datetime
    parts: Mapping[str, str] = _NOTHING
    query: Mapping[str, str] = _NOTHING
    form: Mapping[str, str] = _NOTHING
    problem: str | None = None
    once: str | None = None

    def asked(self, name: str) -> str:
        """One value of the query, without blanks around it; empty when it is not there."""
        return self.query.get(name, "").strip()

    def given(self, name: str) -> str:
        """One value of the form, without blanks around it; empty when it is not there."""
        return self.form.get(name, "").strip()


class File(NamedTuple):
    """A file that was uploaded.

    Args:
        path: Where it lies for now.
        name: What the browser calls it, checked.
        sha256: Its digest.
    """

    path: Path
    name: str
    sha256: bytes


class Page(NamedTuple):
    """A template and what it shows."""

    template: str
    context: Mapping[str, Any]


class Redirect(NamedTuple):
    """Something was done; the browser goes on to another page, which says so.

    Args:
        to: Its path.
        done: Which of `words.DONE` it says.
    """

    to: str
    done: str = ""


class Csv(NamedTuple):
    """A list as a file.

    Args:
        name: Of the file, without its ending.
        columns: What stands in the first line.
        pages: The rows, some at a time; asked for as the browser takes them.
    """

    name: str
    columns: Sequence[str]
    pages: Iterable[Sequence[Sequence[Any]]]


Reply = Page | Redirect | Csv


def in_pages(read: Callable[[str | None], Some[Any]]) -> Iterator[Sequence[Any]]:
    """Read a list to its end, page by page; the first one now, so that a wrong question is told as one."""
    first = read(None)

    def rest() -> Iterator[Sequence[Any]]:
        page = first
        while True:
            yield page.items
            if page.cursor is None:
                return
            page = read(page.cursor)

    return rest()
