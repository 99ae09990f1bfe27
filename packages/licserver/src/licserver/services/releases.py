"""Releases of products: publishing, channels, rollouts, withdrawal."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict, Unpack

from licserver.domain.channel_offers import describe_audience, describe_lower_version, is_only_fix
from licserver.domain.decisions import correct_platform, is_platform
from licserver.domain.offers import TO_ALL, RolloutOptions, current_share
from licserver.domain.records import (
    NO_FIELDS,
    STABLE,
    Artifact,
    FileKind,
    IssuedLicense,
    Product,
    Release,
    Rollout,
    SecurityNotice,
    WordPressFields,
)
from licserver.domain.security_notices import dump_notice
from licserver.domain.text import sanitize
from licserver.domain.versions import version_key
from licserver.domain.wordpress import explain_order, read_fields
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.protocol.release_manifests import Manifest, ManifestSigner
from licserver.protocol.webhooks import EventType
from licserver.security.private_files import digest_file, validate_file
from licserver.services.context import Service
from licserver.services.products import find_product, read_version
from licserver.services.release_files import InspectedFile, inspect_file, name_kind
from licserver.services.validation import check_channel, is_text

PATCHES: Final = "patches"  # the queue of releases that need patches
MAX_CHANGELOG: Final = 200_000  # characters of a changelog; every update check carries it


class PublishOptions(TypedDict, total=False):
    """Options of a published file.

    `file_name` is the public name, by default the file's own. With `platform` the file is for that platform
    alone, also of a published version. An empty `kind` is guessed from the file. An empty `channel` is the
    version's channel, or else `stable`. `reach`, `wordpress` and `security` are for the first file of a
    version. `published_on` is a past day in UTC, of a version that was published elsewhere before (D-330).
    """

    file_name: str | None
    platform: str
    kind: str
    channel: str
    reach: RolloutOptions
    wordpress: WordPressFields
    security: SecurityNotice | None
    published_on: date | None


class StagedRelease(NamedTuple):
    """A release whose file is stored, but not yet its row."""

    product: Product
    version: str
    changelog: str
    artifact: Artifact
    document: str | None
    platform: str
    channel: str
    reach: RolloutOptions
    wordpress: WordPressFields
    file_signatures: str | None = None
    security: SecurityNotice | None = None
    published_on: date | None = None
    inspected: InspectedFile = InspectedFile(FileKind.FOLDER)


class ReleaseService(Service):
    """Publishes, withdraws and lists releases.

    1. `stage` validates a release, signs its manifest, and stores the file, outside of any transaction.
    2. `add` writes the release, its audit line, its event, and the job that makes patches.
    3. `publish` does both; a crash in between leaves a file without a release, which is harmless.
    4. `promote`, `renew_manifest` and `withdraw` change a published version; its file never changes.

    Example::

        release = services.releases.publish("my-app", "1.4.0", Path("my-app-1.4.0.zip"), "Fixes.")
        services.releases.withdraw("my-app", "1.4.0")

    Raises an `InvalidInputError` for a value that breaks a rule, a `NotFoundError` for an unknown product or
    version, a `ConflictError` for a version that is published already, and an `ArtifactsError` if the file
    cannot be stored.
    """

    def publish(
        self,
        slug: str,
        version: str,
        file: Path,
        changelog: str = "",
        sign: ManifestSigner | None = None,
        **options: Unpack[PublishOptions],
    ) -> Release:
        """Publish a file as a version (PEP 440) of a product; its changelog is sanitized.

        The file is stored first and the database written last, together with the manifest: a crash between
        the two leaves no release. Without `sign` there is no manifest.
        """
        return self.add(self.stage(slug, version, file, changelog, sign, **options))

    def stage(
        self,
        slug: str,
        version: str,
        file: Path,
        changelog: str = "",
        sign: ManifestSigner | None = None,
        **options: Unpack[PublishOptions],
    ) -> StagedRelease:
        """Do the slow part of `publish`, outside of any transaction: check everything and store the file."""
        platform, channel = options.get("platform", ""), options.get("channel", "")
        reach, version = options.get("reach", TO_ALL), version.strip()
        reach.check(version)
        wordpress, security = read_fields(options.get("wordpress", NO_FIELDS)), options.get("security")
        published_on = options.get("published_on")
        if published_on is not None and not _FIRST_DAY <= published_on <= self._context.now().date():
            raise InvalidInputError(
                f"a version is published on a day from {_FIRST_DAY} to today in UTC, not on {published_on}"
            )
        product = find_product(self._context, slug)
        check_platform(platform)
        if channel:
            check_channel(channel)
        inspected = inspect_file(file, options.get("kind", ""), platform)
        kind = inspected.kind
        changelog = _check_changelog(changelog)
        files_of_version = self._context.repositories.releases.list_files(product.id, _version_key(version))
        if files_of_version:  # a further file has the version's spelling and description
            _check_further(slug, files_of_version, platform, kind, changelog, channel, wordpress, security)
            version, changelog = files_of_version[0].version, files_of_version[0].changelog
            channel, wordpress = files_of_version[0].channel, files_of_version[0].wordpress
            security = files_of_version[0].security
        document = files = None
        if sign is not None:  # before the file is stored: the manifest may be of another file
            size, sha256 = digest_file(validate_file(file))
            signed = sign(self._describe(slug, version, size, sha256, platform, kind))
            document, files = signed.document, signed.file_signatures
        with validate_file(file).open("rb") as source:
            artifact = self._context.artifacts.store(source, options.get("file_name") or file.name)
        if sign is not None and artifact.sha256 != sha256:
            raise InvalidInputError(f"{file} changed while it was published; publish it again")
        where = platform, channel or STABLE
        return StagedRelease(
            product,
            version,
            changelog,
            artifact,
            document,
            *where,
            reach,
            wordpress,
            files,
            security,
            published_on,
            inspected,
        )

    def add(self, staged: StagedRelease) -> Release:
        """Do the last step of `publish`; a further file shares the rollout of its version."""
        product, version, changelog, artifact, document, platform, channel = staged[:7]
        key, kind = _version_key(version), staged.inspected.kind
        with self._context.transaction() as tx:
            releases = tx.repositories.releases.list_all(product.id)
            rollout, critical_below = staged.reach.begin(version, releases, tx.now())
            if not tx.repositories.releases.add(
                product.id,
                version,
                key,
                changelog,
                artifact,
                _start_of(staged.published_on) or tx.now(),
                document,
                platform,
                rollout,
                staged.wordpress,
                kind,
                channel=channel,
                critical_below=critical_below,
                file_signatures=staged.file_signatures,
                security=dump_notice(staged.security),
            ):
                raise _published_already(product.slug, version, platform, kind)
            details = _describe_file(platform, kind)
            details |= {"channel": channel} if channel != STABLE else {}
            details |= {} if staged.security is None else {"security": True}
            stored = {"file": artifact.file_name, "size": artifact.size, "sha256": artifact.sha256}
            stored |= {"signed": document is not None, **details}
            stored |= {"rollout": rollout.plan} if rollout else {}
            tx.write_audit("release.publish", _object(product.slug, version), **stored)
            published = {"product": product.slug, "version": version, **details}
            tx.add_events(EventType.RELEASE_PUBLISHED, published)
            job = {"slug": product.slug, "version": version, "platform": platform}
            # A server of the release before knows no kinds, and its files have none.
            job |= {} if kind is FileKind.FOLDER else {"kind": kind.value}
            tx.repositories.queue.add(PATCHES, "/".join(job.values()), job, tx.now())
        return self.get(product.slug, version, platform, kind)

    def renew_manifest(
        self, slug: str, version: str, sign: ManifestSigner, platform: str = "", kind: str = ""
    ) -> Release:
        """Replace the manifest of a release; running servers return the new manifest at once."""
        release = self._get_offered(slug, version, platform, kind)
        artifact = release.artifact
        place = release.platform, release.kind
        signed = sign(self._describe(slug, release.version, artifact.size, artifact.sha256, *place))
        details = _describe_file(release.platform, release.kind)
        with self._context.transaction() as tx:
            signatures = signed.file_signatures
            tx.repositories.releases.renew_manifest(release, signed.document, tx.now(), signatures)
            details["signed_by"] = signed.key_ids
            tx.write_audit("release.renew", _object(slug, release.version), **details)
        return self.get(slug, version, release.platform, release.kind)

    def promote(self, slug: str, version: str, channel: str = STABLE) -> Release:
        """Move a version with all its files to another channel."""
        check_channel(channel)
        release = self._get_offered(slug, version)
        if release.channel != channel:
            with self._context.transaction() as tx:
                tx.repositories.releases.promote(release, channel)
                old_and_new = [release.channel, channel]
                tx.write_audit("release.promote", _object(slug, release.version), channel=old_and_new)
                promoted = {"product": slug, "version": release.version, "channel": channel}
                tx.add_events(EventType.RELEASE_PROMOTED, promoted)
        return self.get(slug, version)

    def set_wordpress(self, slug: str, version: str, **changes: str | None) -> Release:
        """Change some WordPress fields of a version with all its files.

        `changes` has names of `WordPressFields`; None or an empty text removes a field.
        """
        release = self._get_offered(slug, version)
        fields = read_fields(release.wordpress._replace(**changes))
        if release.wordpress != fields:
            with self._context.transaction() as tx:
                tx.repositories.releases.set_wordpress(release, fields)
                pairs = zip(fields._fields, release.wordpress, fields, strict=True)
                changed = {name: [old, new] for name, old, new in pairs if old != new}
                tx.write_audit("release.wordpress", _object(slug, release.version), **changed)
        return self.get(slug, version)

    def set_security(self, slug: str, version: str, security: SecurityNotice | None) -> Release:
        """Make a version with all its files a security release, change its notice, or end that with None.

        Update checks from then on go by it (D-331).
        """
        release = self._get_offered(slug, version)
        if release.security != security:
            with self._context.transaction() as tx:
                tx.repositories.releases.set_security(release, dump_notice(security))
                old_and_new = [dump_notice(release.security), dump_notice(security)]
                tx.write_audit("release.security", _object(slug, release.version), security=old_and_new)
        return self.get(slug, version)

    def withdraw(self, slug: str, version: str) -> Release:
        """Withdraw a version: it is not offered any more, and links to its files stop working."""
        release = self.get(slug, version)
        if release.withdrawn_at is None:
            with self._context.transaction() as tx:
                tx.repositories.releases.withdraw(release, tx.now())
                tx.write_audit("release.withdraw", _object(slug, release.version))
        return self.get(slug, version)

    def describe_withdrawal(self, slug: str, release: Release) -> str | None:
        """Return a warning, as a sentence, if a withdrawal leaves installations without a fix."""
        if not is_only_fix(release, self.list_all(slug)):
            return None
        return (
            f"{release.version} is a security release, and no higher one of its major version replaces it: "
            "installations below it are offered no fix any more."
        )

    def list_all(self, slug: str) -> list[Release]:
        """Return a product's releases, a file each, in the order of publication."""
        return self._context.repositories.releases.list_all(find_product(self._context, slug).id)

    def get(self, slug: str, version: str, platform: str = "", kind: str = "") -> Release:
        """Return a platform's file of a version; without a platform the default file, or else the first.

        With a `kind` only files of this kind count.
        """
        files = self.list_files(slug, version)
        version = files[0].version
        if kind:
            files = [file for file in files if file.kind == kind]
        matching = [file for file in files if file.platform == platform]
        if not matching and (platform or not files):
            name = f"version {version} of {slug} has no file"
            name += f" for {platform!r}" if platform else ""
            raise NotFoundError(name + (f" of the kind {str(kind)!r}" if kind else ""))
        return (matching or files)[0]

    def _get_offered(self, slug: str, version: str, platform: str = "", kind: str = "") -> Release:
        release = self.get(slug, version, platform, kind)
        if release.withdrawn_at is not None:
            raise InvalidInputError(
                f"version {release.version} of {slug} is withdrawn and not offered any more"
            )
        return release

    def list_files(self, slug: str, version: str) -> list[Release]:
        """Return the files of a version by platform and kind, the default first."""
        product = find_product(self._context, slug)
        files = self._context.repositories.releases.list_files(product.id, _version_key(version))
        if not files:
            raise NotFoundError(f"there is no version {version!r} of {slug}")
        return files

    def describe_audience(self, slug: str, release: Release) -> str | None:
        """Describe the audience of a pre-release in a sentence; return None for a stable version."""
        return describe_audience(release, self.list_all(slug))

    def describe_warnings(self, slug: str, staged: StagedRelease, release: Release) -> str | None:
        """Return what customers or WordPress would stumble over in a new file; None for nothing (D-410)."""
        warnings = (
            staged.inspected.warning,
            _describe_platform(release),
            describe_lower_version(release, self.list_all(slug)),
            self.describe_order(slug, release),
        )
        return " ".join(filter(None, warnings)) or None

    def describe_order(self, slug: str, release: Release) -> str | None:
        """Return a warning, as a sentence, if WordPress orders a version differently; otherwise None."""
        versions = [published.version for published in self.list_all(slug) if published.withdrawn_at is None]
        return explain_order(release.version, versions)

    def _describe(
        self, slug: str, version: str, size: int, sha256: bytes, platform: str, kind: FileKind
    ) -> Manifest:
        now = self._context.now()
        return Manifest(slug, version, size, sha256, now, now, platform, kind.value)


