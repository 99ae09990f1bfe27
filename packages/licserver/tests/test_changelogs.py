"""What a vendor writes into a changelog does nothing in a customer's window (D-65)."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licserver.domain.text import is_html, sanitize

PLAIN = [
    "",
    "Faster.",
    "- one\n- two\r\n\tthree",
    "a < b && c > d, 1 <2, <3, &amp;, &lt;script&gt;",
    "«Größer» 😀",
]
KEPT = [
    "<ul><li>Export.</li></ul>",
    "<h4>1.2</h4><p>It is <b>faster</b>, <em>much</em>.<br>Really.</p>",
    "<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>b</td></tr></tbody></table>",
]
CLEANED = {
    "a script": ("<p>New.</p><script>alert(1)</script>", "<p>New.</p>"),
    "a script alone": ("<script>alert(1)</script>", ""),
    "a style": ("<style>*{display:none}</style><p>x</p>", "<p>x</p>"),
    "a handler": ('<p onclick="alert(1)" style="x" class="y" id="z">x</p>', "<p>x</p>"),
    "a picture": ('<p>x<img src="https://t.example/p.gif" onerror="alert(1)"></p>', "<p>x</p>"),
    "a frame": ('<iframe src="https://e.example"></iframe><p>x</p>', "<p>x</p>"),
    "a form": ('<form action="https://e.example"><input name="key"></form><p>x</p>', "<p>x</p>"),
    "a comment": ("<p>x<!-- <b> --></p>", "<p>x</p>"),
    "a link that runs": ('<a href="javascript:alert(1)">x</a>', '<a rel="noopener noreferrer">x</a>'),
    "a link in disguise": ('<a href=" jAva\tscript:alert(1)">x</a>', '<a rel="noopener noreferrer">x</a>'),
    "a link to the web": (
        '<a href="https://e.example/?a=1&amp;b=2" target="_top">x</a>',
        '<a href="https://e.example/?a=1&amp;b=2" rel="noopener noreferrer">x</a>',
    ),
    "a link to nowhere": ('<a href="/x">x</a>', '<a rel="noopener noreferrer">x</a>'),
    "a tag left open": ("<p>x", "<p>x</p>"),
    "a tag that never ends": ("a <img src=x onerror=alert(1) ", "<p>a</p>"),
    "other worlds": ("<svg><style><img src=x onerror=alert(1)></style></svg><p>x</p>", "<p>x</p>"),
    "no tag that is kept": ("<foo>R&amp;D</foo>", "<p>R&amp;D</p>"),
}


@pytest.mark.parametrize("text", [*PLAIN, *KEPT])
def test_what_is_harmless_stays_as_it_is(text):
    """Plain text, and basic HTML in good order, are published to the letter."""
    assert sanitize(text) == text


@pytest.mark.parametrize(("written", "kept"), CLEANED.values(), ids=CLEANED)
def test_what_could_run_is_gone(written, kept):
    """Nothing is left that runs, loads, asks or hides."""
    assert sanitize(written) == kept


BITS = st.sampled_from(
    [
        *(
            "<",
            ">",
            "</",
            "<!--",
            "-->",
            "'",
            '"',
            "=",
            " ",
            "\x00",
            "é",
            "&lt;",
            "&#x3c;",
            "]]>",
            "<![CDATA[",
        ),
        *("script", "img", "svg", "math", "style", "a", "p", "href", "onerror"),
        *("javascript:x", "https://e.example"),
    ]
)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags, self.attributes = set(), []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.add(tag)
        self.attributes += attrs


@given(st.lists(BITS, max_size=30).map("".join))
def test_whatever_is_written_nothing_harmful_is_kept(written):
    """Of any text there remain kept tags alone, links lead to the web, and cleaning again changes nothing."""
    kept = sanitize(written)
    found = _Tags()
    found.feed(kept)
    found.close()
    assert not found.tags & {"script", "style", "img", "svg", "math", "iframe"}
    assert all(name in {"href", "title", "rel"} for name, _ in found.attributes)
    assert all(value.startswith("https://") for name, value in found.attributes if name == "href")
    assert sanitize(kept) == kept
    assert is_html(kept) or kept in {"", written}
    assert re.search(r"<[A-Za-z/!?][^>]*$", kept) is None


def test_the_vendor_is_warned_and_can_look(cli, tmp_path):
    """Publishing says that something was left out, and `release changelog` shows what customers read."""
    file = tmp_path / "app.bin"
    file.write_bytes(b"zip")
    cli("product", "add", "app", "--name", "App")
    output = cli("release", "publish", "app", "1.0", str(file), "--changelog", "<p onclick='x()'>New.</p>")
    assert output.endswith("; the changelog was reduced to basic HTML\n")
    assert cli("release", "changelog", "app", "1.0.0") == "<p>New.</p>\n"
    news = tmp_path / "NEWS.html"
    news.write_text("<p>New.</p>\n")
    assert "reduced" not in cli(
        "release", "publish", "app", "1.0.1", str(file), "--changelog-file", str(news)
    )
    assert "kept" not in cli("release", "publish", "app", "1.1", str(file), "--changelog", "R&D < all")
    assert cli("release", "changelog", "app", "1.1") == "R&D < all\n"
    assert "no version '3'" in cli("release", "changelog", "app", "3", expect=2)
