"""Products and their versions: upload, changelog, rollout, withdrawal."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from markupsafe import Markup

from licserver.domain.channel_offers import latest_by_platform
from licserver.domain.entitlements import format_grants
from licserver.domain.offers import RolloutOptions, latest_by_channel
from licserver.domain.records import (
    CUSTOMER_MOVES,
    DEFAULT_POLICY,
    STABLE,
    AfterSupport,
    EnvironmentPolicy,
    FileKind,
    Release,
    SecurityNotice,
    WordPressFields,
)
from licserver.domain.security_notices import read_notice
from licserver.domain.text import is_html, sanitize
from licserver.errors import InvalidInputError
from licserver.services.installation import Services
from licserver.services.lists import MAX_PAGE
from licserver.services.products import describe_missing_minimum, describe_rename, read_version
from licserver.services.release_files import NAMES
from licserver.services.releases import StagedRelease
from licserver.web.console.formatting import choose, parse_grant_lines
from licserver.web.console.pages import (
    Actions,
    Csv,
    HtmlPage,
    PageContext,
    Redirect,
    Reply,
    act,
    do_once,
    in_pages,
)
from licserver.web.console.pages.licenses import licenses_csv
from licserver.web.uploads import Upload

PUBLISH_FIELDS: Final = (
    *("version", "changelog", "platform", "new_platform", "kind", "channel", "new_channel", "rollout"),
    *("critical_below", "security", "advisory", "cves"),
    *WordPressFields._fields,
)
_MOST_DIGITS: Final = 9  # the service has the limit

POLICIES: Final = {
    EnvironmentPolicy.DOMAIN: "domain (desktop apps)",
    EnvironmentPolicy.STRICT: "domain and IP address",
    EnvironmentPolicy.EITHER: "domain or IP address",
}
"""The labels of the rules that identify a machine."""

PLATFORMS: Final = (
    "windows-x86_64",
    "windows-arm64",
    "macos-arm64",
    "macos-x86_64",
    "linux-x86_64",
    "linux-arm64",
)
"""The platforms that `licclient` sends by default."""

KINDS: Final = {**NAMES, FileKind.FOLDER: "folder or other file"}
"""The names of the kinds of files in the form."""


def show_all(context: PageContext) -> HtmlPage:
    """Show all products, and the form for a new product."""
    usual = {"moves": str(CUSTOMER_MOVES), "idle": "0", "trial": "0", "policy": DEFAULT_POLICY.value}
    names = ("name", "slug", "policy", "support", "covered", "imported", "feed", "moves", "idle", "trial")
    form = context.typed(*names)
    form = {name: text or usual.get(name, "") for name, text in form.items()}
    products = context.services.products.list_all()
    return HtmlPage("products.html", products=products, policies=POLICIES, form=form)


def add(context: PageContext) -> Redirect:
    """Add a product."""
    slug, name = context.from_form("slug"), context.from_form("name")
    product = context.services.products.add(slug, name, **_rules(context))
    return Redirect(f"/console/products/{product.slug}", "product")


def _rules(context: PageContext) -> dict[str, Any]:
    """Parse the rules of a product."""
    policy = choose(EnvironmentPolicy, context.from_form("policy"), "choose what identifies a machine")
    fields = {"customer_moves": "moves", "idle_days": "idle", "trial_days": "trial"}
    numbers = {name: context.from_form(field) for name, field in fields.items()}
    if not all(text.isdecimal() for text in numbers.values() if text):
        raise InvalidInputError("slots that customers may free, and days, are numbers; 0 for none")
    # Browsers send nothing for a box that is not ticked.
    return {
        "policy": policy,
        "has_support_policy": bool(context.from_form("support")),
        "accepts_imported_keys": bool(context.from_form("imported")),
        "public_feed": bool(context.from_form("feed")),
        "after_support": AfterSupport.COVERED if context.from_form("covered") else AfterSupport.NONE,
        **{name: int(text[:_MOST_DIGITS]) for name, text in numbers.items() if text},
    }


def show(context: PageContext) -> HtmlPage:
    """Show a product with its versions, and the form for a new version."""
    product = context.services.products.get(context.parts["slug"])
    rules: Mapping[str, Any] = {
        "policy": product.policy.value,
        "support": product.has_support_policy,
        "imported": product.accepts_imported_keys,
        "feed": product.public_feed,
        "covered": product.after_support is AfterSupport.COVERED,
        "moves": product.customer_moves,
        "idle": product.idle_days,
        "trial": product.trial_days,
        "minimum": product.minimum_version or "",
    }
    if "policy" in context.form:
        rules = context.typed(*rules)
    releases = context.services.releases.list_all(product.slug)
    by_channel = latest_by_channel(releases)
    plans = context.services.plans.list_all(product.slug)
    fields = (*PUBLISH_FIELDS, "name", "plan", "entitlements", "is_new")
    return HtmlPage(
        "product.html",
        product=product,
        platforms=sorted({*PLATFORMS, *(release.platform for release in releases if release.platform)}),
        kinds=KINDS,
        channels=_list_channels(by_channel),
        offered={file.id for files in by_channel.values() for file in files.values()},
        policy=POLICIES[product.policy],
        policies=POLICIES,
        rules=rules,
        releases=releases[::-1],
        kind_names=NAMES,
        here=context.page,
        plans=[(plan.name, "\n".join(format_grants(plan.entitlements))) for plan in plans],
        form={name: context.form.get(name, "") for name in fields},
    )


def _save_plan(context: PageContext) -> None:
    plans, slug, name = context.services.plans, context.parts["slug"], context.from_form("plan")
    entitlements = parse_grant_lines(context.form.get("entitlements", ""))
    if context.from_form("is_new"):
        plans.add(slug, name, entitlements)
    else:
        plans.change(slug, name, entitlements, replaces=True)


def _change_rules(context: PageContext) -> Reply:
    """Change the rules; the form is asked again if apps would be required to have what is not offered."""
    slug, minimum = context.parts["slug"], context.from_form("minimum")
    product = context.services.products.get(slug)
    if minimum and minimum != product.minimum_version:
        read_version(minimum)
        effect = describe_missing_minimum(product._replace(minimum_version=minimum))
        if effect and (page := context.ask(f"Require {minimum}?", [effect], "Require")):
            return page
    context.services.products.change(slug, minimum_version=minimum, **_rules(context))
    return context.back("rules")


def _rename(context: PageContext) -> Reply:
    """Rename a product; the form is asked again with the effects on apps."""
    slug, name = context.parts["slug"], context.from_form("name")
    product = context.services.products.get(slug)
    effects = describe_rename(product, name)
    question = f"Rename {product.name} to {name}?"
    if name and effects and (page := context.ask(question, effects, "Rename")):
        return page
    context.services.products.rename(slug, name)
    return context.back("renamed")


ACTIONS: Final[Actions] = {
    "rename": _rename,
    "rules": _change_rules,
    "save-plan": act("plan", _save_plan),
    "remove-plan": act(
        "plan-removed", lambda c: c.services.plans.remove(c.parts["slug"], c.from_form("plan"))
    ),
}


def export(context: PageContext) -> Csv:
    """Export all products."""
    rows = [
        (
            product.slug,
            product.name,
            product.policy.value,
            product.has_support_policy,
            product.latest and product.latest.version,
        )
        for product in context.services.products.list_all()
    ]
    return Csv("products", ("slug", "name", "environment", "support policy", "latest version"), [rows])


# --- releases ---------------------------------------------------------------------------------


def _list_channels(released: Iterable[str]) -> list[str]:
    """Return the channels that can be chosen, `stable` first."""
    return [STABLE, *sorted({*released} - {STABLE})]


def _chosen(context: PageContext, name: str) -> str:
    """Return a typed new value, otherwise the chosen existing value."""
    return context.from_form(f"new_{name}") or context.from_form(name)


def publish(context: PageContext, upload: Upload) -> Redirect:
    """Publish an uploaded file as a version; the file is stored before the transaction begins."""
    slug, changelog = context.parts["slug"], context.from_form("changelog").replace("\r\n", "\n")

    def stage() -> StagedRelease:
        return context.services.releases.stage(
            slug,
            context.from_form("version"),
            upload.path,
            changelog,
            file_name=upload.file_name,
            platform=_chosen(context, "platform"),
            kind=context.from_form("kind"),
            channel=_chosen(context, "channel"),
            reach=RolloutOptions(
                context.from_form("rollout") or None, context.from_form("critical_below") or None
            ),
            wordpress=WordPressFields(*(context.from_form(name) for name in WordPressFields._fields)),
            security=_read_notice(context),
        )

    def add_staged(tx: Services, staged: StagedRelease) -> Redirect:
        version, flaws = tx.releases.add(staged).version, staged.inspected.flaws
        done = f"published-{flaws[0]}" if flaws else "published"
        return Redirect(f"/console/products/{slug}/releases/{version}", done)

    return do_once(context, add_staged, stage, [upload.file_name, upload.sha256.hex()])


def _read_notice(context: PageContext) -> SecurityNotice | None:
    return read_notice(
        context.from_form("advisory"),
        context.from_form("cves").replace(",", " ").split(),
        is_security=bool(context.from_form("security")),
    )


def show_release(context: PageContext) -> HtmlPage:
    """Show a version."""
    slug = context.parts["slug"]
    product = context.services.products.get(slug)
    files = context.services.releases.list_files(slug, context.parts["version"])
    release = files[0]
    by_channel = latest_by_channel(context.services.releases.list_all(slug))
    offered = by_channel[release.channel].values()
    wordpress = {name: text or "" for name, text in release.wordpress._asdict().items()}
    if "requires" in context.form:
        wordpress = context.typed(*WordPressFields._fields)
    return HtmlPage(
        "release.html",
        product=product,
        release=release,
        files=files,
        kind_names=NAMES,
        is_latest=any(file.version == release.version for file in offered),
        channels=_list_channels(by_channel),
        offered_versions=_list_versions(offered),
        status=context.services.rollouts.get(slug, release.version),
        audience=context.services.releases.describe_audience(slug, release),
        warning=context.services.releases.describe_order(slug, release),
        holders=context.services.licenses.list_entitled(slug, release.version, limit=10).items,
        changelog=_render_changelog(release.changelog),
        wordpress=wordpress,
        notice=_typed_notice(context, release.security),
        here=context.page,
    )


def _typed_notice(context: PageContext, notice: SecurityNotice | None) -> Mapping[str, str]:
    """Return the fields of the security notice's form: as typed, otherwise as stored."""
    if "cves" in context.form:
        return {name: context.from_form(name) for name in ("security", "advisory", "cves")}
    advisory, cves = notice or SecurityNotice(None, ())
    return {"security": "on" if notice else "", "advisory": advisory or "", "cves": ", ".join(cves)}


