"""When two domains are the same (D-06)."""

import idna
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from licserver.domain import environments
from licserver.domain.environments import (
    MAX_DOMAIN_LENGTH,
    InvalidDomainError,
    is_printable,
    normalise_domain,
)

SAME = {
    "as it is": ("example.org", "example.org"),
    "blanks around": ("  example.org\t", "example.org"),
    "newline at the end": ("example.org\n", "example.org"),
    "upper case": ("EXAMPLE.Org", "example.org"),
    "trailing dot": ("example.org.", "example.org"),
    "trailing dot, then port": ("example.org.:443", "example.org"),
    "port": ("example.org:8443", "example.org"),
    "path": ("example.org/shop", "example.org"),
    "query": ("example.org?x=1", "example.org"),
    "URL": ("https://example.org/shop?x=1#y", "example.org"),
    "URL in capitals": ("HTTPS://EXAMPLE.ORG", "example.org"),
    "URL with everything": ("https://me:secret@Example.ORG.:8443/shop?x=//y#z", "example.org"),
    "at sign in the password": ("https://me:a@b@example.org/", "example.org"),
    "URL without a scheme": ("//example.org/shop", "example.org"),
    "another scheme": ("app+local://example.org", "example.org"),
    "www stays": ("https://www.example.org/", "www.example.org"),
    "u-umlaut": ("Bücher.example", "xn--bcher-kva.example"),
    "u-umlaut decomposed": ("Bücher.example", "xn--bcher-kva.example"),
    "A-label": ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
    "sharp s is no ss": ("straße.example", "xn--strae-oqa.example"),
    "ideographic full stop": ("example。org", "example.org"),
    "ideographic full stop at the end": ("example.org。", "example.org"),
    "and behind it a port": ("http://example.org。:80/", "example.org"),
    "full-width letters": ("ｅxample.org", "example.org"),
    "single label": ("localhost:8000", "localhost"),
    "IPv4": ("192.0.2.7", "192.0.2.7"),
    "IPv4 with port": ("192.0.2.7:80", "192.0.2.7"),
    "IPv4 with a dot": ("192.0.2.7.", "192.0.2.7"),
    "IPv4 in a URL": ("http://192.0.2.7:8080/x", "192.0.2.7"),
    "IPv6": ("2001:DB8:0::1", "2001:db8::1"),
    "IPv6 in brackets": ("[2001:db8::1]", "2001:db8::1"),
    "IPv6 with port": ("[2001:db8::1]:443", "2001:db8::1"),
    "IPv6 in a URL": ("http://[2001:DB8::1]:443/", "2001:db8::1"),
    "IPv4 in IPv6": ("http://[::ffff:192.0.2.7]/", "192.0.2.7"),
    "UUID": ("9F0C3A52-77AA-4b8e-8f6e-000000000001", "9f0c3a52-77aa-4b8e-8f6e-000000000001"),
    "installation id with blanks": ("  Install {4F2A} #7 ", "install {4f2a} #7"),
    "hardware address": ("AA:BB:CC:DD:EE:11", "aa:bb:cc:dd:ee:11"),
    "underscore": ("My_Host.local", "my_host.local"),
    "underscore in a URL": ("http://My_Host.local.:80/", "my_host.local"),
    "URL without a host": ("http:///x", "http:///x"),
    "scheme alone": ("http://", "http://"),
    "open bracket": ("http://[2001:db8::1/", "http://[2001:db8::1/"),
    "blank within a URL's host": ("http://a /x", "http://a /x"),
    "dots alone": ("...", "..."),
    "an emoji": ("I ♥ NY", "i ♥ ny"),
    "two ports": ("a.b:80:90", "a.b:80:90"),
    "A-label that decodes to nothing": ("https://XN--99999999.example:80/", "xn--99999999.example"),
    "two hyphens": ("r3--Cache.example:8443/", "r3--cache.example"),
    "label of 63": ("a" * 63 + ".Example", "a" * 63 + ".example"),
    "label of 64, which DNS has not": ("A" * 64 + ".example.:80/", "a" * 64 + ".example"),
    "underscore, path": ("My_Shop.example.com/", "my_shop.example.com"),
    "underscore, port": ("my_shop.example.com:8443/shop?x=1", "my_shop.example.com"),
    "underscore, dot": ("my_shop.example.com.", "my_shop.example.com"),
    "empty port": ("my_shop.example.com:", "my_shop.example.com"),
    "hyphens at the ends": ("-a-.Example:80/", "-a-.example"),
    "emoji": ("\U0001f4a9.LA:443/", "xn--ls8h.la"),
    "emoji in a URL": ("https://me@\u2764\ufe0f.example.:8443/", "xn--qei.example"),
    "emoji as DNS has it": ("XN--ls8h.la.", "xn--ls8h.la"),
    "underscore beside an umlaut": ("b\u00fcro_1.Example:80", "xn--bro_1-kva.example"),
    "two hyphens beside an umlaut": ("b\u00fc--1.example/", "xn--b--1-0ra.example"),
    "one label without a form in DNS": ("B\u00fccher.a\ufffdB.example:80/", "xn--bcher-kva.a\ufffdb.example"),
    "one character for several": ("\u2100.example:80", "\u2100.example"),
    "thirty-three letters of another script": ("\u042f" * 33 + ".Example.:80/", "\u044f" * 33 + ".example"),
    "ideographic dots at the end": ("my_shop.example\u3002\uff61:80", "my_shop.example"),
    "id with braces": ("{A}/1", "{a}/1"),
    "id with an at sign": ("Kim@PC:1", "kim@pc:1"),
}


