"""The order of versions that publishing warns of is the one that PHP has."""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from licserver.domain.versions import parse_version
from licserver.domain.wordpress import compare

PHP: Final = shutil.which("php") or ""
pytestmark = pytest.mark.skipif(not PHP, reason="PHP is not installed (apt install php-cli)")

VECTORS: Final = json.loads(
    Path(__file__).parent.joinpath("vectors/php/versions.json").read_text(encoding="utf-8")
)
PROGRAM: Final = (
    "foreach (json_decode(stream_get_contents(STDIN)) as $p) echo version_compare($p[0], $p[1]), ' ';"
)
PARTS: Final = (
    ["", "", "", "v", "V", "1!", "2!"],
    ["0", "1", "2", "10", "01"],
    ["", ".0", ".2", ".0.1", ".10.3"],
    ["", "", "a", "-B2", "b_1", "c1", "RC1", ".rc.2", "alpha-3", "-beta.1", "pre", "preview4", "a_"],
    ["", "", ".post1", "-1", "post", "-rev2", ".r3"],
    ["", "", ".dev1", "dev", "_dev2"],
    ["", "", "+local", "+1", "+ubuntu.1", "+b2", "+a_b-c"],
)


def ask_php(pairs: list[tuple[str, str]]) -> list[int]:
    """Return what PHP says of each pair."""
    command = [PHP, "-n", "-r", PROGRAM]
    done = subprocess.run(command, input=json.dumps(pairs), check=True, capture_output=True, text=True)
    return [int(version) for version in done.stdout.split()]


def test_the_vectors_are_what_php_says() -> None:
    """Each pair of the vectors has the order that this PHP gives it."""
    assert ask_php([(entry, two) for entry, two, _ in VECTORS["orders"]]) == [
        entry[2] for entry in VECTORS["orders"]
    ]


def test_our_order_is_that_of_php() -> None:
    """20,000 pairs of versions by PEP 440, of all that may be in one."""
    draw = random.Random(440)
    versions = ["".join(map(draw.choice, PARTS)) for _ in range(40_000)]
    assert all(parse_version(version) for version in versions)
    pairs = list(zip(versions[::2], versions[1::2], strict=True))
    assert [compare(*pair) for pair in pairs] == ask_php(pairs)
