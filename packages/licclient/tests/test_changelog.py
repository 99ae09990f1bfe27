import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient._changelog import to_html, to_text

TABLE = {
    "nothing": ("", "", ""),
    "plain text": ("Faster.\n- a < b & c", "Faster.<br>\n- a &lt; b &amp; c", "Faster.\n- a < b & c"),
    "plain text of Windows": ("One\r\nTwo\r\n", "One<br>\nTwo", "One\nTwo"),
    "what only looks like HTML": ("1 <2, &amp;", "1 &lt;2, &amp;amp;", "1 <2, &amp;"),
    "a list": (
        "<ul><li>Export.</li><li>R&amp;D</li></ul>",
        "<ul><li>Export.</li><li>R&amp;D</li></ul>",
        "- Export.\n- R&D",
    ),
    "a list in a list": (
        "<ol><li>a<ul><li>b</li></ul></li><li><p>c</p></li></ol>",
        "<ol><li>a<ul><li>b</li></ul></li><li><p>c</p></li></ol>",
        "1. a\n  - b\n2. c",
    ),
    "a heading and paragraphs": (
        "<h4>1.2</h4>\n<p>It is\n <b>faster</b>.<br>Much.</p><p>Really.</p>",
        "<h4>1.2</h4>\n<p>It is\n <b>faster</b>.<br>Much.</p><p>Really.</p>",
        "1.2\n\nIt is faster.\nMuch.\n\nReally.",
    ),
    "a table": (
        "<table><tr><th>a</th><td>b</td></tr><tr><td>c</td></tr></table>",
        "<table><tr><th>a</th><td>b</td></tr><tr><td>c</td></tr></table>",
        "a\tb\nc",
    ),
    "code": ("<pre>a\n  b</pre>c", "<pre>a\n  b</pre>c", "a\n  b\n\nc"),
    "a link": (
        '<a href="https://e.example/?a=1&amp;b=2" rel="noopener">more</a>',
        '<a href="https://e.example/?a=1&amp;b=2">more</a>',
        "more (https://e.example/?a=1&b=2)",
    ),
    "a link that shows where it leads": (
        "<a href='https://e.example'>https://e.example</a>",
        '<a href="https://e.example">https://e.example</a>',
        "https://e.example",
    ),
    "a link that runs": ('<a href="javascript:x">y</a>', "<a>y</a>", "y"),
    "a link in disguise": ('<a href="&#106;ava\tscript:x">y</a>', "<a>y</a>", "y"),
    "a link that breaks out": (
        """<a href='https://e.example"onclick=x'>y</a>""",
        '<a href="https://e.example&quot;onclick=x">y</a>',
        'y (https://e.example"onclick=x)',
    ),
    "handlers and styles": ('<p onclick="x" style="y" class="z">a</p>', "<p>a</p>", "a"),
    "a script": ("<p>a</p><script>alert('<p>')</script >b", "<p>a</p>b", "a\n\nb"),
    "a script without end": ("<p>a</p><script>b", "<p>a</p>", "a"),
    "a script by another name": ("<scripty>a</scripty>", "a", "a"),
    "pictures and frames": ('<img src="x" onerror="y">a<iframe>b</iframe>', "a", "a"),
    "other worlds": ("<svg><style><p>x</style></svg>a<math>b</math>", "a", "a"),
    "a comment": ("a<!-- <b> -->b", "ab", "ab"),
    "a comment without end": ("a<!-- b", "a", "a"),
    "a declaration": ("<!DOCTYPE html><?xml?>a", "a", "a"),
    "a tag without end": ("a <img src=x onerror=y ", "a &lt;img src=x onerror=y ", "a <img src=x onerror=y"),
    "nested wrongly": ("<b><i>a</b>b</i>", "<b><i>a</i></b>b", "ab"),
    "ends without beginnings": ("</ul></a></pre>a</p>", "a", "a"),
    "left open": ("<ul><li>a", "<ul><li>a</li></ul>", "- a"),
    "what steers a terminal": ("<p>\x1b[2J&#27;[2J\x07a\ud800</p>", "<p>[2J[2Ja</p>", "[2J[2Ja"),
    "the same in plain text": ("\x1b]0;a\x9b", "]0;a", "]0;a"),
    "a number without end": (
        "<p>&#" + "9" * 5000 + "</p>",
        "<p>&amp;#" + "9" * 5000 + "</p>",
        "&#" + "9" * 5000,
    ),
}


@pytest.mark.parametrize(("told", "html", "text"), TABLE.values(), ids=TABLE)
def test_a_changelog_as_html_and_as_text(told, html, text):
    """What can be shown is shown, and nothing else."""
    assert to_html(told) == html
    assert to_text(told) == text


class Seen(HTMLParser):
    """What a browser would make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.attributes, self.open = set(), [], []

    def handle_starttag(self, tag, attrs) -> None:
        """Note it."""
        self.tags.add(tag)
        self.attributes += attrs
        self.open += [] if tag in {"br", "hr"} else [tag]

    def handle_endtag(self, tag) -> None:
        """It must be the last that was opened."""
        assert self.open.pop() == tag


BITS = st.sampled_from(
    [
        *("<", ">", "</", "<!--", "-->", "'", '"', "=", " ", "\n", "\x00", "é", "&lt;", "&#x3c;", "]]>"),
        *("<![CDATA[", "script", "img", "svg", "style", "a", "p", "li", "ul>", "href", "onerror"),
        *("javascript:x", "https://e.example"),
    ]
)


@given(st.lists(BITS, max_size=40).map("".join))
def test_whatever_a_server_sends_the_html_does_nothing(told):
    """Only kept elements, only `href`, only to the web, and everything that is opened is closed."""
    seen = Seen()
    seen.feed(to_html(told))
    seen.close()
    assert seen.tags <= {"a", "p", "li", "ul", "br"}
    assert all(name == "href" and value.startswith("https://") for name, value in seen.attributes)
    assert seen.open == []
    assert to_text(told).isprintable() or "\n" in to_text(told) or "\t" in to_text(told)


BOMBS = [
    *("<!--", "<a ", "</", "<!", "<?", "&", "&#x", '<a b="', "<", "<p>", "<li>", "</p>"),
    *("<script>", "<script></", "<pre>\n", "<a href=", "<ul>"),
]


@pytest.mark.parametrize("size", [60_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_megabyte_made_to_take_long_does_not(size):
    """The work grows with the text; the standard library's parser takes minutes for some of these."""
    for bomb in BOMBS:
        told = "<p>" + bomb * (size // len(bomb))
        begun = time.process_time()
        to_html(told)
        to_text(told)
        assert time.process_time() - begun < size * 30 / 1_000_000, bomb