@pytest.mark.parametrize(("text", "normal"), SAME.values(), ids=SAME.keys())
def test_a_domain_has_one_normal_form(text, normal):
    """Whatever names the same host is brought into the same text."""
    assert normalise_domain(text) == normal


BAD = {
    "empty": ("", "is required"),
    "blank": (" \t\n ", "is required"),
    "NUL": ("a\x00b.example", "must not contain control characters"),
    "newline within": ("a\nb.example", "must not contain control characters"),
    "escape": ("\x1b[31m", "must not contain control characters"),
    "DEL": ("a\x7f", "must not contain control characters"),
    "C1": ("a\x9fb", "must not contain control characters"),
    "in a URL": ("http://a\tb.example/", "must not contain control characters"),
    "lone surrogate": ("a\ud800.example", "must not contain control characters"),
    "254 characters": ("x y" * 84 + "zz", "must be at most 253 characters long"),
    "grows in lower case": ("İ x" * 84, "must be at most 253 characters long"),
    "a URL without host, too long": ("http://" + "/" * 300, "must be at most 253 characters long"),
}


@pytest.mark.parametrize(("text", "why"), BAD.values(), ids=BAD.keys())
def test_what_can_be_no_domain_is_refused_with_the_reason(text, why):
    """Blank, unprintable or endless text is no domain."""
    with pytest.raises(InvalidDomainError, match=f"^{why}$"):
        normalise_domain(text)


def test_the_longest_name_is_253_characters_of_the_normal_form():
    """What a URL adds to the host does not count, and the 254th character of the host does."""
    longest = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert len(longest) == 253
    assert normalise_domain(f"https://user:password@{longest}:8443/{'x' * 500}") == longest
    assert normalise_domain("x y" + "z" * 250) == "x y" + "z" * 250
    with pytest.raises(InvalidDomainError):
        normalise_domain("x y" + "z" * 251)


DIFFERENT = [
    ("example.org", "www.example.org"),
    ("example.org", "example.com"),
    ("a.example.org", "b.example.org"),
    ("install-1", "install-2"),
    ("straße.example", "strasse.example"),
]


@pytest.mark.parametrize(
    ("first", "other"), DIFFERENT, ids=[first + " / " + other for first, other in DIFFERENT]
)
def test_different_domains_stay_different(first, other):
    """Normalising never joins what are two installations."""
    assert normalise_domain(first) != normalise_domain(other)


HOSTS = st.text(st.sampled_from("aZ0.-_:/@?#[]%* 。．ßİΣς\u00ad\u200dé٣\u00a0\u3000xn"), max_size=12)


@given(
    st.one_of(
        st.text(max_size=60),
        HOSTS,
        st.builds("{}://{}:{}/{}".format, st.sampled_from(["http", "HTTPS", "x"]), HOSTS, HOSTS, HOSTS),
        st.ip_addresses().map(str),
        st.ip_addresses().map(lambda address: f"http://[{address}]:80/"),
    )
)
def test_the_normal_form_of_a_normal_form_is_itself(text):
    """Storing a domain and reading it back never makes another of it, and it is always fit to be stored."""
    try:
        normal = normalise_domain(text)
    except InvalidDomainError:
        return
    assert normalise_domain(normal) == normal
    assert is_printable(normal)
    assert normal == normal.strip()
    assert 0 < len(normal) <= 253


@pytest.mark.slow
@settings(max_examples=25)  # each takes 20 ms to draw
@given(st.from_regex(environments._PLAIN_HOST, fullmatch=True))
def test_the_short_way_comes_to_what_the_long_way_comes_to(text):
    """What is taken as it stands, alone or as a home URL, is what the whole procedure makes of it."""
    assume(len(text) <= MAX_DOMAIN_LENGTH)
    assert environments._host_name(text) == environments._host_of_url(f"https://{text}/") == text
    assert normalise_domain(text) == normalise_domain(f"https://{text}/") == text


NAMES = st.lists(
    st.one_of(
        st.text(letters, min_size=1, max_size=6)
        for letters in (
            "abcXYZ019",
            "bäöüßéÀŁşＩx",
            "αβγΣςΩ",
            "абвЖЯ",
            "日本例えーァ",
            "한국말",
            "אבג",
            "مثال٣",
        )
    ),
    min_size=1,
    max_size=3,
).map(".".join)


@given(NAMES)
def test_a_name_that_dns_has_is_what_idna_makes_of_it(host):
    """Labels that are valid are encoded as by the whole of IDNA, one after the other."""
    try:
        encoded = idna.encode(host, uts46=True).decode()
    except idna.IDNAError:
        reject()
    assert normalise_domain(host) == encoded.lower().rstrip(".")
