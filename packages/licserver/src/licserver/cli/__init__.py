"""The command line: finds the module of a command, runs it, and turns errors into a line and an exit code."""

import difflib
import errno
import importlib
import os
import re
import sys
import traceback
from typing import Final

import click

from licserver import __version__
from licserver.cli.output import echo
from licserver.errors import InvalidInputError, LicserverError
from licserver.security.private_files import user_name
from licserver.security.redaction import mask

EXIT_FAILED: Final = 1
EXIT_WRONG_USE: Final = 2
EXIT_INTERRUPTED: Final = 130
_SIMILAR: Final = 0.7
_NO_NUMBER: Final = re.compile(r"is not a valid integer( range)?")
_AFTER_COMMAND: Final = {"--data-dir": "--data-dir /srv/licserver", "--json": "--json"}
"""Options of nearly all commands, and how they are written."""

_HELP = """Verify license keys and serve updates of downloadable software.

\b
Try it:    licserver demo
For real:  licserver product add my-app --name "My App"
           licserver release publish my-app 1.0 my-app-1.0.zip
           licserver license issue my-app
           licserver serve

All commands work while the server runs, and take effect at its next response.
"""

_COMMANDS: Final = {  # name → module and function in this package, and help
    "serve": ("serve:serve", "Answer verify, update check and download."),
    "demo": ("demo:demo", "Serve a throwaway installation with sample data."),
    "product": ("products:product_group", "Add, list, change and rename products."),
    "plan": ("products:plan_group", "Choose what licenses are entitled to."),
    "release": ("releases:release_group", "Publish, sign, list and withdraw versions."),
    "license": ("licenses:license_group", "Issue license keys, and change what they allow."),
    "customer": ("personal_data:customer_group", "Export or erase one person's data."),
    "subscription": ("sources:subscription_group", "End and resume subscriptions."),
    "source": ("sources:source_group", "Take sales from shops."),
    "secret": ("access:secret_group", "List and rotate the secrets that sign download links."),
    "signing-key": ("access:signing_key_group", "Manage the keys that sign responses, for apps to pin."),
    "user": ("access:user_group", "Add and remove console users."),
    "backup": ("installation:backup", "Write database, secrets and files to one file."),
    "restore": ("installation:restore", "Create an installation from a backup."),
    "import": ("transfer:import_", "Import licenses from a file."),
    "export": ("transfer:export", "Export all licenses to a file."),
    "sweep": ("installation:sweep", "Delete what is older than the settings allow."),
    "clock": ("installation:clock", "Show whether this machine's clock is trusted, or accept it."),
    "check": ("installation:check", "Check the installation, with advice."),
    "token": ("access:token_group", "Manage tokens of the admin API."),
    "webhook": ("notifications:webhook_group", "Notify your programs of events."),
    "mail": ("notifications:mail_group", "Show mails to customers, and try the settings."),
    "settings": ("settings:settings", "Show all settings, as a file of environment variables."),
    "deploy-files": ("deploy_files:deploy_files", "Write files for systemd, proxies and containers."),
    "audit": ("access:audit", "Show changes and their authors."),
    "db": ("database:database_group", "Create, upgrade, check and count the database."),
}


