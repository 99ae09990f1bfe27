"""What waits in the queues of jobs, as the metrics and `licserver check` report it."""

from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple

from licserver.database.repositories import Repositories
from licserver.database.repositories.queue import MAX_COUNTED
from licserver.database.repositories.sales import QUEUE as SALES
from licserver.database.repositories.webhooks import DELIVERIES, EVENTS
from licserver.services.mail import MAIL
from licserver.services.releases import PATCHES
from licserver.settings import Settings

QUEUES: Final[Mapping[str, tuple[str, ...]]] = {
    "sales": (SALES,),
    "webhooks": (EVENTS, DELIVERIES),
    "mail": (MAIL,),
    "patches": (PATCHES,),
}


class QueueState(NamedTuple):
    """A queue by its name for people; counts are bounded (`MAX_COUNTED`)."""

    name: str
    oldest_due: float  # seconds for which the oldest due job has been due; 0 without one
    waiting: int
    dead: int


def measure_queues(repositories: Repositories, settings: Settings, now: datetime) -> list[QueueState]:
    """Measure the queues that a server works on; mail only if it is on. Unreadable deliveries are dead."""
    sizes = repositories.queue.measure([*chain.from_iterable(QUEUES.values())], now)
    found = []
    for name, queues in QUEUES.items():
        oldest, waiting, counts = zip(*(sizes[queue] for queue in queues), strict=True)
        if name != "mail" or settings.mail_host is not None:
            due_at = min(filter(None, oldest), default=now)
            dead = sum(counts) + (repositories.sales.count_unreadable(MAX_COUNTED) if name == "sales" else 0)
            found.append(QueueState(name, (now - due_at).total_seconds(), sum(waiting), dead))
    return found
