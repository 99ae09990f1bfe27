"""Changes that a person has made to a license that a source has issued: they stay."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from licserver.database.repositories import Repositories
from licserver.database.repositories.audit import AuditFilter, Entry
from licserver.domain.records import ActorKind, IssuedLicense
from licserver.services.context import Service
from licserver.services.license_lookups import audit_object
from licserver.services.sales.rows import load_applied
from licserver.shops.changes import REVOKED

_MAX_LINES: Final = 1_000  # of the audit log about a license


class ManualChange(NamedTuple):
    """A change by a person that a source would undo, and its line in the audit log."""

    text: str
    by: Entry | None


class ManualChangeService(Service):
    """Lists the changes of persons to sold licenses."""

    def list_changes(self, license_: IssuedLicense) -> list[ManualChange]:
        """Return what the source of a license would change, had a person not changed it by hand."""
        repositories, subscription_id = self._context.repositories, license_.subscription_id
        sales = repositories.sales
        sale, changes = sales.find_sold(license_.id), list[ManualChange]()
        if sale is not None and sale.applied is not None:
            values = load_applied(sale.applied).kept
            lines = _list_audit_entries(repositories, audit_object(license_)) if values else []
            for name, value in values.items():
                if name == REVOKED:
                    line = _find_line(lines, lambda entry: entry.action == "license.reinstate")
                    changes.append(ManualChange(f"revoked: {value}", line))
                else:
                    text = f"{name.replace('_', ' ')}: {'none' if value is None else value}"
                    changes.append(ManualChange(text, _find_line(lines, partial(_changes, name))))
        if subscription_id is not None:
            ends = sales.list_applied_ends(subscription_id)
            if ends and license_.subscription_ended_at not in ends:
                lines = _list_audit_entries(repositories, ("subscription", subscription_id))
                line = next(iter(lines), None)
                changes += [
                    ManualChange(f"end of the subscription: {end:%Y-%m-%d %H:%M} UTC", line) for end in ends
                ]
        return changes


def is_changed_by_hand(repositories: Repositories, license_: IssuedLicense, term: str) -> bool:
    """Return whether a person has changed a term of a license."""
    return any(_changes(term, line) for line in _list_audit_entries(repositories, audit_object(license_)))


def _list_audit_entries(repositories: Repositories, object_: tuple[str, str]) -> list[Entry]:
    """Return the changes of an object by persons, the newest first."""
    lines = repositories.audit.list_page(AuditFilter(object=object_), None, _MAX_LINES)
    return [line for line in lines if line.actor.kind is not ActorKind.SYSTEM]


def _changes(term: str, line: Entry) -> bool:
    return term in line.details


def _find_line(lines: Iterable[Entry], matches: Callable[[Entry], bool]) -> Entry | None:
    return next(filter(matches, lines), None)