def check_platform(platform: str) -> None:
    """Raise `InvalidInputError` unless a text names a platform, or is empty for all."""
    if platform and not is_platform(platform):
        shape = "up to 40 lower-case letters, digits and _ . -, like windows-x86_64"
        raise InvalidInputError(f"{platform!r} is not a valid platform: use {shape}")


def _describe_platform(release: Release) -> str | None:
    """Return a warning of a platform that no app sends, or that is missing; None without such a mistake."""
    platform, kind = release.platform, release.kind
    if not platform and kind is not FileKind.FOLDER:
        return (
            f"Without a platform this file is offered on every system to apps that name no kind: {kind} is"
            " for one."
        )
    if (usual := correct_platform(platform)) is None:
        return None
    return f"No app is offered this file by itself: licclient sends the platform {usual}, not {platform}."


def _start_of(day: date | None) -> datetime | None:
    return None if day is None else datetime.combine(day, time(), UTC)


def _describe_file(platform: str, kind: FileKind) -> dict[str, Any]:
    """Describe for whom a file of a version is, for events and the audit log: what is usual is left out."""
    details: dict[str, Any] = {"platform": platform} if platform else {}
    return details | ({} if kind is FileKind.FOLDER else {"kind": kind.value})


def _object(slug: str, version: str) -> tuple[str, str]:
    return "release", f"{slug}/{version}"


