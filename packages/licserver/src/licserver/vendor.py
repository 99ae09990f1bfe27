"""What a vendor can do, once, for the command line and whatever else will offer it.

Each operation checks everything first and then changes the books in one transaction.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from licserver.artifacts import Artifacts, open_artifacts
from licserver.changelog import clean
from licserver.clock import Clock, system_clock
from licserver.environment import (
    BadDomain,
    BadEntry,
    is_printable,
    normalise_domain,
    normalise_ip,
    parse_entry,
    parse_ip,
)
from licserver.errors import WrongUse
from licserver.files import checked_file, digest_of
from licserver.manifest import Manifest, Sealer
from licserver.model import Artifact, Environment, EnvironmentPolicy, LicenseTerms, Product, Release
from licserver.rules import draw_key, has_key_shape, has_slug_shape, parse_version, version_key
from licserver.settings import Settings
from licserver.store import Database, IssuedLicense, NewLicense, Records, is_in_use, open_database
from licserver.vault import ID_BYTES, Vault, open_vault

ISSUE_BATCH: Final = 10_000
"""Licenses issued in one transaction: large enough to be fast, small enough to let others write."""

MAX_CHANGELOG: Final = 200_000
"""Characters of a changelog; every update check carries it."""

MAX_INDEXED: Final = 255
"""Characters of a version or of a subscription's id: an index of PostgreSQL takes no text of any length."""


