"""Secrets for links are rotated while servers run, and no customer notices (D-30, D-66)."""

import json
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from licserver.domain.decisions import DownloadRefusal
from licserver.errors import InvalidInputError
from licserver.protocol.downloads import (
    CLOCK_TOLERANCE,
    LINK_LIFETIME,
    LinkSecret,
    LinkSubject,
    sign_link,
)
from licserver.security.link_secrets import LOOK_EVERY, rotate, secret_statuses, watch_link_secrets
from licserver.security.secrets_file import new_secrets, open_vault, read_vault
from licserver.settings import Settings

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
SUBJECT = LinkSubject(bytes(16), 1)
FIRST = LinkSecret("first", b"1" * 32)
SECOND_ONE = LinkSecret("second", b"2" * 32, NOW + MINUTE)
THIRD = LinkSecret("third", b"3" * 32, NOW + timedelta(days=1))
KNOWN = (THIRD, SECOND_ONE, FIRST)
END = NOW + MINUTE + LINK_LIFETIME + CLOCK_TOLERANCE


@pytest.fixture
def settings(tmp_path):
    """A data folder with its first secrets."""
    settings = Settings(data_dir=tmp_path)
    open_vault(settings)
    return settings


@pytest.fixture
def process(settings):
    """Make what one worker process holds."""
    return lambda: watch_link_secrets(settings, open_vault(settings))


def link_of(ring, now):
    """A link that a process hands out."""
    return sign_link("x", SUBJECT, ring.current(now), now).partition("?")[2]


def test_links_outlive_a_rotation(settings, process):
    """What was handed out before is good for its hour; what comes later is signed with the new secret."""
    ring = process()
    old = link_of(ring, NOW)
    rotate(settings, NOW)
    assert ring.current(NOW + LOOK_EVERY).id in old
    new = link_of(ring, NOW + 2 * MINUTE)
    assert ring.current(NOW + 2 * MINUTE).id not in old
    for link in (old, new):
        assert ring.read(link, NOW + 59 * MINUTE) == SUBJECT
    assert ring.read(old, NOW + timedelta(hours=2)) is DownloadRefusal.INVALID_LINK  # not even expired


@pytest.mark.parametrize("after", [timedelta(0), SECOND])
def test_a_process_reads_the_file_again_before_it_refuses_a_link(settings, process, after):
    """A link of the new secret is valid in every process, however short ago the process read the file."""
    late, early = process(), process()
    late.current(NOW)
    rotate(settings, NOW + after, leaked=True)
    assert late.read(link_of(early, NOW + after), NOW + after) == SUBJECT


def test_a_rotation_while_a_process_starts_is_seen(settings):
    """A worker that has read its vault, and not looked at the file again, knows the new secret at once."""
    vault = open_vault(settings)
    [new] = rotate(settings, NOW, leaked=True)
    assert watch_link_secrets(settings, vault).current(NOW).id == new.id


def test_the_file_is_looked_at_every_five_seconds(settings, process):
    """Neither within the instant of the last look nor before its five seconds are over."""
    ring = process()
    old = ring.current(NOW)
    link = link_of(ring, NOW)
    [new] = rotate(settings, NOW, leaked=True)
    for now in (NOW, NOW + LOOK_EVERY - SECOND):
        assert (ring.current(now), ring.read(link, now)) == (old, SUBJECT)
    assert ring.read(link, NOW + LOOK_EVERY) is DownloadRefusal.INVALID_LINK
    assert ring.current(NOW + LOOK_EVERY).id == new.id


def test_an_invalid_link_costs_one_stat(process, monkeypatch):
    """While the file is unchanged or missing, nothing else is done for it."""
    ring, stats = process(), []
    ring.current(NOW)
    for mark in (ring._version, None):
        stats.clear()
        monkeypatch.setattr(
            "licserver.security.link_secrets._file_version",
            lambda path, mark=mark: stats.append(path) or mark,
        )
        ring.read("key=nobody&signature=x", NOW + 2 * SECOND)
        assert len(stats) == 1


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows cannot change the time zone of a process")
def test_instants_are_written_in_utc(settings, monkeypatch):
    """In the file and in messages, whatever the time zone of the machine."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        rotate(settings, NOW)
        with pytest.raises(InvalidInputError, match=r"the new secret signs from 2026-06-15 12:01:00 UTC"):
            rotate(settings, NOW)
    time.tzset()
    newest = json.loads((settings.data_dir / "secrets.json").read_text())["link_secrets"][0]
    assert newest["signs_from"] == "2026-06-15T12:01:00+00:00"


def test_a_late_process_goes_on_believing_the_old_secret(settings, process):
    """Also when it finds the new one only because of a link."""
    late, early = process(), process()
    old = link_of(late, NOW)
    rotate(settings, NOW + SECOND, lead=timedelta(0))
    new = link_of(early, NOW + SECOND)
    for link in (new, old):
        assert late.read(link, NOW + SECOND) == SUBJECT


def test_secrets_from_the_environment_do_not_change_with_a_file(settings):
    """What lies in the data folder is then nobody's."""
    text = (settings.data_dir / "secrets.json").read_text()
    from_outside = Settings(data_dir=settings.data_dir, secrets=text)
    ring = watch_link_secrets(from_outside, open_vault(from_outside))
    before = ring.current(NOW)
    rotate(settings, NOW, leaked=True)
    assert ring.current(NOW + MINUTE) == before


def test_the_next_rotation_may_begin_when_the_last_has_come(settings):
    """In the very instant in which its secret signs; the list says until when each one is believed."""
    rotate(settings, NOW)
    found = rotate(settings, NOW + MINUTE)
    assert [(key.signs, key.believed_until) for key in found] == [
        (False, None),
        (True, NOW + 2 * MINUTE + LINK_LIFETIME + CLOCK_TOLERANCE),
        (False, NOW + MINUTE + LINK_LIFETIME + CLOCK_TOLERANCE),
    ]


