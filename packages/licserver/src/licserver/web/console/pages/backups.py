"""Backups: those in the folder, and another one. For owners."""

import shlex

from licserver.services.backup_folder import BackupFolder
from licserver.web.console.pages import Page, PageContext, Redirect, Reply, ask, is_confirmed

SHOWN = 50


def show(context: PageContext) -> Page:
    """Show the backups, how the latest one goes, and how to restore one."""
    folder = BackupFolder(context.services)
    files = folder.list_files()
    latest = shlex.quote(str(files[0].path if files else folder.path / "FILE.backup"))
    values = {"folder": folder.path, "obstacle": folder.obstacle, "run": folder.latest_run()}
    return Page("backups.html", {**values, "files": files[:SHOWN], "total": len(files), "latest": latest})


def make(context: PageContext) -> Redirect:
    """Start a backup."""
    BackupFolder(context.services).start()
    return context.back("backup-started")


def delete(context: PageContext) -> Reply:
    """Delete a backup, once that is confirmed."""
    folder, name = BackupFolder(context.services), context.from_form("file")
    if not is_confirmed(context):
        newest = next((one.path.name for one in folder.list_files()), None)
        effects = [f"{name} is deleted from {folder.path}. This cannot be undone."]
        if name == newest:
            effects.append("It is the latest backup of this folder.")
        return ask(context, "Delete this backup?", effects, "Delete")
    folder.delete(name)
    return context.back("backup-deleted")
