"""Pure: a changelog as plain text, which can be shown anywhere, and as HTML of that text.

A changelog is plain text or basic HTML (spec 2). Services clean it when it is published, but nobody signs it,
so it is untrusted here. The standard library's `html.parser` takes minutes for a megabyte made for that
purpose; here the time grows with the length of the text (D-65).
"""

import re
from html import escape, unescape
from typing import Final

_IS_HTML: Final = re.compile(r"<[A-Za-z/!?]")
_NOT_SHOWN: Final = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<[!?][^>]*>?"
    r"|<(script|style|title|textarea|iframe|noscript|noembed|noframes|template|xmp|svg|math|object|select)"
    r"(?![a-z0-9])[^<>]*>.*?(?:</\1(?![a-z0-9])[^<>]*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_TAG: Final = re.compile(r"<(/?)([a-z][a-z0-9]{0,15})(?![a-z0-9])([^<>]*)>", re.IGNORECASE)
_HREF: Final = re.compile(r"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(https?://|mailto:)[\x21-\x7e]+", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

_LINES: Final = frozenset({"li", "ul", "ol", "dt", "dd", "tr", "div"})
_PARAGRAPHS: Final = frozenset(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "dl", "table", "blockquote", "pre", "hr"}
)
_BULLET: Final = "- "


def to_html(changelog: str) -> str:
    """Return the same text as HTML: escaped, lines separated by `<br>`, and no other element."""
    return "<br>\n".join(map(escape, to_text(changelog).splitlines()))


def to_text(changelog: str) -> str:
    """Return a changelog as plain text, without HTML and control characters.

    Each line, item and row has a line, items begin with `- `, empty lines separate paragraphs, and addresses
    follow their links in parentheses.
    """
    if _IS_HTML.search(changelog) is None:
        return "\n".join(_plain(changelog).splitlines()).strip()
    first, *rest = _TAG.split(_NOT_SHOWN.sub("", changelog))
    written, link, is_preformatted = ["\n"], "", False
    # `split` returns the text before the first tag, then four groups a tag.
    for closing, tag, attributes, text in [("", "", "", first), *zip(*[iter(rest)] * 4, strict=True)]:
        name, last = tag.lower(), written[-1]
        parts = [_separator(name, bool(closing), last)]
        if name == "a":
            parts = [f" ({link})"] if closing and link and not last.endswith(link) else []
            link = "" if closing else _address(attributes)
        elif name == "li" and not closing:
            parts.append(_BULLET)
        elif name == "pre":
            is_preformatted = not closing
        parts.append(_unescape(text) if is_preformatted else re.sub(r"\s+", " ", _unescape(text)))
        for part in parts:
            begins_line = written[-1][-1].isspace() and not is_preformatted
            if text_part := part.lstrip(" ") if begins_line else part:
                written.append(text_part)
    lines = [line.rstrip() for line in "".join(written).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _separator(name: str, closing: bool, last: str) -> str:
    """Return what stands between the text before a tag and the text after it."""
    if name == "br":
        return "\n"
    if name in {"td", "th"}:
        return "\t" if closing else ""
    if last == _BULLET and name != "li":
        return ""  # a paragraph in an item begins beside its bullet
    if name in _PARAGRAPHS:
        return "\n\n"
    return "\n" if name in _LINES and not last.endswith("\n") else ""


def _address(attributes: str) -> str:
    """Return the address of a link, if it leads to the web or to a mailbox."""
    match = _HREF.search(attributes)
    address = _unescape(next(filter(None, match.groups()), "")).strip() if match else ""
    return address if _ADDRESS.fullmatch(address) else ""


def _unescape(text: str) -> str:
    try:
        return _plain(unescape(text))
    except ValueError:  # a character reference of thousands of digits
        return _plain(text)


def _plain(text: str) -> str:
    """Remove what controls a terminal, and halves of surrogate pairs."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