def _version_key(text: str) -> str:
    return version_key(read_version(text))


def _check_changelog(changelog: str) -> str:
    changelog = sanitize(changelog) if len(changelog) <= MAX_CHANGELOG else changelog
    if len(changelog) > MAX_CHANGELOG:  # again: sanitizing may make it longer
        raise InvalidInputError(f"the changelog is longer than {MAX_CHANGELOG} characters")
    if not is_text(changelog):
        raise InvalidInputError("the changelog must not contain control characters")
    return changelog


def _check_further(
    slug: str,
    files: list[Release],
    platform: str,
    kind: FileKind,
    changelog: str,
    channel: str,
    wordpress: WordPressFields,
    security: SecurityNotice | None,
) -> None:
    """Refuse a further file of a withdrawn version, of the same platform and kind, or with other words."""
    first, version = files[0], files[0].version
    if any((file.platform, file.kind) == (platform, kind) for file in files):
        raise _published_already(slug, version, platform, kind)
    if first.withdrawn_at is not None:
        raise ConflictError(f"version {version} of {slug} is withdrawn; publish a higher version")
    if changelog not in ("", first.changelog):
        raise InvalidInputError(
            f"version {version} of {slug} has another changelog already; leave it out for a further file"
        )
    if channel not in ("", first.channel):
        raise InvalidInputError(
            f"version {version} of {slug} is in the channel {first.channel} already; to move it: "
            f"licserver release promote {slug} {version} --channel {channel}"
        )
    if security not in (None, first.security):
        raise InvalidInputError(
            f"version {version} of {slug} has another security notice already; to change it: "
            f"licserver release security {slug} {version}"
        )
    if wordpress not in (NO_FIELDS, first.wordpress):
        raise InvalidInputError(
            f"version {version} of {slug} has other fields for WordPress already; to change them: "
            f"licserver release wordpress {slug} {version}"
        )


