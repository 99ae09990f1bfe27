"""Sanitize changelogs: plain text stays as it is, HTML is reduced to harmless elements. Pure."""

import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import nh3

_TAG: Final = re.compile(r"<[A-Za-z/!?]")
"""What a browser takes for the start of a tag or comment, even if it never ends."""

_TAGS: Final = {
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "blockquote", "pre", "br", "hr"),
    *("ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td"),
    *("a", "b", "strong", "i", "em", "u", "s", "ins", "del", "small", "sub", "sup", "span", "code", "kbd"),
}


def is_html(changelog: str) -> bool:
    """Return whether a changelog is HTML; text without the start of a tag is plain text."""
    return _TAG.search(changelog) is not None


def sanitize(changelog: str) -> str:
    """Return plain text unchanged, and HTML with harmless elements only (spec 2, D-65).

    Sanitized HTML contains a tag, so that clients do not take it for plain text.
    """
    if not is_html(changelog):
        return changelog
    sanitized = _cleaner().clean(changelog).strip()
    return sanitized if not sanitized or is_html(sanitized) else f"<p>{sanitized}</p>"


@cache
def _cleaner() -> "nh3.Cleaner":
    import nh3  # noqa: PLC0415 - needed only to publish

    return nh3.Cleaner(
        tags=_TAGS,
        attributes={"a": {"href", "title"}},
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",  # an app has no base address
    )
