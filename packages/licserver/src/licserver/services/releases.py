"""Releases: files under a version, published once and for all."""

from pathlib import Path
from typing import Final, NamedTuple

from licserver.database.repositories.repository import Repositories
from licserver.domain.changelogs import clean
from licserver.domain.decisions import parse_version, version_key
from licserver.domain.records import Artifact, Product, Release
from licserver.errors import Conflict, Unknown, WrongUse
from licserver.protocol.release_manifests import Manifest, Sealer
from licserver.security.private_files import checked_file, digest_of
from licserver.services.license_terms import MAX_INDEXED, is_text
from licserver.services.products import Products

MAX_CHANGELOG: Final = 200_000
"""Characters of a changelog; every update check carries it."""


class Staged(NamedTuple):
    """A release that only the books have to learn of."""

    product: Product
    version: str
    changelog: str
    artifact: Artifact
    document: str | None


class Releases(Products):
    """What customers download."""

    def publish(
        self,
        slug: str,
        version: str,
        file: Path,
        changelog: str = "",
        seal: Sealer | None = None,
        *,
        file_name: str | None = None,
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
            file_name: What customers will see the file called, checked (`files.checked_name`); its own
                name unless given.

        Raises:
            Unknown: for an unknown product.
            Conflict: for a version that is published already.
            WrongUse: for a version that cannot be read (D-23), a file that is none, a changelog that is
                too long, or a manifest of another file.
            OSError: when the file cannot be read, or the copy not be written.
            ArtifactsError: when the bucket does not take it.
        """
        return self.add_release(self.stage(slug, version, file, changelog, seal, file_name=file_name))

    def stage(
        self,
        slug: str,
        version: str,
        file: Path,
        changelog: str = "",
        seal: Sealer | None = None,
        *,
        file_name: str | None = None,
    ) -> Staged:
        """Do all of `publish` but the last step: the file is stored, and no book names it yet.

        Args and raises: as `publish`. What takes long is done here, outside of any transaction.
        """
        product, version, changelog = self.check_release(slug, version, changelog)
        document = None
        if seal is not None:  # before anything is stored: a manifest of another file is the vendor's slip
            size, sha256 = digest_of(checked_file(file))
            document = seal(self._to_be_said(slug, version, size, sha256)).document
        artifact = self._store_artifact(file, file_name)
        if seal is not None and artifact.sha256 != sha256:
            raise WrongUse(f"{file} changed while it was published; publish it again")
        return Staged(product, version, changelog, artifact, document)

    def check_release(self, slug: str, version: str, changelog: str = "") -> tuple[Product, str, str]:
        """Check what can be checked before the file has come.

        Returns:
            The product, the version as it will be published, and what of the changelog is kept.

        Raises:
            Unknown, Conflict, WrongUse: as `publish`.
        """
        product = self.product(slug)
        version = version.strip()
        key = self._version_key(version)
        if any(self._version_key(known.version) == key for known in self._records.releases(product.id)):
            raise self._published_already(slug, version)
        changelog = clean(changelog) if len(changelog) <= MAX_CHANGELOG else changelog
        if len(changelog) > MAX_CHANGELOG:  # also when cleaning made it longer
            raise WrongUse(f"the changelog is longer than {MAX_CHANGELOG} characters")
        if not is_text(changelog):
            raise WrongUse("the changelog must not contain control characters")
        return product, version, changelog

    def renew_manifest(self, slug: str, version: str, seal: Sealer) -> Release:
        """Give a release a manifest that is good for longer, or its first one; its file stays as it is.

        Running servers tell it with their very next update check.

        Raises:
            Unknown: for an unknown product or version.
            WrongUse: for one that is withdrawn, or a manifest of another file.
        """
        release = self.release(slug, version)
        if release.withdrawn_at is not None:
            raise WrongUse(f"{slug} {release.version} is withdrawn and offered no more")
        artifact = release.artifact
        signed = seal(self._to_be_said(slug, release.version, artifact.size, artifact.sha256))
        with self._records.together() as books:
            books.renew_manifest(release, signed.document, self._clock())
            self._note_release(books, "release.renew", slug, release.version, signed_by=signed.key_ids)
        return self.release(slug, version)

    def withdraw(self, slug: str, version: str) -> Release:
        """Take a release back: it is offered no more, and links to it are dead (D-33).

        One that is withdrawn already keeps its first date.

        Raises:
            Unknown: for an unknown product or version.
        """
        release = self.release(slug, version)
        if release.withdrawn_at is None:
            with self._records.together() as books:
                books.withdraw_release(release.product_id, self._version_key(version), self._clock())
                self._note_release(books, "release.withdraw", slug, release.version)
        return self.release(slug, version)

    def releases(self, slug: str) -> list[Release]:
        """A product's releases, in the order of publication.

        Raises:
            Unknown: for an unknown product.
        """
        return self._records.releases(self.product(slug).id)

    def release(self, slug: str, version: str) -> Release:
        """One of a product's releases.

        Raises:
            Unknown: for an unknown product or version.
            WrongUse: for a version that cannot be read.
        """
        product, key = self.product(slug), self._version_key(version)
        for release in self._records.releases(product.id):
            if self._version_key(release.version) == key:
                return release
        raise Unknown(f"{slug} has no version {version!r}")

    def add_release(self, staged: Staged) -> Release:
        """Do the last step of `publish`.

        Raises:
            Conflict: when somebody else published the version meanwhile.
        """
        product, version, changelog, artifact, document = staged
        key, now = self._version_key(version), self._clock()
        with self._records.together() as books:
            if not books.add_release(product.id, version, key, changelog, artifact, now, document):
                raise self._published_already(product.slug, version)  # by somebody else, meanwhile
            self._note_release(
                books,
                "release.publish",
                product.slug,
                version,
                file=artifact.file_name,
                size=artifact.size,
                sha256=artifact.sha256,
                signed=document is not None,
            )
        return self.release(product.slug, version)

    def _note_release(
        self, books: Repositories, action: str, slug: str, version: str, **details: object
    ) -> None:
        self._note(books, action, ("release", f"{slug}/{version}"), **details)

    def _to_be_said(self, slug: str, version: str, size: int, sha256: bytes) -> Manifest:
        now = self._clock()
        return Manifest(slug, version, size, sha256, published_at=now, expires_at=now)

    def _version_key(self, text: str) -> str:
        version = parse_version(text) if len(text) <= MAX_INDEXED else None
        if version is None:
            raise WrongUse(f"{text!r} is no version by PEP 440; write it like 1.4.0 or 2.0rc1")
        return version_key(version)

    def _published_already(self, slug: str, version: str) -> Conflict:
        return Conflict(
            f"{slug} has a version {version} already; a published version never changes, choose a higher one"
        )

    def _store_artifact(self, file: Path, file_name: str | None) -> Artifact:
        with checked_file(file).open("rb") as source:
            return self.artifacts.store(source, file_name or file.name)
