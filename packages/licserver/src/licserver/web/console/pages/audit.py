"""The audit log: who did what."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlencode

from licserver.database.repositories.audit import Entry
from licserver.domain.records import ActorKind
from licserver.services import MAX_PAGE, AuditFilter
from licserver.services import Page as Some
from licserver.services.phrases import say_details
from licserver.web.console.page_context import Csv, Page, PageContext, in_pages

_SHOWN: Final = 50

ACTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "license.issue": "Issued",
        "license.reveal": "Saw the key",
        "license.change": "Changed the terms",
        "license.revoke": "Revoked",
        "license.reinstate": "Reinstated",
        "license.deactivate": "Freed a slot",
        "license.import": "Imported licenses",
        "license.export": "Exported licenses",
        "license.sweep": "Swept unused activations",
        "product.add": "Added the product",
        "product.change": "Changed the product",
        "release.publish": "Published",
        "release.renew": "Renewed the signature",
        "release.withdraw": "Withdrew",
        "subscription.end": "Ended the subscription",
        "subscription.resume": "Let the subscription go on",
        "token.create": "Made the API token",
        "token.revoke": "Revoked the API token",
        "user.add": "Added the user",
        "user.password": "Changed the password",
        "user.remove": "Removed the user",
        "token.refused": "Refused an API token",
        "token.forbidden": "Refused a change by an API token that may only read",
        "user.sign_in": "Signed in",
        "user.sign_in_failed": "Wrong password",
        "user.sign_in_throttled": "Refused sign-ins after too many attempts",
        "user.code_failed": "Wrong code of the second factor",
        "user.second_factor_on": "Set up the second factor",
        "user.second_factor_off": "Removed the second factor",
        "user.second_factor_reset": "Reset the second factor",
        "user.recovery_code": "Used a recovery code",
        "user.sign_out": "Signed out",
        "list.export": "Took a list as a file",
        "backup.write": "Made a backup",
        "sweep": "Swept what was old",
        "secret.rotate": "Renewed the secret of links",
        "signing_key.add": "Added the signing key",
        "signing_key.retire": "Retired the signing key",
    }
)
"""Actions in words; one that has none is shown by its name."""

_KINDS: Final = (
    (ActorKind.USER, "user"),
    (ActorKind.TOKEN, "API token"),
    (ActorKind.CLI, "command line"),
    (ActorKind.SYSTEM, "the server itself"),
)


def show(visit: PageContext) -> Page:
    """Show the log, the latest first."""
    which = _filter(visit)
    found = visit.services.audit.list_page(which, visit.asked("after") or None, _SHOWN)
    asked = {name: value for name in ("actor", "kind", "license") if (value := visit.asked(name))}
    return Page(
        "audit.html",
        {
            "entries": [draw_entry(entry) for entry in found.items],
            "search": {name: visit.asked(name) for name in ("actor", "kind", "license")},
            "kinds": [(kind.value, label) for kind, label in _KINDS],
            "further": None
            if found.cursor is None
            else f"/console/audit?{urlencode({**asked, 'after': found.cursor})}",
            "export": "/console/audit.csv" + (f"?{urlencode(asked)}" if asked else ""),
        },
    )


def export(visit: PageContext) -> Csv:
    """Give the log as a file."""
    which = _filter(visit)

    def read(cursor: str | None) -> Some[Entry]:
        return visit.services.audit.list_page(which, cursor, MAX_PAGE)

    rows = ([_cells(entry) for entry in some] for some in in_pages(read))
    return Csv("audit", ("at", "by way of", "who", "action", "kind", "of what", "details"), rows)


def draw_entry(entry: Entry) -> dict[str, Any]:
    """Put a line into words."""
    return {
        "at": entry.at,
        "actor": entry.actor.name
        if entry.actor.kind is ActorKind.USER
        else f"{entry.actor.kind}: {entry.actor.name}",
        "action": ACTIONS.get(entry.action, entry.action),
        "subject": entry.object_id[:8] if entry.object_kind == "license" else entry.object_id,
        "link": _link(entry.object_kind, entry.object_id),
        "details": say_details(entry.details),
    }


def _link(kind: str, name: str) -> str | None:
    match kind:
        case "license":
            return f"/console/licenses/{quote(name)}"
        case "product":
            return f"/console/products/{quote(name)}"
        case "release":
            slug, _, version = name.partition("/")
            return f"/console/products/{quote(slug)}/releases/{quote(version)}"
        case _:
            return None


def _cells(entry: Entry) -> tuple[Any, ...]:
    kind, name = entry.actor
    return (
        entry.at,
        kind.value,
        name,
        entry.action,
        entry.object_kind,
        entry.object_id,
        say_details(entry.details),
    )


def _filter(visit: PageContext) -> AuditFilter:
    name, kind, license_id = (visit.asked(field) for field in ("actor", "kind", "license"))
    return AuditFilter(
        object=("license", license_id) if license_id else None,
        kind=ActorKind(kind) if kind in set(ActorKind) else None,
        name=name or None,
    )
