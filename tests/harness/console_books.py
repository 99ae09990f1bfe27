"""What tests of the console read beside its pages."""

import csv
import io
from typing import Any

from licserver.database.repositories.audit import AuditFilter

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}{% raw %}'
"""What nobody's browser may run."""


def audit_log(world: Any, page: str) -> list[tuple[str, str, str]]:
    """What the audit log holds of a license: who, by which way, and what; the latest first."""
    about = AuditFilter(object=("license", page.rpartition("/")[2]))
    return [
        (entry.actor.kind.value, entry.actor.name, entry.action)
        for entry in world.services.audit.list_page(about).items
    ]


def rows(text: str) -> list[list[str]]:
    """Read a file of CSV."""
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:], newline="")))
