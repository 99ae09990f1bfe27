"""Import and export of licenses, as rows of a file (`licserver.protocol.license_files`)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import PurePath

from licserver.database.staging import staging
from licserver.domain.records import TERMS
from licserver.errors import InvalidInputError
from licserver.protocol.conversion import NEVER, QUANTITY, Conversion, Quantity
from licserver.protocol.foreign_exports import PRESETS
from licserver.protocol.license_files import (
    FIELDS,
    FORMATS,
    ActivationRow,
    LicenseRow,
)
from licserver.services.context import Service
from licserver.services.license_imports import KEPT, LicenseImport
from licserver.services.products import find_product


def choose_format(file_name: str, form: str | None, conversion: Conversion | None = None) -> str:
    """Return the format of a file: of its preset, otherwise as named in `form`, otherwise by its ending."""
    if conversion is not None and (preset := conversion.preset) is not None:
        if preset.slots is None and conversion.slots is None:
            raise InvalidInputError(
                f"an export of {preset.title} has no activation limits; add --slots N, or --slots unlimited"
            )
        return preset.form
    chosen = form or PurePath(file_name).suffix.removeprefix(".").lower()
    if chosen not in FORMATS:
        raise InvalidInputError("the format of the file is not known; add --format csv or --format jsonl")
    return chosen


def _read_columns(columns: Iterable[str]) -> dict[str, str]:
    """Parse ``COLUMN=FIELD`` each; without a field the column is ignored."""
    chosen = {}
    for text in columns:
        column, equals, name = text.rpartition("=")
        if not equals or name not in ("", QUANTITY, *FIELDS):
            field_names = ", ".join((*FIELDS, QUANTITY))
            raise InvalidInputError(
                f"--map {text!r}: write COLUMN=FIELD with one of these fields: {field_names}"
            )
        chosen[column] = name
    return chosen


def _check_day(option: str, text: str | None) -> str | None:
    text = None if text is None else text.strip().lower()
    try:
        if text not in (None, NEVER):
            date.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"{option} {text!r}: write a day like 2027-01-31, or never") from None
    return text


class TransferService(Service):
    """Imports and exports licenses."""

    def make_conversion(
        self,
        preset: str | None = None,
        columns: Iterable[str] = (),
        products: Iterable[str] = (),
        *,
        slots: str | None = None,
        expires: str | None = None,
        support_until: str | None = None,
        quantity: str | None = None,
    ) -> Conversion:
        """Return the conversion of a file's lines to our fields.

        Args:
            preset: A name of `PRESETS`.
            columns: ``COLUMN=FIELD`` each; without a field the column is ignored.
            products: ``NAME=SLUG`` each, or a slug for all other names.
            slots: The slots of lines without slots.
            expires: The last day of lines without an end, or ``never``.
            support_until: The last day of support of lines without such a day, or ``never``.
            quantity: The meaning of several copies in a line; a value of `Quantity`.
        """
        all_products = self._context.repositories.products.list_all()
        return Conversion(
            now=self._context.now(),
            preset=None if preset is None else PRESETS[preset],
            columns=_read_columns(columns),
            products={name: slug for name, _, slug in (text.rpartition("=") for text in products)},
            slots=slots,
            expires=_check_day("--expires", expires),
            support_until=_check_day("--support-until", support_until),
            supported={product.slug for product in all_products if product.has_support_policy},
            quantity=None if quantity is None else Quantity(quantity),
        )

    @contextmanager
    def start_import(self) -> Iterator[LicenseImport]:
        """Begin an import; the end of the block discards licenses that are not committed."""
        with staging(self._context.database) as staged:
            yield LicenseImport(self._context, staged)

    def export(self, slug: str | None = None) -> Iterator[LicenseRow]:
        """Return a consistent snapshot of all licenses, or of a product's, with their keys; audit it."""
        product = None if slug is None else find_product(self._context, slug)
        with self._context.transaction() as tx:
            object_ = ("license", "-") if product is None else ("product", product.slug)
            tx.write_audit("license.export", object_)
        return self._export(None if product is None else product.id)

    def _export(self, product_id: int | None) -> Iterator[LicenseRow]:
        licenses = self._context.for_lists().repositories.licenses
        for license_, activations in licenses.list_with_activations(product_id):
            yield LicenseRow(
                license_key=self._context.vault.decrypt_key(license_.encrypted_key, license_.id),
                product=license_.product_slug,
                activations=tuple(
                    ActivationRow(*where, first, last, label, version, offline_until)
                    for where, first, last, label, version, offline_until in activations
                ),
                **{name: getattr(license_, name) for name in (*TERMS, *KEPT)},
            )
