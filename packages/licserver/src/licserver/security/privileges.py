"""Root's commands act as the owner of the data folder (D-157)."""

import os
from pathlib import Path

from licserver.errors import WrongUse


def become_owner(folder: Path) -> None:
    """As root, become the user to whom a folder belongs, for the rest of the process; else do nothing.

    The owner could put a link into the folder wherever root is about to write. As the owner, a command can do
    no more than that user could.

    Args:
        folder: If there is none yet, the nearest one above it counts. A folder of root's changes nothing.

    Raises:
        WrongUse: when the system does not allow it.
    """
    if os.name == "nt" or os.geteuid() != 0:
        return
    while not folder.exists():
        folder = folder.parent
    status = folder.stat()
    if status.st_uid == 0:
        return
    try:
        _become(status.st_uid, status.st_gid)
    except OSError as problem:
        raise WrongUse(
            f"cannot act as {user_name(status.st_uid)}, to whom {folder} belongs: {problem.strerror}; start "
            "this command as that user"
        ) from None


def _become(uid: int, gid: int) -> None:
    import pwd  # noqa: PLC0415 - does not exist on Windows

    try:
        user = pwd.getpwuid(uid)
    except KeyError:  # a container often has a number without a name
        os.setgroups([gid])
    else:
        gid = user.pw_gid
        os.setgroups(os.getgrouplist(user.pw_name, gid))
        os.environ["HOME"] = user.pw_dir  # libpq looks for certificates there, and fails where it may not
    os.setgid(gid)
    os.setuid(uid)  # last: it ends the right to do the others


def user_name(uid: int) -> str:
    """Return the name of a user, or the number of one without a name."""
    import pwd  # noqa: PLC0415 - does not exist on Windows

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
