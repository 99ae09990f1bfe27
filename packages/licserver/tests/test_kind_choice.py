"""Which file of a version an app is offered, by the kind that it names (D-187)."""

from datetime import UTC, datetime
from itertools import permutations
from typing import Any
from zlib import crc32

import pytest

from licserver.domain.channel_offers import (
    describe_audience,
    describe_lower_version,
    is_only_fix,
    latest,
    latest_by_kind,
)
from licserver.domain.offers import (
    Installation,
    OfferedProduct,
    evaluate_public_feed,
    find_candidates,
    find_download,
    is_file_kind,
    latest_by_channel,
    list_downloads,
    list_offered,
    list_releases,
)
from licserver.domain.records import (
    AfterSupport,
    Artifact,
    FileKind,
    LicenseSnapshot,
    Product,
    Release,
    Rollout,
    SecurityNotice,
)

PUBLISHED = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 2, 1, tzinfo=UTC)
WINDOWS, MACOS = "windows-x86_64", "macos-arm64"
PRODUCT = Product(7, "app", "App", public_feed=True)
LICENSE = LicenseSnapshot(b"1", 7, "App")


def release(version: str, kind: str = "folder", platform: str = "", **fields: Any) -> Release:
    """Return a file of a version; `id` is its only name."""
    number = crc32(f"{version} {kind} {platform}".encode())
    artifact = Artifact("app", 1, b"")
    made = Release(number, 7, version, "", PUBLISHED, artifact, platform=platform, kind=FileKind(kind))
    return made._replace(**fields)


def name(offered: Release | None) -> str | None:
    """Name a file by version, kind and platform."""
    return offered and " ".join(filter(None, (offered.version, offered.kind, offered.platform)))


FILES = [
    release("1.0"),
    release("1.0", "nsis", WINDOWS),
    release("1.1", "msi", WINDOWS),
    release("1.1", "inno", WINDOWS),
    release("1.2", "folder", MACOS),
    release("1.2", "app", MACOS),
    release("1.2", "appimage"),
]
OFFERS = {
    "a folder comes first": ("", MACOS, "1.2 folder macos-arm64"),
    "else the first kind": ("", "linux", "1.2 appimage"),
    "the kind that is named": ("app", MACOS, "1.2 app macos-arm64"),
    "an older version has it": ("nsis", WINDOWS, "1.0 nsis windows-x86_64"),
    "the default file of the kind": ("appimage", WINDOWS, "1.2 appimage"),
    "a named folder is no other": ("folder", WINDOWS, "1.0 folder"),
    "no version has it for the platform": ("app", WINDOWS, None),
    "no version has it at all": ("msi", "", None),
}


@pytest.mark.parametrize(("kind", "platform", "expected"), OFFERS.values(), ids=OFFERS.keys())
def test_an_app_is_offered_the_file_of_its_kind(kind, platform, expected):
    """Whatever the order of publication; an app that names no kind gets each version."""
    for files in (FILES, FILES[::-1]):
        assert name(latest(files, platform, kind=kind)) == expected
        assert name(OfferedProduct(PRODUCT, files).find_offers((), platform, kind).latest) == expected
        verdict = evaluate_public_feed(OfferedProduct(PRODUCT, files), (), platform, "", kind)
        assert name(getattr(verdict, "release", None)) == expected


def test_an_app_without_a_kind_gets_the_first_in_a_fixed_order():
    """A folder for all platforms before the platform's own set-up; of two set-ups the first kind."""
    kinds = ["folder", "appimage", "nsis", "inno", "msi", "app"]
    assert [*FileKind] == kinds
    files = [release("1.0", kind, WINDOWS) for kind in kinds]
    while files:
        for order in [*permutations(files)][:24]:
            assert latest(order, WINDOWS).kind == files[0].kind
        files.pop(0)
    assert name(latest([release("1.0"), release("1.0", "nsis", WINDOWS)], WINDOWS)) == "1.0 folder"
    assert name(latest([release("1.0", "nsis"), release("1.0", "nsis", WINDOWS)], WINDOWS, kind="nsis")) == (
        "1.0 nsis windows-x86_64"
    )


def test_each_kind_has_its_own_rollout_fixes_and_covered_versions():
    """The lists of candidates, security releases and covered versions have files of the kind alone."""
    rollout, fix = Rollout("10%", PUBLISHED), SecurityNotice(None, ())
    product = PRODUCT._replace(after_support=AfterSupport.COVERED, has_support_policy=True)
    files = [
        release("1.0", "msi"),
        release("1.0"),
        release("1.1", "msi", rollout=rollout),
        release("1.2", rollout=rollout, security=fix),
        release("1.2", "msi", rollout=rollout, security=fix),
    ]
    assert [*map(name, find_candidates(files, kind="msi"))] == ["1.2 msi", "1.1 msi", "1.0 msi"]
    assert [*map(name, find_candidates(files))] == ["1.2 folder", "1.1 msi", "1.0 folder"]
    offered = OfferedProduct(product, files)
    for kind, expected in (("", "folder"), ("folder", "folder"), ("msi", "msi")):
        found = offered.find_offers((), "", kind)
        assert [*map(name, found.fixes)] == [f"1.2 {expected}"]
        assert {name(item.candidates[0]) for item in found.covered[0]} == {f"1.2 {expected}"}
    assert offered.find_offers((), "", "nsis").candidates == ()
    assert {*map(name, list_offered(product, files))} == {*map(name, files)}


def test_what_is_computed_stays_bounded():
    """A kind is one of six, so that requests cannot make more of them."""
    offered = OfferedProduct(PRODUCT, FILES)
    for kind in ("", *FileKind):
        for platform in ("", WINDOWS, MACOS, *map(str, range(50))):
            offered.find_offers((), platform, kind)
    assert len(offered._of_channels) == len(offered._offered) == 7 * 3
    assert not is_file_kind("") and not is_file_kind("exe") and is_file_kind("msi")  # noqa: PT018