def _promote(context: PageContext) -> None:
    slug, version = context.parts["slug"], context.parts["version"]
    context.services.releases.promote(slug, version, _chosen(context, "channel") or STABLE)


def _withdraw(context: PageContext) -> Reply:
    slug, version = context.parts["slug"], context.parts["version"]
    product, releases = context.services.products.get(slug), context.services.releases.list_all(slug)
    remaining = [release for release in releases if release.version != version]
    channel = next((release.channel for release in releases if release.version == version), STABLE)
    after = _list_versions(latest_by_platform(remaining, channel).values())
    effects = [
        f"{product.name} {version} is no longer offered, and links to its files stop working at once.",
        f"Update checks offer {after} from then on." if after else "Update checks offer nothing then.",
        "This cannot be undone: this version can never be published again.",
    ]
    release = context.services.releases.get(slug, version)
    if warning := context.services.releases.describe_withdrawal(slug, release):
        effects.insert(0, warning)
    if question := context.ask(f"Withdraw {product.name} {version}?", effects, f"Withdraw {version}"):
        return question
    context.services.releases.withdraw(slug, version)
    return context.back("withdrawn")


def _change_wordpress(context: PageContext) -> None:
    slug, version = context.parts["slug"], context.parts["version"]
    context.services.releases.set_wordpress(slug, version, **context.typed(*WordPressFields._fields))


