"""Sphinx's settings; everything that it needs comes from the `docs` group, nothing from the network."""

import argparse
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from licserver.settings import describe_settings

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.repository_address import read_address

project = "licserver and licclient"
author = "the licserver and licclient authors"
copyright = author
html_theme = "furo"
html_title = project
if repository := read_address():  # a link to the source of each page
    html_theme_options = {
        "source_repository": repository,
        "source_branch": "main",
        "source_directory": "docs/",
    }
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.openapi",
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "*-table.md"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("search_scorer.js"))
html_extra_path = ["../packages/licserver/src/licserver/protocol/openapi.json", "openapi-admin.json"]
nitpicky = True
# Other projects' types, whose inventories would have to be fetched from the network.
_OTHERS = (
    "asyncio|collections|datetime|enum|httpx|os|pathlib|packaging|PySide6|pydantic|threading|tkinter|typing"
)
nitpick_ignore_regex = [
    ("py:.*", rf"({_OTHERS})\..*"),
    ("py:.*", r"licclient\.(\w+\.)?_\w+\..*|ComputerList|Explainable|P|Path|PathLike"),
]
linkcheck_ignore = [  # addresses of examples, and of servers on the reader's machine
    r"https?://([\w-]+\.)*example\.(com|net|org)",
    r"https?://(localhost|127\.0\.0\.1)",
]
default_role = "literal"
smartquotes = False  # readers paste what they see
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
napoleon_use_ivar = True
openapi_default_renderer = "httpdomain"


os.environ["COLUMNS"] = "100"  # of `--help` on the site


class CommandsDirective(SphinxDirective):
    """Show `--help` of a program and of each of its commands: click's, or a function that makes parsers."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a section for each command; those of a group stand below it."""
        module, _, name = self.arguments[0].rpartition(".")
        program = getattr(importlib.import_module(module), name)
        sections: dict[str, nodes.section] = {}
        is_click = isinstance(program, click.Command)
        prog = module.partition(".")[0]
        for path, text in list_click_help(program, prog) if is_click else list_argparse_help(program()):
            section = nodes.section(ids=[nodes.make_id(path)], names=[nodes.fully_normalize_name(path)])
            section += nodes.title(text=path)
            section += nodes.literal_block(text, text, language="text")
            self.state.document.note_explicit_target(section)
            parent = sections.get(path.rpartition(" ")[0])
            sections[path] = section
            if parent is not None:
                parent += section
        return [section for path, section in sections.items() if path.rpartition(" ")[0] not in sections]


def list_click_help(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the path and the help of a command, and of all commands below it."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            child = command.get_command(context, below)
            if child is not None and not child.hidden:
                yield from list_click_help(child, below, context)


def list_argparse_help(parsers: dict[str, argparse.ArgumentParser]) -> Iterator[tuple[str, str]]:
    """Yield the path and the help of each parser."""
    for path, parser in parsers.items():
        yield path, parser.format_help().rstrip()


class SettingsDirective(SphinxDirective):
    """Describe each setting of `licserver` in a section."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each setting, so that it can be linked to and is found by its name."""
        result: list[nodes.Node] = []
        for setting in describe_settings():
            section = nodes.section(
                ids=[nodes.make_id(setting.variable)], names=[nodes.fully_normalize_name(setting.variable)]
            )
            section += nodes.title(text=setting.variable)
            default = f" Default: `{setting.default}`." if setting.default else ""
            section += self.parse_text_to_nodes(setting.text + default)
            self.state.document.note_explicit_target(section)
            result.append(section)
        return result


class WebhooksDirective(SphinxDirective):
    """List the section `webhooks` of an OpenAPI document, which sphinxcontrib-openapi leaves out."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a definition list, with an example of each event."""
        _, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        result = []
        for name, item in json.loads(Path(path).read_text(encoding="utf-8"))["webhooks"].items():
            content = item["post"]["requestBody"]["content"]["application/json"]
            example = json.dumps(content["example"], indent=2, ensure_ascii=False).replace("\n", "\n  ")
            text = f"`{name}`\n: {item['post']['summary']}\n\n  ```json\n  {example}\n  ```"
            result += self.parse_text_to_nodes(text)
        return result


def remove_decision_ids(*event: Any) -> None:
    """Take the ids of decisions out of a docstring: they are for readers of the source."""
    lines: list[str] = event[-1]
    ids = r"\(D-\d+(?:(?:, | to | and )D-\d+)*\)"
    lines[:] = [re.sub(rf"(?<=\S) +{ids}|{ids} ?|, D-\d+", "", line) for line in lines]


def setup(app: Sphinx) -> None:
    """Add our own directives."""
    app.connect("autodoc-process-docstring", remove_decision_ids)
    app.add_directive("commands", CommandsDirective)
    app.add_directive("webhooks", WebhooksDirective)
    app.add_directive("settings", SettingsDirective)
