"""What an operation of the admin API is: a function with a docstring, told apart by method and path.

Each is a few lines between what was sent and the vendor's own operation; how a request gets here is `gate`'s.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from licserver.domain.records import Scope
from licserver.errors import Unknown
from licserver.services import Page, Services
from licserver.services.license_terms import has_id_shape
from licserver.web.admin import schemas

READ, WRITE = Scope.READ, Scope.WRITE

From = TypeVar("From")
To = TypeVar("To")
Gives = TypeVar("Gives", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call:
    """A request that has been read.

    Args:
        services: Acting as the token.
        path: What stands in the address, decoded.
        query: Of the operation's `query`.
        body: Of the operation's `body`.
    """

    services: Services
    path: Mapping[str, str]
    query: Any
    body: Any

    @property
    def license_id(self) -> str:
        """The license that the address names: by its id alone, for addresses are logged.

        Raises:
            Unknown: for anything else.
        """
        if not has_id_shape(self.path["id"]):
            raise Unknown("there is no such license; an address names it by its id of 32 digits")
        return self.path["id"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Args:
        method: Of HTTP.
        path: Below the root, with names in braces.
        scope: What the token must be good for.
        run: Does it, on a thread; its name, its docstring and what it returns are told to programs.
        query: What may stand behind the question mark.
        body: What is sent as JSON; None for nothing.
        creates: Whether it makes something new: 201, and an ``Idempotency-Key`` is minded.
    """

    method: str
    path: str
    scope: Scope
    run: Callable[[Call], BaseModel]
    query: type[schemas.RequestModel]
    body: type[schemas.RequestModel] | None
    creates: bool


OPERATIONS: Final[list[Operation]] = []
"""All that were made."""


def operation(
    method: str,
    path: str,
    scope: Scope,
    *,
    query: type[schemas.RequestModel] = schemas.Nothing,
    body: type[schemas.RequestModel] | None = None,
    creates: bool = False,
) -> Callable[[Callable[[Call], Gives]], Callable[[Call], Gives]]:
    """Make an operation of a function; as `Operation`."""

    def note(run: Callable[[Call], Gives]) -> Callable[[Call], Gives]:
        OPERATIONS.append(Operation(method, path, scope, run, query, body, creates))
        return run

    return note


def page(found: Page[From], show: Callable[[From], To]) -> dict[str, Any]:
    """Show a page of the vendor's."""
    return {"items": [show(one) for one in found.items], "next": found.cursor}