class Commands(click.Group):
    """A group whose help lists the first sentence of each command in full; click would cut it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=1000)) for name in names])


class LazyCommands(Commands):
    """Imports a command when it runs: SQLAlchemy alone takes three times as long as the help.

    `commands` has their names and help only.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, the most used first."""
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the most similar one."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as unknown:
            message = f"No such command {unknown.command_name!r}.{_suggest(unknown.command_name)}"
            raise click.exceptions.NoSuchCommand(unknown.command_name, message, ctx=ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"licserver.cli.{module}"), attribute)
        return command


def _suggest(typed: str) -> str:
    """Return a question with the most similar command, or nothing.

    Letters and their order count half each: difflib alone finds `secret` more similar to `lisence`.
    """

    def similarity(name: str) -> float:
        pairs = (typed, name), (sorted(typed), sorted(name))
        return sum(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs) / 2

    best = max(_COMMANDS, key=similarity)
    return f" Did you mean {best!r}?" if similarity(best) >= _SIMILAR else ""


@click.group(
    cls=LazyCommands,
    commands=[click.Command(name, short_help=text) for name, (_, text) in _COMMANDS.items()],
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="licserver")
def licserver() -> None:
    """Hold the commands."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 failed, 2 wrong use, 130 interrupted.

    An unexpected exception prints its traceback, masked, because reports are mailed around.
    """
    started_as = _user_id()
    try:
        licserver.main(arguments, prog_name="licserver", standalone_mode=False)
        code = 0
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        echo(help_wanted.message, err=True)
        code = EXIT_WRONG_USE
    except click.ClickException as wrong:
        code = _fail(_format_wrong_use(wrong), EXIT_WRONG_USE)
    except LicserverError as problem:
        message = "; ".join([str(problem), *getattr(problem, "__notes__", ())])
        code = _fail(message, EXIT_WRONG_USE if isinstance(problem, InvalidInputError) else EXIT_FAILED)
        _explain_denial(problem, started_as)
    except BrokenPipeError:  # the reader of the output has gone
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - or the interpreter complains at exit
        code = EXIT_FAILED
    except OSError as problem:
        where = f": {problem.filename}" if problem.filename else ""
        code = _fail(f"{problem.strerror or problem}{where}", EXIT_FAILED)
        _explain_denial(problem, started_as)
    except (KeyboardInterrupt, click.Abort):
        code = _fail("interrupted", EXIT_INTERRUPTED)
    except Exception as problem:  # noqa: BLE001 - printed completely
        if isinstance(problem, ImportError) and _user_id() != started_as:
            code = _fail(_describe_unreadable_program(problem), EXIT_FAILED)
        else:
            echo(mask(traceback.format_exc()), err=True, nl=False)
            code = EXIT_FAILED
            _explain_denial(problem, started_as)
    sys.exit(code)


def _format_wrong_use(wrong: click.ClickException) -> str:
    """Return click's message, and where the help is if the message does not name what is valid."""
    message = _NO_NUMBER.sub("is not a whole number", wrong.format_message())
    if not isinstance(wrong, click.UsageError) or wrong.ctx is None:
        return message
    if isinstance(wrong, click.NoSuchOption) and wrong.option_name in _AFTER_COMMAND:
        example = f"licserver product list {_AFTER_COMMAND[wrong.option_name]}"
        return f"No such option {wrong.option_name!r} here: place it after the command, as in `{example}`."
    takes_product = any("--product" in parameter.opts for parameter in wrong.ctx.command.params)
    if "unexpected extra argument" in message and takes_product:
        message = f"{message.rstrip('.')}; a product is given as --product SLUG"
    is_explained = isinstance(wrong, click.BadParameter) and not isinstance(wrong, click.MissingParameter)
    if is_explained or "Did you mean" in message:
        return message
    return f"{message.rstrip('.')}. See `{wrong.ctx.command_path} --help`."


def _user_id() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0  # Windows has none


def _explain_denial(problem: Exception, started_as: int) -> None:
    """Explain to root why a file cannot be read."""
    if os.strerror(errno.EACCES) in str(problem) and _user_id() != started_as:
        name = user_name(_user_id())
        echo(
            f"licserver: root's commands act as {name}, the owner of the data folder: use a path that "
            f"{name} can access, or - for standard input or output",
            err=True,
        )


def _describe_unreadable_program(problem: ImportError) -> str:
    """Explain to root why a module that is there cannot be imported."""
    return (
        f"root's commands act as {user_name(_user_id())}, the owner of the data folder, who cannot read this "
        f"Python below {sys.base_prefix} ({problem}): use one that every user may read, such as the system's"
    )


def _fail(message: str, code: int) -> int:
    # Masked: a key may have been typed in the wrong place.
    echo(f"licserver: {mask(' '.join(message.split()))}", err=True)
    return code