def test_made_up_links_cause_no_further_reads(settings, process, monkeypatch):
    """A changed file is read once, also while made-up links keep coming; a broken one every five seconds."""
    ring, reads = process(), []
    monkeypatch.setattr(
        "licserver.security.link_secrets.read_vault", lambda *args: reads.append(args) or read_vault(*args)
    )

    def reads_for_made_up_links(start):
        reads.clear()
        for half in range(20):
            ring.read("key=nobody&signature=x", start + half * SECOND / 2)
        return len(reads)

    assert reads_for_made_up_links(NOW) == 1  # the first look
    rotate(settings, NOW)
    assert reads_for_made_up_links(NOW + MINUTE) == 1
    (settings.data_dir / "secrets.json").write_text("{")
    assert reads_for_made_up_links(NOW + 2 * MINUTE) == 2


def test_a_file_that_cannot_be_read_yet_is_read_when_it_can(settings, process):
    """Whoever puts the file there may give it to the server's user a moment later: that changes no date."""
    ring, path = process(), settings.data_dir / "secrets.json"
    [new, _] = rotate(settings, NOW, lead=SECOND)
    text = path.read_bytes()
    for look, content, is_read in ((1, b"?" * len(text), False), (2, text, True)):
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))
        assert (ring.current(NOW + look * LOOK_EVERY).id == new.id) is is_read


def test_leaked_secrets_are_believed_no_more(settings, process):
    """Whoever has the old one cannot make a link with it."""
    ring = process()
    old = link_of(ring, NOW)
    [left] = rotate(settings, NOW, leaked=True)
    ring.current(NOW + LOOK_EVERY)
    assert ring.read(old, NOW + LOOK_EVERY) is DownloadRefusal.INVALID_LINK
    assert (left.signs, left.signs_from) == (True, NOW)


def test_a_rotation_leaves_everything_else_in_the_file(settings):
    """Keys in the database stay readable, and what a newer licserver keeps there stays as well."""
    path = settings.data_dir / "secrets.json"
    before = json.loads(path.read_text()) | {"of_another_version": [1]}
    path.write_text(json.dumps(before))
    rotate(settings, NOW)
    after = json.loads(path.read_text())
    assert after["link_secrets"][1:] == before["link_secrets"]
    assert {**after, "link_secrets": 0} == {**before, "link_secrets": 0}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list(settings.data_dir.glob(".*"))


def test_retired_secrets_leave_the_file(settings):
    """A secret that no link can name any more is forgotten by the next rotation."""
    for day in range(4):
        found = rotate(settings, NOW + timedelta(days=day))
    assert len(found) == 2
    assert len(open_vault(settings).link_secrets) == 2
    assert len(secret_statuses(open_vault(settings).link_secrets, NOW + timedelta(days=9))) == 1


def test_one_rotation_at_a_time(settings):
    """Of many who rotate at once one does; a second one would take the time away that the first needs."""

    def run(_):
        try:
            return rotate(settings, NOW)
        except InvalidInputError as refusal:
            return str(refusal)

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(run, range(8)))
    assert sum(isinstance(result, list) for result in results) == 1
    assert "a rotation is under way already: the new secret signs from 2026-06-15 12:01:00 UTC" in results
    assert len(open_vault(settings).link_secrets) == 2


NO_SECRETS = "FILE does not hold licserver's secrets; restore it from your backup"
BROKEN = {
    "gone": (lambda path: path.unlink(), ""),
    "empty": (lambda path: path.write_text(""), NO_SECRETS),
    "other secrets": (
        lambda path: path.write_text(json.dumps(new_secrets())),
        "FILE holds the secrets of another database",
    ),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "FILE is not a regular file; move it away"),
    "an instant without a zone": (
        lambda path: path.write_text(
            path.read_text().replace('"id"', '"signs_from": "2026-06-15T12:00:00", "id"')
        ),
        NO_SECRETS,
    ),
}


@pytest.mark.parametrize(("spoil", "words"), BROKEN.values(), ids=BROKEN)
def test_a_running_server_survives_what_becomes_of_the_file(settings, process, spoil, words, caplog):
    """It goes on with the secrets that it has, and says so once."""
    ring = process()
    link = link_of(ring, NOW)
    spoil(settings.data_dir / "secrets.json")
    for minute in range(5):
        assert link_of(ring, NOW + minute * MINUTE)
        assert ring.read(link, NOW + minute * MINUTE) == SUBJECT
    path = settings.data_dir / "secrets.json"
    messages = [record.getMessage().replace(str(path), "FILE") for record in caplog.records]
    kept = "cannot use the changed secrets file; keeping the old link secrets"
    assert messages == [f"{kept}: {words}"] * bool(words)


def test_a_clock_that_was_ahead_freezes_no_secret(settings, process):
    """Who looked by a clock three hours ahead takes a rotation up when the clock is right again."""
    ring, hours = process(), timedelta(hours=3)
    old = link_of(ring, NOW + hours)
    [new] = rotate(settings, NOW, leaked=True)
    assert ring.current(NOW + SECOND).id == new.id
    assert ring.read(old, NOW + SECOND) is DownloadRefusal.INVALID_LINK


def test_a_link_of_a_peer_is_read_by_a_clock_that_was_set_back(settings, process):
    """Also where nothing is signed: the look before a refusal is not put off to when the clock was."""
    late, early = process(), process()
    late.read("key=nobody", NOW + timedelta(hours=3))
    rotate(settings, NOW, leaked=True)
    assert late.read(link_of(early, NOW), NOW) == SUBJECT
