"""Remember the version that a person skipped."""

from licclient._flows.context import Context
from licclient._model import Update
from licclient._records import record_name


def skip_update(context: Context, update: Update) -> None:
    """Remember the one version that is not to be offered unasked (D-87)."""
    context.storage.change(_skipped_name(context, update), lambda _: {"version": update.version})


def is_skipped(context: Context, update: Update) -> bool:
    """Return whether this is the version that was skipped last; to the letter, and never an important one."""
    document = context.storage.load(_skipped_name(context, update))
    return document is not None and document.get("version") == update.version and not update.is_critical


def _skipped_name(context: Context, update: Update) -> str:
    from licclient._arguments import check_update  # noqa: PLC0415 - rarely needed

    check_update(update)
    return record_name("skipped", context.settings.server, update.slug)
