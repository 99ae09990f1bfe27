"""Which transactions on SQLite wait for the disk."""

from collections import Counter

from licserver.database.durability import is_repeated, repeated_if_lost
from licserver.database.repositories.webhooks import EVENTS
from licserver.domain.records import LicenseTerms
from licserver.jobs.webhooks import register_webhooks
from licserver.jobs.worker import JobWorker

FULL, NORMAL = 2, 1


def levels(world):
    """`PRAGMA synchronous` of each transaction that writes from now on, in turn."""
    found, writing = [], world.services.database.writing

    def note():
        with writing() as connection:
            found.append(connection.exec_driver_sql("PRAGMA synchronous").scalar())

    return found, note


def test_only_what_is_repeated_does_not_wait_for_the_disk(world):
    """An activation and a sale survive a power cut; a lost delivery is made again."""
    database = world.services.database
    with database.writing() as connection:
        driver = connection.connection.driver_connection
    driver.execute("PRAGMA synchronous = FULL")  # tests have turned it off
    found, note = levels(world)
    note()
    with repeated_if_lost():
        note()
        note()
    note()
    assert found == [FULL, NORMAL, NORMAL, FULL]


def test_jobs_are_claimed_and_events_fanned_out_without_waiting(world, monkeypatch):
    """Both are repeated if they are lost."""
    seen = []
    monkeypatch.setattr(
        "licserver.database.engine.is_repeated", lambda: seen.append(is_repeated()) or seen[-1]
    )
    worker = JobWorker(world.services.repositories, world.clock)
    register_webhooks(worker, world.services)
    world.services.webhooks.add("https://hooks.example/")
    world.services.licenses.issue("app", LicenseTerms())
    seen.clear()
    (job,) = worker._claim({EVENTS: 8}, Counter())
    worker._queues[EVENTS].run(job)
    assert seen
    assert all(seen)
