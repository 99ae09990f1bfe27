"""Which page is at which address, and what can be posted to it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from licserver.web.console.idempotency import once
from licserver.web.console.page_context import File, PageContext, Reply
from licserver.web.console.pages import account, audit, changes, licenses, overview, products, releases

Show = Callable[[PageContext], Reply]
Take = Callable[[PageContext, File], Reply]


class Address(NamedTuple):
    """One address.

    Args:
        page: What is there.
        posts: What can be done to it, each at its name below the address.
    """

    page: Show
    posts: Mapping[str, Show] = MappingProxyType({})


ROUTES: Final[Mapping[str, Address]] = MappingProxyType(
    {
        "/console": Address(overview.show),
        "/console/account": Address(account.show),  # its form is the door's: it hashes passwords
        "/console/licenses": Address(licenses.search, {"find": licenses.find}),
        "/console/licenses.csv": Address(licenses.export),
        "/console/licenses/issue": Address(licenses.ask_terms, {"new": once(licenses.issue)}),
        "/console/licenses/{id}": Address(licenses.show, changes.ALL),
        "/console/licenses/{id}/activations.csv": Address(licenses.export_activations),
        "/console/products": Address(products.show_all, {"add": once(products.add)}),
        "/console/products.csv": Address(products.export),
        "/console/products/{slug}": Address(
            products.show, {"rename": products.rename, "rules": products.change_rules}
        ),
        "/console/products/{slug}/releases.csv": Address(releases.export),
        "/console/products/{slug}/releases/{version}": Address(
            releases.show, {"withdraw": releases.withdraw}
        ),
        "/console/products/{slug}/releases/{version}/downloads.csv": Address(releases.export_holders),
        "/console/audit": Address(audit.show),
        "/console/audit.csv": Address(audit.export),
    }
)

UPLOADS: Final[Mapping[str, tuple[Show, Take]]] = MappingProxyType(
    {"/console/products/{slug}/releases": (products.show, releases.publish)}
)
"""Forms with a file: the page that shows them again, and what takes them."""

UPLOAD_FIELDS: Final = frozenset({"once", "version", "changelog"})
"""Of those forms, beside the file. The CSRF token is in the query: it is compared before the form is read."""
