"""The audit log."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from licserver.database.repositories.audit import AuditFilter, Entry
from licserver.domain.records import ActorKind
from licserver.domain.text import format_details
from licserver.services.lists import MAX_PAGE
from licserver.web.console.formatting import license_name
from licserver.web.console.pages import Csv, HtmlPage, PageContext, in_pages, with_query

ACTIONS: Final[Mapping[str, str]] = {
    "customer.export": "Exported a customer’s data",
    "customer.erase": "Erased a customer’s data",
    "license.issue": "Issued",
    "license.reveal": "Revealed the key",
    "license.mail": "Mailed the key to the customer",
    "license.change": "Changed the terms",
    "license.revoke": "Revoked",
    "license.reinstate": "Reinstated",
    "license.reissue": "Replaced the key",
    "license.deactivate": "Freed a slot",
    "license.move": "The customer freed a slot",
    "license.file": "Issued a license file",
    "license.take_back": "Took back a floating seat",
    "license.import": "Imported licenses",
    "license.export": "Exported licenses",
    "license.sweep": "Deleted unused activations",
    "product.add": "Added the product",
    "product.change": "Changed the product",
    "plan.add": "Added the plan",
    "plan.change": "Changed the plan",
    "plan.remove": "Removed the plan",
    "release.publish": "Published",
    "release.promote": "Changed the channel of",
    "release.renew": "Renewed the signature",
    "release.withdraw": "Withdrew",
    "release.rollout": "Changed the rollout",
    "release.security": "Changed the security notice of",
    "release.wordpress": "Changed what WordPress shows of",
    "subscription.end": "Ended the subscription",
    "subscription.resume": "Resumed the subscription",
    "subscription.change": "Changed the end of the subscription",
    "source.add": "Added the source of sales",
    "source.answer": "Answered what a sale needed",
    "source.change": "Changed the source of sales",
    "source.map": "Mapped a product of the shop",
    "source.unmap": "Removed a mapping",
    "source.remove": "Removed the source of sales",
    "source.replay": "Repeated a delivery",
    "token.create": "Created the API token",
    "mail.retry": "Sent the mail again",
    "webhook.add": "Added the webhook endpoint",
    "webhook.rotate": "Gave another secret to the webhook endpoint",
    "webhook.disable": "Disabled the webhook endpoint",
    "webhook.enable": "Enabled the webhook endpoint",
    "webhook.remove": "Removed the webhook endpoint",
    "webhook.redeliver": "Sent webhooks again",
    "token.revoke": "Revoked the API token",
    "user.add": "Added the user",
    "user.role": "Changed the role",
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
    "list.export": "Exported a list",
    "backup.write": "Made a backup",
    "backup.delete": "Deleted a backup",
    "sweep": "Deleted old data",
    "clock.accept": "Accepted the clock of the machine",
    "secret.copy": "Copied the secrets to a machine",
    "secret.rotate": "Rotated the secret of links",
    "signing_key.add": "Added the signing key",
    "signing_key.retire": "Retired the signing key",
}
"""Labels of actions; an action without a label is shown by its name."""

_DIGEST: Final = re.compile(r"[0-9a-f]{32,}|[A-Za-z0-9_-]{43}")

_KINDS: Final = {
    ActorKind.USER: "user",
    ActorKind.TOKEN: "API token",
    ActorKind.CLI: "command line",
    ActorKind.SYSTEM: "the server itself",
}


def show(context: PageContext) -> HtmlPage:
    """Show the log, the latest entry first."""
    page = context.services.audit.list_page(_filter(context), context.after, 50)
    search = {name: context.from_query(name) for name in ("actor", "kind", "license")}
    return HtmlPage(
        "audit.html",
        entries=_describe_all(context, page.items),
        search=search,
        kinds=_KINDS,
        further=context.further(page.cursor, **search),
        export=with_query("/console/audit.csv", search),
    )


def export(context: PageContext) -> Csv:
    """Export the log."""
    which = _filter(context)
    pages = in_pages(lambda cursor: context.services.audit.list_page(which, cursor, MAX_PAGE))
    rows = ([_cells(entry) for entry in entries] for entries in pages)
    return Csv("audit", ("at", "via", "actor", "action", "kind", "object", "details"), rows)


def _cells(entry: Entry) -> tuple[Any, ...]:
    (kind, name), details = entry.actor, format_details(entry.details)
    return entry.at, kind.value, name, entry.action, entry.object_kind, entry.object_id, details


def _describe_all(context: PageContext, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Describe entries, with the names of the licenses."""
    ids = {entry.object_id for entry in entries if entry.object_kind == "license"}
    licenses = {license_.id.hex(): license_ for license_ in context.services.licenses.get_all(ids)}
    described = []
    for entry in entries:
        values = describe_entry(entry)
        if (license_ := licenses.get(entry.object_id)) is not None:
            values["subject"] = license_name(license_)
            values["about"] = ", ".join(filter(None, (license_.product_name, license_.customer_email)))
        described.append(values)
    return described


def describe_entry(entry: Entry) -> dict[str, Any]:
    """Return the values of an entry for the template, with ids and digests separately."""
    kind, name = entry.actor
    digests = {name: value for name, value in entry.details.items() if _is_digest(value)}
    words = {name: value for name, value in entry.details.items() if name not in digests}
    shown_id = (
        {"id": entry.object_id} if entry.object_kind == "license" and _is_digest(entry.object_id) else {}
    )
    return {
        "at": entry.at,
        "actor": name if kind is ActorKind.USER else f"{kind}: {name}",
        "action": ACTIONS.get(entry.action, entry.action),
        "subject": "" if entry.object_id == "-" else entry.object_id,
        "about": "",
        "link": _link(entry.object_kind, entry.object_id),
        "details": format_details(words),
        "digests": format_details({**shown_id, **digests}),
    }


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _link(kind: str, name: str) -> str | None:
    match kind:
        case "license" if _is_digest(name):
            return f"/console/licenses/{quote(name)}"
        case "product":
            return f"/console/products/{quote(name)}"
        case "release":
            slug, _, version = name.partition("/")
            return f"/console/products/{quote(slug)}/releases/{quote(version)}"
        case _:
            return None


def _filter(context: PageContext) -> AuditFilter:
    name, kind, license_id = (context.from_query(field) for field in ("actor", "kind", "license"))
    return AuditFilter(
        object=("license", license_id) if license_id else None,
        kind=ActorKind(kind) if kind in set(ActorKind) else None,
        name=name or None,
    )