def test_pages_list_the_newest_file_of_each_platform_and_kind():
    """An app that names its kind is offered it, so that a page shows it as the latest."""
    listed = {
        f"{platform} {kind}".strip(): item.version for (platform, kind), item in latest_by_kind(FILES).items()
    }
    assert listed == {
        "folder": "1.0",
        "windows-x86_64 nsis": "1.0",
        "windows-x86_64 msi": "1.1",
        "windows-x86_64 inno": "1.1",
        "macos-arm64 folder": "1.2",
        "macos-arm64 app": "1.2",
        "appimage": "1.2",
    }
    assert latest_by_channel(FILES)["stable"] == latest_by_kind(FILES)
    downloads = list_downloads(OfferedProduct(PRODUCT, FILES), LICENSE, (), NOW)
    assert downloads == latest_by_kind(FILES)
    older = [release("2.0", "nsis"), release("1.9", "nsis", WINDOWS)]
    assert latest_by_kind(older).keys() == {("", "nsis")}


def test_a_link_of_a_page_names_platform_and_kind():
    """Without a kind it is the first that there is, and without a file of the platform the default."""
    downloads = list_downloads(OfferedProduct(PRODUCT, FILES), LICENSE, (), NOW)
    for platform, kind, expected in [
        (WINDOWS, "msi", "1.1 msi windows-x86_64"),
        (WINDOWS, "", "1.0 nsis windows-x86_64"),
        ("", "", "1.0 folder"),
        ("haiku", "", "1.0 folder"),
        ("haiku", "msi", None),
        (MACOS, "exe", None),
    ]:
        assert name(find_download(downloads, platform, kind)) == expected


def test_a_list_for_sparkle_has_files_of_the_kind():
    """Those of other channels too."""
    files = [*FILES, release("2.0b1", "app", MACOS, channel="beta"), release("2.0b1", channel="beta")]
    offered = OfferedProduct(PRODUCT, files)
    verdict = evaluate_public_feed(offered, (), MACOS, "", "app")
    listed = list_releases(verdict, offered, (), MACOS, Installation("", ""), NOW, "app")
    assert [name(item.release) for item in listed] == ["1.2 app macos-arm64", "2.0b1 app macos-arm64"]


def test_a_pre_release_of_a_kind_is_described_for_apps_of_this_kind():
    """A stable version of another kind is nothing for them."""
    files = [release("1.0"), release("2.0b1", "msi"), release("2.0b1")]
    assert "no installation" in (describe_audience(files[2], files) or "")
    assert "installations of a pre-release are offered it" in (describe_audience(files[1], files) or "")


def test_a_fix_of_another_kind_replaces_none():
    """The withdrawal of the last fix of a kind is warned of."""
    fix = SecurityNotice(None, ())
    lower, higher = release("1.1", "msi", security=fix), release("1.2", "nsis", security=fix)
    assert is_only_fix(lower, [lower, higher])
    assert not is_only_fix(lower, [lower, higher._replace(kind=FileKind.MSI)])
    assert not is_only_fix(lower._replace(kind=FileKind.FOLDER), [lower, higher])


def test_kinds_that_a_version_lacks_are_named():
    """Their apps stay at an earlier version, and nobody would notice."""
    files = [
        release("1.0", "msi", WINDOWS),
        release("1.0", "appimage"),
        release("1.0"),
        release("1.1", "nsis", WINDOWS),
    ]
    assert describe_audience(files[3], files) == (
        "Apps of these kinds are offered an earlier version until 1.1 has a file for them: "
        "appimage (1.0), folder (1.0), msi for windows-x86_64 (1.0)."
    )
    assert describe_audience(files[0], files) is None
    others = [release("1.1", "msi", WINDOWS), release("1.1", "appimage"), release("1.1")]
    assert describe_audience(files[3], [*files, *others]) is None
    withdrawn = [file._replace(withdrawn_at=NOW) for file in files[:2]]
    assert "until 1.1 has a file for them: folder (1.0)." in str(
        describe_audience(files[3], [*withdrawn, *files[2:]])
    )


@pytest.mark.parametrize(
    ("further", "is_missing"),
    [
        (("appimage", "linux-x86_64"), True),
        (("folder", "linux-x86_64"), False),
        (("msi", WINDOWS), False),  # it is of another platform, which has its own sentence
        (("folder", WINDOWS), False),
        (("appimage", ""), True),
    ],
)
def test_apps_in_folders_that_get_another_file_alone(further, is_missing):
    """A version for one platform after the other is not unusual; another kind in its place is (D-409)."""
    new = release("2.0", *further)
    audience = describe_audience(new, [release("1.9", "folder", "linux-x86_64"), new]) or ""
    assert ("folder for linux-x86_64 (1.9)" in audience) is is_missing


def test_a_version_that_is_never_offered():
    """Its number is below what is offered in its place, unless it is a fix or in another channel."""
    new, fix = release("0.5"), release("0.5", security=SecurityNotice(None, ()))
    assert describe_lower_version(new, [release("1.0"), new]) == (
        "No app is offered 0.5, as 1.0 is higher: check the number, and withdraw the version if it is wrong."
    )
    for other in (release("0.4"), release("1.0", "msi"), release("1.0", platform=WINDOWS)):
        assert describe_lower_version(new, [other, new]) is None, other
    assert describe_lower_version(fix, [release("1.0"), fix]) is None
    assert describe_lower_version(release("0.5", channel="beta"), [release("1.0")]) is None
    assert describe_lower_version(new, []) is None
