"""What of a changelog is kept: plain text as it is, of HTML the harmless part. Pure."""

import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import nh3

_TAG: Final = re.compile(r"<[A-Za-z/!?]")
"""What a browser takes for the beginning of a tag or a comment, also when it never ends."""

_TAGS: Final = {
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "blockquote", "pre", "br", "hr"),
    *("ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td"),
    *("a", "b", "strong", "i", "em", "u", "s", "ins", "del", "small", "sub", "sup", "span", "code", "kbd"),
}


def is_html(changelog: str) -> bool:
    """Tell whether a changelog is HTML; what has no beginning of a tag in it is plain text."""
    return _TAG.search(changelog) is not None


def clean(changelog: str) -> str:
    """Reduce a changelog to what can be shown anywhere (spec 2: plain text or basic HTML, D-65).

    Args:
        changelog: As the vendor wrote it.

    Returns:
        Plain text unchanged: put into a page as it is, it does nothing. Of HTML, headings, paragraphs, lists,
        tables, emphasis and links to the web; scripts, styles, frames, pictures, forms and all handlers
        are gone. It always holds a tag then, so that nobody takes it for plain text.
    """
    if not is_html(changelog):
        return changelog
    cleaned = _cleaner().clean(changelog).strip()
    return cleaned if not cleaned or is_html(cleaned) else f"<p>{cleaned}</p>"


@cache
def _cleaner() -> "nh3.Cleaner":
    import nh3  # noqa: PLC0415 - only who publishes pays for it

    return nh3.Cleaner(
        tags=_TAGS,
        attributes={"a": {"href", "title"}},
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",  # relative to what, in an app?
    )
