"""Products and their releases."""

from pathlib import Path
from typing import Any, Final, NamedTuple

from licserver.domain.decisions import is_slug, parse_version, version_key
from licserver.domain.records import Artifact, EnvironmentPolicy, Product, Release
from licserver.domain.text import sanitize
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.protocol.release_manifests import Manifest, ManifestSigner
from licserver.security.private_files import digest_file, validate_file
from licserver.services.context import Context
from licserver.services.license_terms import MAX_INDEXED, check_line, is_text

MAX_PRODUCT_NAME: Final = 200  # characters of a product's name
MAX_CHANGELOG: Final = 200_000  # characters of a changelog; every update check carries it


class ProductService:
    """Adds, changes and lists products."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def add(
        self,
        slug: str,
        name: str,
        policy: EnvironmentPolicy = EnvironmentPolicy.STRICT,
        *,
        has_support_policy: bool = False,
        accepts_imported_keys: bool = False,
    ) -> Product:
        """Add a product."""
        if not is_slug(slug):
            raise InvalidInputError(
                f"{slug!r} is no slug: use lower-case letters, digits and single hyphens, like my-product"
            )
        name = _check_name(name)
        with self._context.transaction() as tx:
            if not tx.repositories.products.add(
                slug,
                name,
                policy,
                tx.now(),
                has_support_policy=has_support_policy,
                accepts_imported_keys=accepts_imported_keys,
            ):
                raise ConflictError(f"there is a product {slug!r} already")
            tx.write_audit(
                "product.add",
                ("product", slug),
                name=name,
                environment=policy.value,
                support_policy=has_support_policy,
                accept_imported_keys=accepts_imported_keys,
            )
        return self.get(slug)

    def rename(self, slug: str, name: str) -> Product:
        """Change the name that update checks return; licenses keep the one they were issued with (D-12)."""
        return self.change(slug, name=_check_name(name))

    def change(
        self,
        slug: str,
        *,
        name: str | None = None,
        policy: EnvironmentPolicy | None = None,
        has_support_policy: bool | None = None,
        accepts_imported_keys: bool | None = None,
    ) -> Product:
        """Change a product; what is None stays."""
        wanted: dict[str, Any] = {
            "name": None if name is None else _check_name(name),
            "environment": None if policy is None else policy.value,
            "support_policy": has_support_policy,
            "accept_imported_keys": accepts_imported_keys,
        }
        columns = {
            "environment": "environment_policy",
            "support_policy": "has_support_policy",
            "accept_imported_keys": "accepts_imported_keys",
        }
        with self._context.transaction() as tx:  # the audit log's old value must be the one replaced
            before = ProductService(tx).get(slug)
            old = {
                "name": before.name,
                "environment": before.policy.value,
                "support_policy": before.has_support_policy,
                "accept_imported_keys": before.accepts_imported_keys,
            }
            new = {label: value for label, value in wanted.items() if value not in (None, old[label])}
            if new:
                tx.repositories.products.change(
                    slug, **{columns.get(label, label): value for label, value in new.items()}
                )
                changes = {label: [old[label], value] for label, value in new.items()}
                tx.write_audit("product.change", ("product", slug), **changes)
        return self.get(slug)

    def list_all(self) -> list[Product]:
        """Return all products, by slug."""
        return self._context.repositories.products.list_all()

    def get(self, slug: str) -> Product:
        """Return one product."""
        # An invalid slug is not looked up: it may contain what a database does not accept as text.
        product = self._context.repositories.products.find(slug) if is_slug(slug) else None
        if product is None:
            known = ", ".join(product.slug for product in self.list_all()[:10])
            hint = f"there are: {known}" if known else "add one with: licserver product add SLUG --name NAME"
            raise NotFoundError(f"there is no product {slug!r}; {hint}")
        return product


def _check_name(name: str) -> str:
    return check_line("a product's name", name, MAX_PRODUCT_NAME)


class StagedRelease(NamedTuple):
    """A release whose file is stored, and that the database does not have yet."""

    product: Product
    version: str
    changelog: str
    artifact: Artifact
    document: str | None


class ReleaseService:
    """Publishes, withdraws and lists releases."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._products = ProductService(context)

    def publish(
        self,
        slug: str,
        version: str,
        file: Path,
        changelog: str = "",
        sign: ManifestSigner | None = None,
        *,
        file_name: str | None = None,
    ) -> Release:
        """Publish a file as a version (PEP 440) of a product; its changelog is sanitized.

        The file is stored first and the database written last, together with the manifest: a crash between
        the two leaves no release. Without `sign` there is no manifest; `file_name` is what customers see, if
        not the file's own.
        """
        return self.add(self.stage(slug, version, file, changelog, sign, file_name=file_name))

    def stage(
        self,
        slug: str,
        version: str,
        file: Path,
        changelog: str = "",
        sign: ManifestSigner | None = None,
        *,
        file_name: str | None = None,
    ) -> StagedRelease:
        """Do the slow part of `publish`, outside of any transaction: check everything and store the file."""
        product, version, changelog = self.check(slug, version, changelog)
        document = None
        if sign is not None:  # before anything is stored: it may be a manifest of another file
            size, sha256 = digest_file(validate_file(file))
            document = sign(self._describe(slug, version, size, sha256)).document
        with validate_file(file).open("rb") as source:
            artifact = self._context.artifacts.store(source, file_name or file.name)
        if sign is not None and artifact.sha256 != sha256:
            raise InvalidInputError(f"{file} changed while it was published; publish it again")
        return StagedRelease(product, version, changelog, artifact, document)

    def check(self, slug: str, version: str, changelog: str = "") -> tuple[Product, str, str]:
        """Check product, version and changelog before the file arrives; return them as published."""
        product = self._products.get(slug)
        version = version.strip()
        if self._context.repositories.releases.find(product.id, _version_key(version)) is not None:
            raise _published_already(slug, version)
        changelog = sanitize(changelog) if len(changelog) <= MAX_CHANGELOG else changelog
        if len(changelog) > MAX_CHANGELOG:  # also when cleaning made it longer
            raise InvalidInputError(f"the changelog is longer than {MAX_CHANGELOG} characters")
        if not is_text(changelog):
            raise InvalidInputError("the changelog must not contain control characters")
        return product, version, changelog

    def add(self, staged: StagedRelease) -> Release:
        """Do the last step of `publish`."""
        product, version, changelog, artifact, document = staged
        with self._context.transaction() as tx:
            if not tx.repositories.releases.add(
                product.id, version, _version_key(version), changelog, artifact, tx.now(), document
            ):
                raise _published_already(product.slug, version)
            tx.write_audit(
                "release.publish",
                _object(product.slug, version),
                file=artifact.file_name,
                size=artifact.size,
                sha256=artifact.sha256,
                signed=document is not None,
            )
        return self.get(product.slug, version)

    def renew_manifest(self, slug: str, version: str, sign: ManifestSigner) -> Release:
        """Give a release another manifest, which running servers return at once; its file stays as it is."""
        release = self.get(slug, version)
        if release.withdrawn_at is not None:
            raise InvalidInputError(f"{slug} {release.version} is withdrawn and not offered any more")
        artifact = release.artifact
        signed = sign(self._describe(slug, release.version, artifact.size, artifact.sha256))
        with self._context.transaction() as tx:
            tx.repositories.releases.renew_manifest(release, signed.document, tx.now())
            tx.write_audit("release.renew", _object(slug, release.version), signed_by=signed.key_ids)
        return self.get(slug, version)

    def withdraw(self, slug: str, version: str) -> Release:
        """Withdraw a release: it is not offered any more, and links to it stop working."""
        release = self.get(slug, version)
        if release.withdrawn_at is None:
            with self._context.transaction() as tx:
                tx.repositories.releases.withdraw(release, tx.now())
                tx.write_audit("release.withdraw", _object(slug, release.version))
        return self.get(slug, version)

    def list_all(self, slug: str) -> list[Release]:
        """Return a product's releases, in the order of publication."""
        return self._context.repositories.releases.list_all(self._products.get(slug).id)

    def get(self, slug: str, version: str) -> Release:
        """Return one release."""
        product = self._products.get(slug)
        release = self._context.repositories.releases.find(product.id, _version_key(version))
        if release is None:
            raise NotFoundError(f"{slug} has no version {version!r}")
        return release

    def _describe(self, slug: str, version: str, size: int, sha256: bytes) -> Manifest:
        now = self._context.now()
        return Manifest(slug, version, size, sha256, published_at=now, expires_at=now)


def _object(slug: str, version: str) -> tuple[str, str]:
    return "release", f"{slug}/{version}"


def _version_key(text: str) -> str:
    version = parse_version(text) if len(text) <= MAX_INDEXED else None
    if version is None:
        raise InvalidInputError(f"{text!r} is no version by PEP 440; write it like 1.4.0 or 2.0rc1")
    return version_key(version)


def _published_already(slug: str, version: str) -> ConflictError:
    return ConflictError(
        f"{slug} has a version {version} already; a published version never changes, choose a higher one"
    )
