import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient import Update
from licclient._core.changelog import to_html, to_text

TABLE = {
    "nothing": ("", ""),
    "plain text": ("Faster.\n- a < b & c", "Faster.\n- a < b & c"),
    "plain text of Windows": ("One\r\nTwo\r\n", "One\nTwo"),
    "what only looks like HTML": ("1 <2, &amp;", "1 <2, &amp;"),
    "a list": ("<ul><li>Export.</li><li>R&amp;D</li></ul>", "- Export.\n- R&D"),
    "a list in a list": ("<ol><li>a<ul><li>b</li></ul></li><li><p>c</p></li></ol>", "- a\n- b\n- c"),
    "a heading and paragraphs": (
        "<h4>1.2</h4>\n<p>It is\n <b>faster</b>.<br>Much.</p><p>Really.</p>",
        "1.2\n\nIt is faster.\nMuch.\n\nReally.",
    ),
    "a table": ("<table><tr><th>a</th><td>b</td></tr><tr><td>c</td></tr></table>", "a\tb\nc"),
    "code": ("<pre>a\n  b</pre>c", "a\n  b\n\nc"),
    "a link": (
        '<a href="https://e.example/?a=1&amp;b=2" rel="noopener">more</a>',
        "more (https://e.example/?a=1&b=2)",
    ),
    "a link that shows where it leads": (
        "<a href='https://e.example'>https://e.example</a>",
        "https://e.example",
    ),
    "a link that runs": ('<a href="javascript:x">y</a>', "y"),
    "a link in disguise": ('<a href="&#106;ava\tscript:x">y</a>', "y"),
    "a link that breaks out": (
        "<a href='https://e.example\"onclick=x'>y</a>",
        'y (https://e.example"onclick=x)',
    ),
    "handlers and styles": ('<p onclick="x" style="y" class="z">a</p>', "a"),
    "a script": ("<p>a</p><script>alert('<p>')</script >b", "a\n\nb"),
    "a script without end": ("<p>a</p><script>b", "a"),
    "a script by another name": ("<scripty>a</scripty>", "a"),
    "pictures and frames": ('<img src="x" onerror="y">a<iframe>b</iframe>', "a"),
    "other worlds": ("<svg><style><p>x</style></svg>a<math>b</math>", "a"),
    "a comment": ("a<!-- <b> -->b", "ab"),
    "a comment without end": ("a<!-- b", "a"),
    "a declaration": ("<!DOCTYPE html><?xml?>a", "a"),
    "a tag without end": ("a <img src=x onerror=y ", "a <img src=x onerror=y"),
    "nested wrongly": ("<b><i>a</b>b</i>", "ab"),
    "ends without beginnings": ("</ul></a></pre>a</p>", "a"),
    "left open": ("<ul><li>a", "- a"),
    "what steers a terminal": ("<p>\x1b[2J&#27;[2J\x07a\ud800</p>", "[2J[2Ja"),
    "the same in plain text": ("\x1b]0;a\x9b", "]0;a"),
    "a number without end": (
        "<p>&#" + "9" * 5000 + "</p>",
        "&#" + "9" * 5000,
    ),
}


@pytest.mark.parametrize(("changelog", "text"), TABLE.values(), ids=TABLE)
def test_a_changelog_as_text(changelog, text):
    """What can be shown is shown, and nothing else."""
    assert to_text(changelog) == text


BITS = st.sampled_from(
    [
        *("<", ">", "</", "<!--", "-->", "'", '"', "=", " ", "\n", "\x00", "é", "&lt;", "&#x3c;", "]]>"),
        *("<![CDATA[", "script", "img", "svg", "style", "a", "p", "li", "ul>", "href", "onerror"),
        *("javascript:x", "https://e.example"),
    ]
)


@given(st.lists(BITS, max_size=40).map("".join))
def test_whatever_a_server_sends_does_nothing(changelog):
    """No control characters in the text, and no element but line breaks in the HTML."""
    text, html = to_text(changelog), to_html(changelog)
    assert set(text) <= {"\n", "\t"} | {letter for letter in text if letter.isprintable()}
    assert not set(html.replace("<br>", "")) & set("<>\"'")


BOMBS = [
    *("<!--", "<a ", "</", "<!", "<?", "&", "&#x", '<a b="', "<", "<p>", "<li>", "</p>"),
    *("<script>", "<script></", "<pre>\n", "<a href=", "<ul>"),
]


@pytest.mark.slow
@pytest.mark.parametrize("size", [60_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_megabyte_made_to_take_long_does_not(size):
    """The work grows with the text; the standard library's parser takes minutes for some of these."""
    for bomb in BOMBS:
        changelog = "<p>" + bomb * (size // len(bomb))
        begun = time.process_time()
        to_html(changelog)
        to_text(changelog)
        assert time.process_time() - begun < size * 30 / 1_000_000, bomb


def test_an_update_has_its_changelog_in_both_forms():
    """As the app shows it: in a label, or in a web view."""
    at = datetime(2026, 11, 21, tzinfo=UTC)
    update = Update("Notes", "notes", "2.0", "<b>R&amp;D</b>", at)
    assert (update.changelog_text, update.changelog_html) == ("R&D", "R&amp;D")
