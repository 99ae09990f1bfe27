"""Names that cost the server far more than others, before any limit counts the request."""

import idna
import pytest

from licserver.domain import environments
from licserver.domain.environments import MAX_FOREIGN, normalise_domain

DIGITS = "".join(map(chr, range(0x660, 0x66A))) * 25
HAN = "".join(map(chr, range(0x4E00, 0x4E00 + 250)))
ENCODED = ".".join(["xn--" + "fiqs8s" * 9] * 4)
FORMS = [
    "{name}",
    "https://{name}/",
    "https://ann@{name}:8443/a",
    "{name}.example",
    "a.{name}",
    "//{name}",
    "{name}:1",
]


@pytest.mark.sampled(78, "letters", "length", "dot")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dot", ["", ".", "\u3002"], ids=["one label", "labels", "ideographic dots"])
@pytest.mark.parametrize("length", [33, 64, 200])
@pytest.mark.parametrize("letters", [DIGITS, HAN, ENCODED], ids=["digits", "han", "encoded"])
def test_no_long_name_of_another_script_reaches_idna(
    monkeypatch: pytest.MonkeyPatch, letters: str, length: int, dot: str, form: str
) -> None:
    """kjd/idna#27, kjd/idna#61: 253 digits of another script held the event loop for 10 ms a request."""
    labels = [letters[:length]] if not dot else [letters[at : at + 8] for at in range(0, length, 8)]
    longest: list[int] = []

    def remap(label: str, std3_rules: bool, transitional: bool) -> str:
        longest.append(sum(not char.isascii() for char in label))
        return idna.uts46_remap(label, std3_rules, transitional)

    stub = type("Idna", (), {"uts46_remap": remap, "IDNAError": idna.IDNAError})
    monkeypatch.setattr(environments, "idna", stub)
    assert normalise_domain(form.format(name=dot.join(labels)))
    assert max(longest, default=0) <= MAX_FOREIGN


def test_a_name_of_another_script_that_somebody_owns_is_compared_as_before() -> None:
    """The bound is far from real names, in either spelling."""
    name = (
        "\u0b85\u0bb0\u0bc1\u0bae\u0bc8\u0baf\u0bbe\u0ba9\u0ba8\u0bbf\u0bb1\u0bc1\u0bb5\u0ba9\u0bae\u0bcd"
        ".\u0b87\u0ba8\u0bcd\u0ba4\u0bbf\u0baf\u0bbe"
    )
    assert normalise_domain(f"https://{name}/") == "xn--vkc4ecbwddgn4b4fouh2h4d.xn--xkc2dl3a5ee0h"
    assert normalise_domain("XN--VKC4ecbwddgn4b4fouh2h4d.xn--xkc2dl3a5ee0h:8443").startswith("xn--vkc4")
