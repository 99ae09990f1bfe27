"""What can be done to a license, each a button or a small form on its page."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from licserver.domain.records import Environment
from licserver.web.console.forms import is_touched, read_day, read_slots
from licserver.web.console.page_context import Page, PageContext, Redirect, Reply
from licserver.web.console.pages import licenses


def _back(visit: PageContext, done: str) -> Redirect:
    return Redirect(f"/console/licenses/{visit.parts['id']}", done)


def free(visit: PageContext) -> Redirect:
    """Free one slot."""
    visit.services.licenses.free_slot(
        visit.parts["id"], Environment(visit.given("domain"), visit.given("ip"))
    )
    return _back(visit, "freed")


def revoke(visit: PageContext) -> Redirect:
    """Revoke it."""
    visit.services.licenses.revoke(visit.parts["id"], visit.given("reason") or None)
    return _back(visit, "revoked")


def reinstate(visit: PageContext) -> Redirect:
    """Take the revocation back."""
    visit.services.licenses.reinstate(visit.parts["id"])
    return _back(visit, "reinstated")


def change(visit: PageContext) -> Redirect:
    """Change the terms; what the form does not send stays, and so does what was not touched in it.

    Raises:
        Conflict: when somebody else has changed meanwhile what is changed here.
    """
    touched = {name: term for name, term in _TERMS.items() if is_touched(visit.form, name)}
    changes = {field: read(visit.given(name)) for name, (field, read) in touched.items()}
    was = {
        field: read(visit.given(f"was-{name}"))
        for name, (field, read) in touched.items()
        if f"was-{name}" in visit.form
    }
    visit.services.licenses.change(visit.parts["id"], was=was, **changes)  # type: ignore[arg-type] # read by name
    return _back(visit, "changed")


def allow(visit: PageContext) -> Redirect:
    """Put an entry on the allow-list."""
    visit.services.licenses.allow(visit.parts["id"], visit.given("entry"))
    return _back(visit, "allowed")


def disallow(visit: PageContext) -> Redirect:
    """Take an entry off the allow-list."""
    visit.services.licenses.disallow(visit.parts["id"], visit.given("entry"))
    return _back(visit, "disallowed")


def reveal(visit: PageContext) -> Page:
    """Show the key, this once: it stands in no address, and a page that is loaded again does not have it."""
    return licenses.draw(visit, key=visit.services.licenses.reveal(visit.parts["id"]))


_TERMS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = MappingProxyType(
    {
        "slots": ("slots", read_slots),
        "expires": ("expires_on", read_day),
        "support": ("support_until", read_day),
        "email": ("customer_email", str),
        "note": ("note", str),
    }
)
"""Fields of the form: what of the license each is, and how it is read."""

ALL: Final[Mapping[str, Callable[[PageContext], Reply]]] = MappingProxyType(
    {
        "free": free,
        "revoke": revoke,
        "reinstate": reinstate,
        "change": change,
        "allow": allow,
        "disallow": disallow,
        "reveal": reveal,
    }
)
