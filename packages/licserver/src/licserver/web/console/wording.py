"""Messages of services in the terms of a browser: fields and pages, not options and commands. Pure."""

import re
from collections.abc import Callable
from typing import Final

_SLOTS = "fill in “Slots of lines that name none”"
_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"add --slots N, or --slots unlimited", _SLOTS),
        (r"add --expires YYYY-MM-DD, or --expires never", "fill in “Last day of lines without an end”"),
        (
            r"add --support-until YYYY-MM-DD, or --support-until never",
            "fill in “Last day of support of lines without one”",
        ),
        (
            r"add --quantity slots .*? or --quantity licenses for as many licenses",
            "choose below what to do “If a line is about several copies”",
        ),
        (r"add --format csv or --format jsonl", "choose the “Format”"),
        (r"\badd --product '([^']*)'=SLUG", r"write \1=SLUG in “Products”"),
        (r"; or add --product SLUG", "; or write its slug in “Products”"),
        (r"--product (\S+)", r"in “Products” write \1"),
        (r"\A--map ", "“Columns”: "),
        (r"\A--expires\b", "“Last day of lines without an end”"),
        (r"\A--support-until\b", "“Last day of support of lines without one”"),
        (
            r"to accept such keys: licserver product change (\S+) --accept-imported-keys",
            r"to accept such keys, tick “Keys that were sold elsewhere are valid” on the page of \1",
        ),
        (
            r"to move it: licserver release promote (\S+) (\S+) --channel (\S*)",
            "to move it, open the version and change its channel",
        ),
        (
            r"to use support periods: licserver product change (\S+) --support-policy",
            r"to use support periods, tick “Updates end with a license’s support period” on the page of \1",
        ),
        (r"to change (them|it): licserver release \w+ \S+ \S+", r"to change \1, open the version"),
        (r"add one with: licserver product add SLUG --name NAME", "add one on the page Products"),
        (r"with --test\b( for the test mode)?", "with “It is the shop’s test mode” ticked"),
        (r"by --expires-in\b", "by its date"),
        (r"; map it with `licserver source map [^`]*`", "; choose its product"),
        (r"map it with `--quantity`", "map it with a quantity"),
        (
            r"; choose what it means with (`licserver source change [^`]*`), then repeat .* with `.*?`",
            r"; have the operator run \1, and repeat the delivery",
        ),
        (
            r"map other names with --map COLUMN=FIELD, as --map key=license_key",
            "map other names in “Columns”",
        ),
        (r"; add --no-lifetime to let it expire", "; take that from it to let it expire"),
        (r"run `licserver customer erase` again", "erase it again"),
        (
            r"extend (it|its licenses) with (`licserver subscription end [^`]*`)",
            r"have the operator run \2 to extend \1",
        ),
        (r"; use `licserver source sync`, or", "; have the operator run `licserver source sync`, or"),
        (
            r"use `licserver source map`, then `licserver source replay`",
            "map the product, and repeat the delivery",
        ),
        (
            r"use `licserver source sync`, then `licserver source replay`",
            "have the operator run `licserver source sync`, and repeat the delivery",
        ),
        (r"add one with `licserver signing-key add`", "have the operator run `licserver signing-key add`"),
        (r", as `licserver export` writes it", ", as an export has it"),
        (r"`licserver license show` lists what is", "the page of the license lists what is"),
        (r"`licserver user password [^`]*` changes the password", "change the password there"),
        (r"[;,:] (?:see )?`licserver [^`]*`(?: [a-z ]+)?(?=[.;]|\Z)", ""),
        (r"are not those of `licserver release sign`", "are not those of a signed release"),
    )
)


def in_browser_terms(message: str) -> str:
    """Replace commands and options in a message by pages and fields of the console."""
    if "licserver " not in message and "--" not in message:
        return message
    for pattern, text in _RULES:
        message = pattern.sub(text, message)
    return message
