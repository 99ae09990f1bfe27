"""Files of owners: import of licenses (upload, preview, confirmation), and backups."""

import io
import json
import shlex
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from licserver.domain.text import plural
from licserver.errors import InvalidInputError
from licserver.limits import MAX_UPLOAD_TEXT_BYTES
from licserver.protocol.conversion import Quantity
from licserver.protocol.foreign_exports import PRESETS
from licserver.protocol.license_files import FORMATS, read_lines, read_rows
from licserver.security.kept_uploads import keep_upload, take_upload
from licserver.services.backup_folder import BackupFolder
from licserver.services.license_imports import Action, Existing, LicenseImport
from licserver.services.transfer import choose_format
from licserver.web.console.formatting import MAX_ISSUED, number
from licserver.web.console.pages import Actions, HtmlPage, PageContext, Redirect, Reply
from licserver.web.uploads import TextUpload

FIELDS: Final = (
    *("preset", "format", "existing", "slots", "expires", "support_until", "quantity", "products", "columns"),
)
"""The fields of the form beside the file: the options of `licserver import`."""

_SHOWN_LINES: Final = 100
"""Lines of the preview, beside those with errors."""
_SHOWN_BACKUPS: Final = 50

_QUANTITIES: Final = {
    "": "refuse the line",
    Quantity.SLOTS: "one license with as many times the slots",
    Quantity.LICENSES: "as many licenses, with new keys for all but the first",
}

_EXISTING: Final = {
    Existing.REFUSE: "refuse the line",
    Existing.KEEP: "leave the license as it is",
    Existing.CHANGE: "give the license the terms of the file",
}


def show_import(context: PageContext) -> HtmlPage:
    """Show the form for a file."""
    return _page(context, form={name: context.form.get(name, "") for name in FIELDS})


def preview(context: PageContext, upload: TextUpload) -> HtmlPage:
    """Show the planned action for each line, and keep the file for the confirmation."""
    options = {name: upload.fields.get(name, "") for name in FIELDS}
    with context.services.transfer.start_import() as incoming:
        _read(context, incoming, upload.file_name, options, upload.content)
        drawn = sum(1 for _ in islice(incoming.generated_keys(), MAX_ISSUED + 1))
        if drawn > MAX_ISSUED:
            raise InvalidInputError(
                f"more than {number(MAX_ISSUED)} lines have no key, and a page cannot show so many new ones; "
                "split the file, or use licserver import"
            )
        lines = (line for line in incoming.plan() if line.action is not Action.REFUSE)
        first, counts = list(islice(lines, _SHOWN_LINES)), _count(incoming)
    ticket = None
    if (incoming.count or incoming.changes) and not incoming.wrong:
        head = json.dumps([upload.file_name, options]).encode() + b"\n"
        ticket = keep_upload(_folder(context), head + upload.content, context.user.name)
    return HtmlPage(
        "import_preview.html",
        lines=first,
        problems=incoming.problems,
        wrong=incoming.wrong,
        warnings=incoming.warnings,
        doubtful=incoming.doubtful,
        keyless=incoming.describe_keyless(),
        file=upload.file_name,
        counts=counts,
        ticket=ticket,
        shown=_SHOWN_LINES,
    )


def _confirm(context: PageContext) -> Reply:
    """Import the file of a preview."""
    upload = take_upload(_folder(context), context.from_form("ticket"), context.user.name)
    if upload is None:
        raise InvalidInputError(
            "this file is not kept any more: it was imported or cancelled, or an hour has passed; look at "
            "the licenses, and upload the file again if they are missing"
        )
    head, _, content = upload.partition(b"\n")
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


def _cancel(context: PageContext) -> Redirect:
    take_upload(_folder(context), context.from_form("ticket"), context.user.name)
    return context.back("import-cancelled")


def _page(context: PageContext, **values: Any) -> HtmlPage:
    slugs = [product.slug for product in context.services.products.list_all()]
    choices = {"presets": PRESETS, "formats": FORMATS, "existing": _EXISTING, "slugs": slugs}
    choices["quantities"] = _QUANTITIES
    return HtmlPage(
        "imports.html", **{"imported": None, "keys": [], "limit": MAX_UPLOAD_TEXT_BYTES, **choices, **values}
    )


def _read(
    context: PageContext, incoming: LicenseImport, file_name: str, options: Mapping[str, str], content: bytes
) -> None:
    """Read a file with the options of the form."""
    typed = {name: options[name].strip() for name in FIELDS}
    if typed["preset"] not in {"", *PRESETS} or typed["format"] not in {"", *FORMATS}:
        raise InvalidInputError("choose where the file comes from")
    if typed["quantity"] not in {"", *Quantity}:
        raise InvalidInputError("choose what several copies become")
    conversion = context.services.transfer.make_conversion(
        typed["preset"] or None,
        typed["columns"].splitlines(),
        typed["products"].splitlines(),
        slots=typed["slots"] or None,
        expires=typed["expires"] or None,
        support_until=typed["support_until"] or None,
        quantity=typed["quantity"] or None,
    )
    form = choose_format(file_name, typed["format"] or None, conversion)
    existing = Existing(typed["existing"]) if typed["existing"] in set(Existing) else Existing.REFUSE
    with io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="") as lines:
        incoming.read(read_rows(form, read_lines(lines), conversion), existing)


def _count(incoming: LicenseImport) -> str:
    counts = (
        (incoming.count, f"new {plural(incoming.count, 'license')}"),
        (len(incoming.changes), "changed"),
        (len(incoming.unchanged), "unchanged"),
        (len(incoming.skipped), f"{plural(len(incoming.skipped), 'line')} skipped"),
        (incoming.wrong, f"{plural(incoming.wrong, 'line')} with errors"),
    )
    return ", ".join(f"{number(count)} {label}" for count, label in counts if count) or "no licenses"


def _folder(context: PageContext) -> Any:
    return context.services.settings.data_dir / "uploads"


IMPORT_ACTIONS: Final[Actions] = {"confirm": _confirm, "cancel": _cancel}


# --- backups ----------------------------------------------------------------------------------


def show_backups(context: PageContext) -> HtmlPage:
    """Show the backups, the state of the latest run, and the command to restore a backup."""
    folder = BackupFolder(context.services)
    files = folder.list_files()
    return HtmlPage(
        "backups.html",
        folder=folder.path,
        obstacle=folder.obstacle,
        run=folder.latest_run(),
        files=files[:_SHOWN_BACKUPS],
        total=len(files),
        latest=shlex.quote(str(files[0].path if files else folder.path / "FILE.backup")),
    )


def _make_backup(context: PageContext) -> Redirect:
    BackupFolder(context.services).start()
    return context.back("backup-started")


def _delete_backup(context: PageContext) -> Reply:
    folder, name = BackupFolder(context.services), context.from_form("file")
    newest = next((file.path.name for file in folder.list_files()), None)
    effects = [f"{name} is deleted from {folder.path}. This cannot be undone."]
    if name == newest:
        effects.append("It is the latest backup of this folder.")
    if question := context.ask("Delete this backup?", effects, "Delete"):
        return question
    folder.delete(name)
    return context.back("backup-deleted")


BACKUP_ACTIONS: Final[Actions] = {"make": _make_backup, "delete": _delete_backup}
