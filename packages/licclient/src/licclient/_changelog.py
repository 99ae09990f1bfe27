"""Pure: what a vendor wrote about a version, as HTML that does nothing and as text without any HTML.

A changelog is plain text or basic HTML (spec 2). Services clean it when it is published, but nobody signs it,
so it is not believed here: only elements from a short list are written anew, and everything else as text. The
standard library's `html.parser` would need minutes for a megabyte made for that purpose; this is done in one
pass (D-65).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape, unescape
from typing import Final

_TAG_BEGINS: Final = re.compile(r"<[A-Za-z/!?]")
_MARKUP: Final = re.compile(r"<(?:!--|([!?])|(/?)([A-Za-z][A-Za-z0-9]{0,15})(?![A-Za-z0-9])([^<>]*)>)")
_HREF: Final = re.compile(r"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(https?://|mailto:)[\x21-\x7e]+", re.IGNORECASE)
_UNSEEN: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

_EMPTY: Final = frozenset({"br", "hr"})
_INLINE: Final = frozenset(
    {"a", "b", "strong", "i", "em", "u", "s", "ins", "del", "small", "sub", "sup", "span", "code", "kbd"}
)
_LINES: Final = frozenset({"li", "dt", "dd", "tr", "div", "thead", "tbody", "th", "td"})
_PARAGRAPHS: Final = frozenset(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "table", "blockquote", "pre"}
)
_KEPT: Final = _EMPTY | _INLINE | _LINES | _PARAGRAPHS
_DROPPED_WHOLE: Final = frozenset(
    {"script", "style", "title", "textarea", "iframe", "noscript", "noembed", "noframes", "template", "xmp"}
    | {"svg", "math", "object", "select"}
)
_MAX_DEPTH: Final = 32
"""Elements within elements that are kept; windows that show HTML are not made for thousands."""


def to_html(changelog: str) -> str:
    """Write a changelog as HTML that can be put into a page or a web view.

    Args:
        changelog: Plain text or HTML; any text will do.

    Returns:
        Headings, paragraphs, lists, tables, emphasis, and links to `https`, `http` and `mailto`, all closed;
        no attribute but `href`. Line breaks of a plain text are `<br>`.
    """
    if not _is_html(changelog):
        lines = _seen(changelog).splitlines()
        return "<br>\n".join(map(escape, lines))
    written: list[str] = []
    opened: list[str] = []
    for token in _read(changelog):
        match token:
            case str():
                written.append(escape(token))
            case _Tag(name, closing=False) if name in _EMPTY:
                written.append(f"<{name}>")
            case _Tag(name, closing=False, href=href) if len(opened) < _MAX_DEPTH:
                opened.append(name)
                written.append(f'<a href="{escape(href)}">' if href else f"<{name}>")
            case _Tag(name, closing=True) if name in opened:
                while (last := opened.pop()) != name:
                    written.append(f"</{last}>")
                written.append(f"</{name}>")
    written += [f"</{name}>" for name in reversed(opened)]
    return "".join(written)


def to_text(changelog: str) -> str:
    """Write a changelog as plain text, for a label or a terminal.

    Args:
        changelog: As for `to_html`.

    Returns:
        A line for each line, item or row; items begin with `- ` or their number, addresses follow their links
        in parentheses, empty lines set paragraphs apart. No control characters but line feeds and tabs.
    """
    if not _is_html(changelog):
        return "\n".join(_seen(changelog).splitlines()).strip()
    page = _Page()
    for token in _read(changelog):
        page.add(token)
    return page.text()


@dataclass(frozen=True, slots=True)
class _Tag:
    """The beginning or the end of a kept element."""

    name: str
    closing: bool
    href: str = ""


def _is_html(changelog: str) -> bool:
    """As the service tells it when it publishes: what has no beginning of a tag in it is plain text."""
    return _TAG_BEGINS.search(changelog) is not None


def _read(changelog: str) -> Iterator[str | _Tag]:
    """Take HTML apart into texts and the tags of kept elements, in one pass."""
    at = 0
    while (found := _MARKUP.search(changelog, at)) is not None:
        if text := changelog[at : found.start()]:
            yield _plain(text)
        at = found.end()
        odd, slash, name, rest = found.groups()
        name = (name or "").lower()
        if odd or not name:
            at = _after("-->" if not odd else ">", changelog, at)
        elif name in _DROPPED_WHOLE and not slash:
            at = _after_element(name, changelog, at)
        elif name in _KEPT:
            yield _Tag(name, bool(slash), _href(rest) if name == "a" and not slash else "")
    if text := changelog[at:]:
        yield _plain(text)


def _after(end: str, changelog: str, at: int) -> int:
    """Find what comes after something unseen; what never ends takes the rest along."""
    found = changelog.find(end, at)
    return len(changelog) if found < 0 else found + len(end)


def _after_element(name: str, changelog: str, at: int) -> int:
    found = re.compile(rf"</{name}(?![A-Za-z0-9])[^<>]*>", re.IGNORECASE).search(changelog, at)
    return len(changelog) if found is None else found.end()


def _href(attributes: str) -> str:
    """Return the address of a link, if it leads to the web or to a mailbox."""
    found = _HREF.search(attributes)
    address = _plain(next(filter(None, found.groups()), "")).strip() if found else ""
    return address if _ADDRESS.fullmatch(address) else ""


def _plain(text: str) -> str:
    try:
        return _seen(unescape(text))
    except ValueError:  # a character's number of thousands of digits
        return _seen(text)


def _seen(text: str) -> str:
    """Leave out what steers terminals, and halves of characters."""
    return _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


class _Page:
    """Lines of text that grow token by token."""

    def __init__(self) -> None:
        self._lines: list[str] = [""]
        self._lists: list[int | None] = []
        self._links: list[str] = []
        self._as_it_is = 0

    def add(self, token: str | _Tag) -> None:
        """Take the next token."""
        match token:
            case str():
                self._write(token)
            case _Tag("br"):
                self._lines.append("")
            case _Tag("a", closing=False, href=href):
                self._links.append(href)
            case _Tag("a"):
                self._end_link()
            case _Tag("th" | "td", closing=True):
                self._lines[-1] += "\t"
            case _Tag("th" | "td"):
                pass
            case _Tag(name, closing) if name in _PARAGRAPHS or name == "hr":
                self._break(1 if self._lists and name in {"ul", "ol"} else 2)
                self._turn(name, closing=closing)
            case _Tag("li", closing=False):
                self._break(1)
                self._lines[-1] = self._bullet()
            case _Tag(name) if name in _LINES:
                self._break(1)
            case _:  # emphasis
                pass

    def text(self) -> str:
        """Everything so far, without trailing blanks."""
        return "\n".join(line.rstrip() for line in self._lines).strip("\n")

    def _write(self, text: str) -> None:
        if self._as_it_is:
            first, *others = text.split("\n")
            self._lines[-1] += first
            self._lines += others
            return
        words = re.sub(r"\s+", " ", text)
        line = self._lines[-1]
        self._lines[-1] += words.lstrip() if not line or line[-1].isspace() else words

    def _break(self, lines: int) -> None:
        """Begin a new line, or a new paragraph; what is empty already is not doubled."""
        bullet = self._bullet_waits()
        while not bullet and any(line.strip() for line in self._lines[-lines:]):
            self._lines.append("")

    def _bullet_waits(self) -> bool:
        """Whether the line holds nothing but a bullet: a paragraph in an item belongs beside it."""
        return re.fullmatch(r"\s*(-|[0-9]+\.) ", self._lines[-1]) is not None

    def _turn(self, name: str, *, closing: bool) -> None:
        if name == "pre":
            self._as_it_is = max(0, self._as_it_is + (-1 if closing else 1))
        elif name in {"ul", "ol"} and not closing:
            self._lists.append(1 if name == "ol" else None)
        elif name in {"ul", "ol"} and self._lists:
            self._lists.pop()

    def _bullet(self) -> str:
        indent = "  " * (min(len(self._lists), _MAX_DEPTH) - 1)
        if self._lists and (number := self._lists[-1]) is not None:
            self._lists[-1] = number + 1
            return f"{indent}{number}. "
        return f"{indent}- "

    def _end_link(self) -> None:
        href = self._links.pop() if self._links else ""
        if href and not self._lines[-1].endswith(href):
            self._lines[-1] += f" ({href})"
