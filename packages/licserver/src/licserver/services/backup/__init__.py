"""A vendor's whole installation in one file: database, secrets and the files of releases.

The file is a tar. It begins with what it is (`HEADER`), goes on with the secrets, the artifacts and the
tables' rows, and ends with the digests of all that (`CONTENTS`): a file that was cut off has no end, and
one in which a bit fell over has another digest. It is written and read in one go, in memory that does not
grow, so it can come out of a pipe and go into one.
"""

from licserver.services.backup.layout import Summary
from licserver.services.backup.restoring import restore_backup
from licserver.services.backup.writing import write_backup

__all__ = ["Summary", "restore_backup", "write_backup"]