class Vendor:
    """The vendor's operations on one data folder.

    Args:
        settings: Which folder and which database.
        clock: For the instants that are noted.

    Raises:
        VaultError: when the secrets cannot be read, or are lost.
        StoreError: when the database cannot be used.
        SettingsError: when the bucket cannot be used as it is named.
    """

    def __init__(self, settings: Settings, clock: Clock = system_clock) -> None:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.settings = settings
        self.vault: Vault = open_vault(settings, lambda: is_in_use(settings.database))
        self.database: Database = open_database(settings.database, self.vault.fingerprint)
        self.artifacts: Artifacts = open_artifacts(settings)
        self._records = Records(self.database)
        self._clock = clock

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    # --- products -----------------------------------------------------------------------------

    def add_product(
        self,
        slug: str,
        name: str,
        policy: EnvironmentPolicy = EnvironmentPolicy.STRICT,
        *,
        has_support_policy: bool = False,
    ) -> Product:
        """Add a product.

        Raises:
            WrongUse: for a slug or a name that cannot be, or a slug that is taken.
        """
        if not has_slug_shape(slug):
            raise WrongUse(
                f"{slug!r} is no slug: use lower-case letters, digits and single hyphens, like my-product"
            )
        self._check_name(name)
        if not self._records.add_product(
            slug, name.strip(), policy, self._clock(), has_support_policy=has_support_policy
        ):
            raise WrongUse(f"there is a product {slug!r} already")
        return self.product(slug)

    def rename_product(self, slug: str, name: str) -> Product:
        """Change a product's name for update-check; licenses keep the name they were issued with (D-12).

        Raises:
            WrongUse: for an unknown slug or a name that cannot be.
        """
        self._check_name(name)
        self._records.rename_product(self.product(slug).slug, name.strip())
        return self.product(slug)

    def products(self) -> list[Product]:
        """All products, by slug."""
        return self._records.products()

    def product(self, slug: str) -> Product:
        """One product.

        Raises:
            WrongUse: for an unknown slug.
        """
        # What is no slug is not asked for: it may not even be text that a database takes.
        product = self._records.product(slug) if has_slug_shape(slug) else None
        if product is None:
            raise self._no_product(slug)
        return product

    def _no_product(self, slug: str) -> WrongUse:
        known = ", ".join(product.slug for product in self._records.products()[:10])
        hint = f"there are: {known}" if known else "add one with: licserver product add SLUG --name NAME"
        return WrongUse(f"there is no product {slug!r}; {hint}")

    def _check_name(self, name: str) -> None:
        if not name.strip() or not is_printable(name):
            raise WrongUse("a product's name must be one line of text")

    # --- releases -----------------------------------------------------------------------------

    def publish(
        self, slug: str, version: str, file: Path, changelog: str = "", seal: Sealer | None = None
    ) -> Release:
        """Publish a file as a version of a product; of the changelog, what is harmless (D-65).

        The file is copied first and named in the books last, together with its manifest: a crash between
        leaves no release.

        Args:
            slug: The product.
            version: By PEP 440 (D-23).
            file: Whatever customers are to get.
            changelog: Plain text or basic HTML.
            seal: Makes the signed manifest; None leaves the release unsigned (D-67).

        Raises:
            WrongUse: for an unknown product, a version that cannot be read (D-23) or is published
                already, a file that is none, a changelog that is too long, or a manifest of another file.
            OSError: when the file cannot be read, or the copy not be written.
            ArtifactsError: when the bucket does not take it.
        """
        product = self.product(slug)
        version = version.strip()
        key = self._version_key(version)
        if any(self._version_key(known.version) == key for known in self._records.releases(product.id)):
            raise self._published_already(slug, version)
        changelog = clean(changelog) if len(changelog) <= MAX_CHANGELOG else changelog
        if len(changelog) > MAX_CHANGELOG:  # also when cleaning made it longer
            raise WrongUse(f"the changelog is longer than {MAX_CHANGELOG} characters")
        if not is_printable(changelog.translate({ord(char): None for char in "\t\r\n"})):
            raise WrongUse("the changelog must not contain control characters")
        document = None
        if seal is not None:  # before anything is stored: a manifest of another file is the vendor's slip
            size, sha256 = digest_of(checked_file(file))
            document = seal(self._to_be_said(slug, version, size, sha256)).document
        artifact = self._store_artifact(file)
        if seal is not None and artifact.sha256 != sha256:
            raise WrongUse(f"{file} changed while it was published; publish it again")
        if not self._records.add_release(
            product.id, version, key, changelog, artifact, self._clock(), document
        ):
            raise self._published_already(slug, version)  # by somebody else, meanwhile
        return self.release(slug, version)

    def renew_manifest(self, slug: str, version: str, seal: Sealer) -> Release:
        """Give a release a manifest that is good for longer, or its first one; its file stays as it is.

        Running servers tell it with their very next update check.

        Raises:
            WrongUse: for an unknown product or version, one that is withdrawn, or a manifest of another file.
        """
        release = self.release(slug, version)
        if release.withdrawn_at is not None:
            raise WrongUse(f"{slug} {release.version} is withdrawn and offered no more")
        artifact = release.artifact
        signed = seal(self._to_be_said(slug, release.version, artifact.size, artifact.sha256))
        self._records.renew_manifest(release, signed.document, self._clock())
        return self.release(slug, version)

    def _to_be_said(self, slug: str, version: str, size: int, sha256: bytes) -> Manifest:
        now = self._clock()
        return Manifest(slug, version, size, sha256, published_at=now, expires_at=now)

    def withdraw(self, slug: str, version: str) -> Release:
        """Take a release back: it is offered no more, and links to it are dead (D-33).

        Raises:
            WrongUse: for an unknown product or version.
        """
        product = self.product(slug)
        key = self._version_key(version)
        if not self._records.withdraw_release(product.id, key, self._clock()):
            raise WrongUse(f"{slug} has no version {version!r}")
        return self.release(slug, version)

    def releases(self, slug: str) -> list[Release]:
        """A product's releases, in the order of publication.

        Raises:
            WrongUse: for an unknown product.
        """
        return self._records.releases(self.product(slug).id)

    def release(self, slug: str, version: str) -> Release:
        """One of a product's releases.

        Raises:
            WrongUse: for an unknown product or version.
        """
        product, key = self.product(slug), self._version_key(version)
        for release in self._records.releases(product.id):
            if self._version_key(release.version) == key:
                return release
        raise WrongUse(f"{slug} has no version {version!r}")

    def _version_key(self, text: str) -> str:
        version = parse_version(text) if len(text) <= MAX_INDEXED else None
        if version is None:
            raise WrongUse(f"{text!r} is no version by PEP 440; write it like 1.4.0 or 2.0rc1")
        return version_key(version)

    def _published_already(self, slug: str, version: str) -> WrongUse:
        return WrongUse(
            f"{slug} has a version {version} already; a published version never changes, choose a higher one"
        )

    def _store_artifact(self, file: Path) -> Artifact:
        with checked_file(file).open("rb") as source:
            return self.artifacts.store(source, file.name)

    # --- licenses -----------------------------------------------------------------------------

    def issue(self, slug: str, terms: LicenseTerms, count: int = 1) -> Iterator[list[str]]:
        """Issue license keys, a batch at a time.

        Args:
            slug: The product.
            terms: What is agreed.
            count: How many keys.

        Returns:
            Batches of keys; each is in the books when it is handed out. All checks are done before
            the first.

        Raises:
            WrongUse: for an unknown product or terms that cannot be.
        """
        if count < 1:
            raise WrongUse("--count must be at least 1")
        if terms.lifetime and terms.expires_on is not None:
            raise WrongUse("a key is either for a lifetime or expires on a date, not both")
        if terms.slots is not None and not 0 <= terms.slots <= 2**31 - 1:
            raise WrongUse("--slots must be a whole number from 0, or 'unlimited'")
        subscription = terms.subscription_id
        if subscription is not None:
            self._check_subscription(subscription)
        product = self.product(slug)
        allowed = tuple(dict.fromkeys(self._entry(entry) for entry in terms.allowed))
        ended_at = None if subscription is None else self._records.subscription_ended_at(subscription)
        return self._issue_batches(product, terms, allowed, ended_at, count)

    def _issue_batches(
        self,
        product: Product,
        terms: LicenseTerms,
        allowed: tuple[str, ...],
        subscription_ended_at: datetime | None,
        count: int,
    ) -> Iterator[list[str]]:
        for done in range(0, count, ISSUE_BATCH):
            keys = [draw_key() for _ in range(min(ISSUE_BATCH, count - done))]
            now = self._clock()
            self._records.issue(
                [
                    NewLicense(
                        id=self.vault.license_id(key),
                        sealed_key=self.vault.seal(key),
                        product_id=product.id,
                        product_name=product.name,
                        issued_at=now,
                        expires_on=terms.expires_on,
                        lifetime=terms.lifetime,
                        slots=terms.slots,
                        allowed=allowed,
                        subscription_id=terms.subscription_id,
                        subscription_ended_at=subscription_ended_at,
                        support_until=terms.support_until,
                    )
                    for key in keys
                ]
            )
            yield keys

    def license(self, reference: str) -> IssuedLicense:
        """One license, by its key or by its id (32 hexadecimal digits).

        Raises:
            WrongUse: when there is none; the message does not repeat the key.
        """
        found = self._records.license(self._license_id(reference))
        if found is None:
            raise WrongUse("there is no such license; `licserver license list` shows the ids of all")
        return found

    def licenses(self, slug: str | None = None) -> Iterator[IssuedLicense]:
        """All licenses, or those of one product, by the instant of issue.

        Raises:
            WrongUse: for an unknown product.
        """
        return self._records.licenses(None if slug is None else self.product(slug).id)

    def key(self, license_: IssuedLicense) -> str:
        """Unseal a license's key.

        Raises:
            VaultError: when it was altered.
        """
        return self.vault.open(license_.sealed_key, license_.id)

    def activations(self, license_: IssuedLicense) -> list[tuple[Environment, datetime]]:
        """A license's activations with the instants at which they took their slots."""
        return self._records.activations(license_.id)

    def revoke(self, reference: str, reason: str | None = None) -> IssuedLicense:
        """Revoke a license; one that is revoked already stays as it is.

        Raises:
            WrongUse: when there is no such license.
        """
        found = self.license(reference)
        if reason is not None and not is_printable(reason):
            raise WrongUse("a reason must be one line of text")
        self._records.revoke(found.id, reason, self._clock())
        return self.license(reference)

    def reinstate(self, reference: str) -> IssuedLicense:
        """Take a revocation back; a license that is not revoked stays as it is.

        Raises:
            WrongUse: when there is no such license.
        """
        self._records.reinstate(self.license(reference).id)
        return self.license(reference)

    def deactivate(self, reference: str, domain_or_ip: str) -> int:
        """Free the slots of a domain or of an address.

        Returns:
            How many slots were freed.

        Raises:
            WrongUse: when there is no such license, or no such activation.
        """
        found = self.license(reference)
        try:
            domain = normalise_domain(domain_or_ip)
        except BadDomain as problem:
            raise WrongUse(f"a domain {problem}") from None
        address = parse_ip(domain_or_ip.strip())
        ip = None if address is None else normalise_ip(address, self.settings.ipv6_prefix)
        freed = self._records.deactivate(found.id, domain, ip)
        if freed == 0:
            raise WrongUse(
                f"{domain_or_ip!r} is not activated for this license; `licserver license show` lists what is"
            )
        return freed

    def allow(self, reference: str, entry: str) -> IssuedLicense:
        """Add an owner's entry to a license; it takes no slot (D-04).

        Raises:
            WrongUse: when there is no such license, or the entry cannot be read.
        """
        found = self.license(reference)
        self._records.allow(found.id, self._entry(entry))
        return self.license(reference)

    def _entry(self, text: str) -> str:
        try:
            return parse_entry(text, self.settings.ipv6_prefix)
        except BadEntry as problem:
            raise WrongUse(str(problem)) from None

    def _license_id(self, reference: str) -> bytes:
        text = reference.strip()
        if len(text) == 2 * ID_BYTES and all(char in "0123456789abcdef" for char in text):
            return bytes.fromhex(text)
        if not has_key_shape(text):
            raise WrongUse(
                "this has not the shape of a license key, CP- and five groups of six, nor of a license id"
            )
        return self.vault.license_id(text)

    # --- subscriptions ------------------------------------------------------------------------

    def end_subscription(self, subscription_id: str, at: datetime | None = None) -> int:
        """End a subscription, now or at an instant; calling again moves the instant (D-09).

        Returns:
            How many licenses hang on it.

        Raises:
            WrongUse: when none does.
        """
        self._check_subscription(subscription_id)
        count = self._records.end_subscription(subscription_id, (at or self._clock()).astimezone(UTC))
        if count == 0:
            raise WrongUse(f"no license hangs on a subscription {subscription_id!r}")
        return count

    def _check_subscription(self, subscription_id: str) -> None:
        if (
            not (subscription_id.strip() and is_printable(subscription_id))
            or len(subscription_id) > MAX_INDEXED
        ):
            raise WrongUse(f"a subscription's id must be one line of at most {MAX_INDEXED} characters")
