"""The state of the job queues, for the metrics and `licserver check`."""

from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple

from licserver.database.repositories import Repositories
from licserver.database.repositories.queue import MAX_COUNTED_JOBS
from licserver.database.repositories.sales import QUEUE as SALES
from licserver.database.repositories.webhooks import DELIVERIES, EVENTS
from licserver.services.mail import QUEUES as MAIL_QUEUES
from licserver.services.releases import PATCHES
from licserver.settings import Settings

QUEUES: Final[Mapping[str, tuple[str, ...]]] = {
    "sales": (SALES,),
    "webhooks": (EVENTS, DELIVERIES),
    "mail": MAIL_QUEUES,
    "patches": (PATCHES,),
}


class QueueState(NamedTuple):
    """The state of a queue; counts are bounded (`MAX_COUNTED_JOBS`)."""

    name: str
    oldest_due: float  # seconds since the oldest due job became due; 0 without due jobs
    waiting: int
    dead: int
    problems: int = 0  # sales that need a decision


def measure_queues(repositories: Repositories, settings: Settings, now: datetime) -> list[QueueState]:
    """Measure the queues of a server; mail only if it is on. Unreadable deliveries count as dead."""
    sizes = repositories.queue.measure([*chain.from_iterable(QUEUES.values())], now)
    states = []
    for name, queues in QUEUES.items():
        oldest, waiting, counts = zip(*(sizes[queue] for queue in queues), strict=True)
        if name != "mail" or settings.mail_host is not None:
            due_at = min(filter(None, oldest), default=now)
            dead = sum(counts) + (
                repositories.sales.count_unreadable(MAX_COUNTED_JOBS) if name == "sales" else 0
            )
            problems = repositories.sales.count_open_problems(MAX_COUNTED_JOBS) if name == "sales" else 0
            states.append(QueueState(name, (now - due_at).total_seconds(), sum(waiting), dead, problems))
    return states
