"""Forms of the console: choices of what exists, and errors in the terms of a browser."""

import ast
import re
from pathlib import Path

import pytest

import licserver
from licserver.domain.records import DEFAULT_POLICY
from licserver.web.admin.schemas import NewProduct
from licserver.web.console.formatting import merge_channels, parse_changes
from licserver.web.console.wording import in_browser_terms

SOURCE = Path(licserver.__file__).parent
PLACES = ("services", "domain", "protocol", "shops", "security")
ON_THE_SERVER = {"self_check.py", "restore.py", "backup.py", "secrets_file.py", "private_files.py"}
"""What these say is for an operator; the page Health shows it as such."""
COMMANDS = re.compile(r"licserver [a-z]|(?<![\w-])--[a-z]")
OPERATOR = ("have the operator run", "licserver export")


def messages():
    """Yield the texts of services that name a command or an option, with X for what is filled in."""
    for place in PLACES:
        for file in sorted((SOURCE / place).rglob("*.py")):
            source = file.read_text("utf-8")
            if file.name in ON_THE_SERVER or not COMMANDS.search(source):
                continue
            tree = ast.parse(source)
            documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            inner = {
                value for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values
            }
            for node in ast.walk(tree):
                if node in documentation or node in inner:
                    continue
                text = ""
                if isinstance(node, ast.JoinedStr):
                    text = "".join(
                        part.value if isinstance(part, ast.Constant) else "X" for part in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = node.value
                if COMMANDS.search(text):
                    yield pytest.param(text, id=f"{file.name}:{node.lineno}")


@pytest.mark.parametrize("text", [*messages()])
def test_no_error_names_an_option(text):
    """Of a command that a visitor of the console does not have; it names the field or the page."""
    shown = in_browser_terms(text)
    if not any(path in shown for path in OPERATOR):
        assert COMMANDS.search(shown) is None
    assert shown.strip()


def test_what_a_browser_has_is_left():
    """Two hyphens in a name are no option."""
    for text in ("there is no product 'a--b'", "the slug must be lower-case"):
        assert in_browser_terms(text) == text
    assert (
        in_browser_terms("there is no user 'jo'; `licserver user list` shows all") == "there is no user 'jo'"
    )


def test_each_way_to_add_a_product_has_one_default(bare_cli):
    """It was strict on the command line, and domain in the console."""
    bare_cli("product", "add", "app", "--name", "App")
    assert f'"environment": "{DEFAULT_POLICY}"' in bare_cli("product", "list", "--json")
    assert NewProduct(slug="app", name="App").environment is DEFAULT_POLICY


async def test_the_form_of_a_product_has_the_same(alice):
    """The option that is chosen when the page is opened."""
    text = await alice.get("/console/products")
    assert f'<option value="{DEFAULT_POLICY}" selected>' in text


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"channels": "beta, nightly"}, "beta, nightly"),
        ({"channels-chosen": "yes"}, ""),
        ({"channels-chosen": "yes", "channel-beta": "on", "channels": "nightly"}, "beta, nightly"),
        (
            {"channels-chosen": "yes", "was-channels": "x, beta", "channel-beta": "on", "channel-x": "on"},
            "x, beta",
        ),
    ],
)
def test_channels_are_ticked_or_typed(form, expected):
    """In the order of before, so that nothing is changed that was not."""
    assert merge_channels({"channels": "", **form})["channels"] == expected
    changes, _ = parse_changes({"was-channels": expected, **form})
    assert changes == {}


@pytest.mark.slow
async def test_plans_and_channels_are_chosen_from_what_exists(world, alice, publish):
    """In the forms of a license, a version and a shop; what is chosen is taken."""
    world.services.plans.add("app", "pro", {"export": True})
    publish("1.0-rc1", channel="beta", platform="linux-riscv")
    key = world.key()
    here = f"/console/licenses/{world.services.licenses.get(key).id.hex()}"
    text = await alice.get(here)
    assert "<option>pro</option>" in text
    assert 'name="channel-beta"' in text
    sent = {"channels-chosen": "yes", "channel-beta": "on", "was-channels": "", "plan": "pro", "was-plan": ""}
    await alice.post(f"{here}/change", **sent)
    license_ = world.services.licenses.get(key)
    assert (license_.plan, license_.channels) == ("pro", ("beta",))
    text = await alice.get(here)
    assert "<option selected>pro</option>" in text
    assert 'name="channel-beta" checked' in text
    text = await alice.get("/console/licenses/issue")
    assert '<optgroup label="App"><option>pro</option>' in text
    text = await alice.get("/console/products/app")
    assert "<option>linux-riscv</option>" in text
    assert "<option>beta</option>" in text
    await alice.post(
        "/console/products/app/releases/1.0-rc1/promote", channel="stable", new_channel="nightly"
    )
    assert {release.channel for release in world.services.releases.list_all("app")} == {"nightly"}
