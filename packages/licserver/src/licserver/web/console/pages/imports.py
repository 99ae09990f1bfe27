"""Import of licenses from a file: upload, preview, confirmation. For owners."""

import io
import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from licserver.domain.text import plural
from licserver.errors import InvalidInputError
from licserver.protocol.foreign_exports import PRESETS
from licserver.protocol.license_files import FORMATS, read_rows
from licserver.security.kept_uploads import keep_upload, take_upload
from licserver.services.transfer import (
    Action,
    Existing,
    LicenseImport,
    PlannedLine,
    choose_format,
    make_conversion,
)
from licserver.web.console.formatting import MAX_ISSUED, number
from licserver.web.console.pages import Page, PageContext, Redirect, Reply, Show
from licserver.web.uploads import MAX_TEXT, TextUpload

FIELDS: Final = ("preset", "format", "existing", "slots", "products", "columns")
"""Of the form, beside the file: the options of `licserver import`."""

SHOWN: Final = 100
"""Lines of the preview, beside those with errors."""

_EXISTING: Final = {
    Existing.REFUSE: "refuse the line",
    Existing.KEEP: "leave the license as it is",
    Existing.CHANGE: "give the license the terms of the file",
}


def show(context: PageContext) -> Page:
    """Show the form for a file."""
    return _page(context, form={name: context.form.get(name, "") for name in FIELDS})


def preview(context: PageContext, upload: TextUpload) -> Page:
    """Show what would be done with each line, and keep the file for the confirmation."""
    options = {name: upload.fields.get(name, "") for name in FIELDS}
    with context.services.transfer.start_import() as incoming:
        _read(context, incoming, upload.file_name, options, upload.content)
        drawn = sum(1 for _ in islice(incoming.generated_keys(), MAX_ISSUED + 1))
        if drawn > MAX_ISSUED:
            raise InvalidInputError(
                f"more than {number(MAX_ISSUED)} lines have no key, and a page cannot show so many new ones; "
                "split the file, or use licserver import"
            )
        values = {"lines": _first_lines(incoming), "problems": incoming.problems, "wrong": incoming.wrong}
        counts = _count(incoming)
    has_work = bool(incoming.count or incoming.changes)
    ticket = None
    if has_work and not incoming.wrong:
        head = json.dumps([upload.file_name, options]).encode() + b"\n"
        ticket = keep_upload(_folder(context), head + upload.content, context.user.name)
    more = {"file": upload.file_name, "counts": counts, "ticket": ticket, "shown": SHOWN}
    return Page("import_preview.html", {**values, **more})


def confirm(context: PageContext) -> Reply:
    """Import the file of a preview."""
    kept = take_upload(_folder(context), context.from_form("ticket"), context.user.name)
    if kept is None:
        raise InvalidInputError(
            "this file is not kept any more: it was imported or cancelled, or an hour has passed; look at "
            "the licenses, and upload the file again if they are missing"
        )
    head, _, content = kept.partition(b"\n")
    file_name, options = json.loads(head)
    with context.services.transfer.start_import() as incoming:
        _read(context, incoming, file_name, options, content)
        if incoming.wrong:
            raise InvalidInputError(
                "nothing was imported: the database has changed since the preview; upload the file again"
            )
        incoming.prepare()
        incoming.commit()
        keys = [key for _, key in incoming.generated_keys()]
        counts = _count(incoming)
    return _page(context, form=dict.fromkeys(FIELDS, ""), imported=counts, keys=keys)


def cancel(context: PageContext) -> Redirect:
    """Remove the file of a preview."""
    take_upload(_folder(context), context.from_form("ticket"), context.user.name)
    return context.back("import-cancelled")


ACTIONS: Final[Mapping[str, Show]] = {"confirm": confirm, "cancel": cancel}


def _page(context: PageContext, **values: Any) -> Page:
    slugs = [product.slug for product in context.services.products.list_all()]
    choices = {"presets": PRESETS, "formats": FORMATS, "existing": _EXISTING, "slugs": slugs}
    return Page("imports.html", {"imported": None, "keys": [], "limit": MAX_TEXT, **choices, **values})


def _read(
    context: PageContext, incoming: LicenseImport, file_name: str, options: Mapping[str, str], content: bytes
) -> None:
    """Read a file with the options of the form."""
    typed = {name: options[name].strip() for name in FIELDS}
    if typed["preset"] not in {"", *PRESETS} or typed["format"] not in {"", *FORMATS}:
        raise InvalidInputError("choose where the file comes from")
    conversion = make_conversion(
        context.now,
        typed["preset"] or None,
        typed["columns"].splitlines(),
        typed["products"].splitlines(),
        typed["slots"] or None,
    )
    form = choose_format(file_name, typed["format"] or None, conversion)
    existing = Existing(typed["existing"]) if typed["existing"] in set(Existing) else Existing.REFUSE
    with io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="") as lines:
        incoming.read(read_rows(form, lines, conversion), existing)


def _first_lines(incoming: LicenseImport) -> list[PlannedLine]:
    return list(islice((one for one in incoming.plan() if one.action is not Action.REFUSE), SHOWN))


def _count(incoming: LicenseImport) -> str:
    counts = (
        (incoming.count, f"new {plural(incoming.count, 'license')}"),
        (len(incoming.changes), "changed"),
        (len(incoming.unchanged), "unchanged"),
        (len(incoming.skipped), f"{plural(len(incoming.skipped), 'line')} skipped"),
        (incoming.wrong, f"{plural(incoming.wrong, 'line')} with errors"),
    )
    return ", ".join(f"{number(count)} {what}" for count, what in counts if count) or "no licenses"


def _folder(context: PageContext) -> Any:
    return context.services.settings.data_dir / "uploads"