def _published_already(slug: str, version: str, platform: str, kind: FileKind) -> ConflictError:
    for_platform = (f" for {platform}" if platform else "") + name_kind(kind)
    return ConflictError(
        f"there is a version {version} of {slug} already{for_platform}; a published version never changes, "
        "choose a higher one"
    )


# --- staged rollouts: share, pause, end, and status -------------------------------------------


_FIRST_DAY: Final = date(1980, 1, 1)  # year 1 was typed by mistake, and updaters cannot read it
_ADOPTION: Final = timedelta(days=1)  # the update checks of today and yesterday


class RolloutStatus(NamedTuple):
    """The adoption of a version.

    Args:
        release: Its first file.
        percent: The percentage of installations that are offered the version.
        checks: Update checks by installations of this version, today and yesterday.
        checks_of_all: Update checks by all installations of the product.
        rolled_back: Installations that were rolled back, as reported by their apps.
        exit_codes: How many of them by the exit code of their set-up, the most frequent codes first.
    """

    release: Release
    percent: float
    checks: int
    checks_of_all: int
    rolled_back: int
    exit_codes: Mapping[int, int]


_SHOWN_EXIT_CODES: Final = 10

_ROLLBACKS_OF_DAY: Final = 100
"""Reports of a license that count in a day: its key may be valid for any number of computers."""