def _change_security(context: PageContext) -> None:
    slug, version = context.parts["slug"], context.parts["version"]
    context.services.releases.set_security(slug, version, _read_notice(context))


def _change_rollout(context: PageContext) -> None:
    """Pause, resume or finish the rollout of a version, or set its share."""
    slug, version, action = context.parts["slug"], context.parts["version"], context.from_form("act")
    typed = "100" if action == "finish" else context.from_form("percent").removesuffix("%")
    if action in ("pause", "resume"):
        context.services.rollouts.change(slug, version, paused=action == "pause")
    elif typed.isdecimal():
        context.services.rollouts.change(slug, version, percent=int(typed[:_MOST_DIGITS]))
    else:
        raise InvalidInputError("the share is a whole number of percent, such as 50")


RELEASE_ACTIONS: Final[Actions] = {
    "promote": act("promoted", _promote),
    "withdraw": _withdraw,
    "rollout": act("rollout", _change_rollout),
    "security": act("security", _change_security),
    "wordpress": act("wordpress", _change_wordpress),
}


def _list_versions(releases: Iterable[Release]) -> str:
    """Format the versions of releases, which may differ by platform."""
    return " or ".join(dict.fromkeys(release.version for release in releases))


_COLUMNS: Final[Mapping[str, Callable[[Release], Any]]] = {
    "version": lambda release: release.version,
    "platform": lambda release: release.platform,
    "kind": lambda release: release.kind.value,
    "channel": lambda release: release.channel,
    "file": lambda release: release.artifact.file_name,
    "bytes": lambda release: release.artifact.size,
    "sha256": lambda release: release.artifact.sha256.hex(),
    "published at": lambda release: release.published_at,
    "withdrawn at": lambda release: release.withdrawn_at,
    "signed": lambda release: release.manifest is not None,
    "requires": lambda release: release.wordpress.requires,
    "tested": lambda release: release.wordpress.tested,
    "requires php": lambda release: release.wordpress.requires_php,
    "details url": lambda release: release.wordpress.details_url,
}
"""The columns of the CSV file of versions."""


def export_releases(context: PageContext) -> Csv:
    """Export a product's versions."""
    slug = context.parts["slug"]
    releases = context.services.releases.list_all(slug)
    rows = [tuple(get(release) for get in _COLUMNS.values()) for release in releases]
    return Csv(f"releases-{slug}", tuple(_COLUMNS), [rows])


def export_holders(context: PageContext) -> Csv:
    """Export the licenses whose holders may download a version."""
    slug, version = context.parts["slug"], context.parts["version"]
    pages = in_pages(lambda cursor: context.services.licenses.list_entitled(slug, version, cursor, MAX_PAGE))
    return licenses_csv(f"downloads-{slug}", context, pages)


def _render_changelog(text: str) -> Markup:
    """Render a changelog as apps should: as plain text, or as sanitized HTML."""
    if not is_html(text):
        return Markup("<pre>{}</pre>").format(text)
    # Again: the row may not have been written by `publish`.
    return Markup(sanitize(text))  # noqa: S704 - sanitized
