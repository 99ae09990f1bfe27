"""Sphinx's settings; everything that it needs comes from the `docs` group, nothing from the network."""

import importlib
import inspect
import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

project = "licserver and licclient"
author = "the licserver and licclient authors"
copyright = author
html_theme = "furo"
html_title = project
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinxarg.ext",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.openapi",
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "*-table.md"]
html_extra_path = ["../packages/licserver/src/licserver/protocol/openapi.json", "openapi-admin.json"]
nitpicky = True
# Other projects' types, whose inventories would have to be fetched from the network.
_OTHERS = (
    "asyncio|collections|datetime|enum|httpx|os|pathlib|packaging|PySide6|pydantic|threading|tkinter|typing"
)
nitpick_ignore_regex = [("py:.*", rf"({_OTHERS})\..*"), ("py:.*", r"licclient\.(\w+\.)?_\w+\..*|P")]
linkcheck_ignore = [  # addresses of examples, and of servers on the reader's machine
    r"https?://([\w-]+\.)*example\.(com|net|org)",
    r"https?://(localhost|127\.0\.0\.1)",
]
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
napoleon_use_ivar = True
openapi_default_renderer = "httpdomain"


class SettingsDirective(SphinxDirective):
    """List the environment variables of a pydantic settings class, with what its docstring says of each."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a definition list."""
        module, _, name = self.arguments[0].rpartition(".")
        settings = getattr(importlib.import_module(module), name)
        listed = inspect.cleandoc(settings.__doc__).partition("Args:\n")[2]
        texts = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE))
        result = []
        for field, info in settings.model_fields.items():
            text = " ".join(texts[field].split())
            if info.default_factory is None and info.default not in (None, ()):
                text += f" Default: ``{getattr(info.default, 'value', info.default)}``."
            result += self.parse_text_to_nodes(
                f"`{settings.model_config['env_prefix']}{field.upper()}`\n: {text}"
            )
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


def setup(app: Sphinx) -> None:
    """Add our own directives."""
    app.add_directive("webhooks", WebhooksDirective)
    app.add_directive("settings", SettingsDirective)