class RolloutService(Service):
    """Changes rollouts of versions, and counts rollback reports."""

    def get(self, slug: str, version: str) -> RolloutStatus:
        """Return the adoption of a version."""
        files = ReleaseService(self._context).list_files(slug, version)
        repositories, now = self._context.repositories, self._context.now()
        checks = {
            reported: count
            for _, reported, count in repositories.statistics.sum_versions(now.date() - _ADOPTION, slug)
        }
        rollout, ids = files[0].rollout, [file.id for file in files]
        return RolloutStatus(
            files[0],
            100.0 if rollout is None else round(current_share(rollout, now) * 100, 1),
            checks.get(files[0].version, 0),
            sum(checks.values()),
            repositories.releases.count_rollbacks(ids),
            repositories.releases.count_exit_codes(ids, _SHOWN_EXIT_CODES),
        )

    def change(
        self, slug: str, version: str, *, percent: float | None = None, paused: bool | None = None
    ) -> RolloutStatus:
        """Pause or resume a rollout, or fix its share; 100 percent end the rollout."""
        if (percent is None) == (paused is None):
            raise InvalidInputError("give the share of a rollout, or whether it is paused")
        with self._context.transaction() as tx:
            release = ReleaseService(tx).get(slug, version)
            before, now = release.rollout, tx.now()
            if before is None or release.withdrawn_at is not None:
                why = "is withdrawn" if release.withdrawn_at else "reaches all installations already"
                raise InvalidInputError(f"version {release.version} of {slug} {why}")
            after: Rollout | None = before
            if percent is not None:
                after = _set_share(percent, before, now)
            elif paused and before.paused_at is None:
                after = before._replace(paused_at=now)
            elif not paused and before.paused_at is not None:
                after = Rollout(before.plan, before.started_at + (now - before.paused_at))
            tx.repositories.releases.set_rollout(release, after)
            tx.write_audit(
                "release.rollout",
                ("release", f"{slug}/{release.version}"),
                share=f"{current_share(after, now) if after else 1:.0%}",
                paused=after is not None and after.paused_at is not None,
            )
        return self.get(slug, version)

    def count_rollback(
        self,
        license_: IssuedLicense,
        slug: str,
        version: str,
        domain: str,
        platform: str,
        exit_code: int | None = None,
    ) -> bool:
        """Count an installation that was rolled back from a version; return whether it counts.

        It counts once, if it is activated and its license's product has the version.
        """
        if slug != license_.product_slug:
            return False
        try:
            files = ReleaseService(self._context).list_files(slug, version)
        except InvalidInputError:
            return False
        release = next((file for file in files if file.platform == platform), files[0])
        now, license_hash = self._context.now(), self._context.vault.pseudonym("rollbacks", license_.id.hex())
        with self._context.transaction() as tx:
            counts = tx.repositories.daily_counts
            if counts.read(license_hash, now.date()) >= _ROLLBACKS_OF_DAY:
                return False
            is_counted = tx.repositories.releases.add_rollback(
                release.id, license_.id, domain, now, exit_code
            )
            if is_counted:
                counts.add(license_hash, now.date())
        return is_counted


def _set_share(percent: float, before: Rollout, now: datetime) -> Rollout | None:
    reached = current_share(before, now) * 100
    if not max(reached, 0.01) <= percent <= 100:  # noqa: PLR2004 - an offer is never taken back
        raise InvalidInputError(
            f"{reached:.4g}% are reached already, and the share never decreases: give one up to 100%; or "
            "pause the rollout, or withdraw the version"
        )
    written = round(percent, 2)
    if written < reached:
        written += 0.01
    return None if percent == 100 else Rollout(f"{written:.2f}%", now)  # noqa: PLR2004
