"""The last success for a key, on the disk and in memory: found for its subject, marked, put and forgotten."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from stage.rules import settings
from stage.signing import GOOD, SIGNER

from harness.oracle import HttpRequest, HttpResponse, digest
from licclient import Trust
from licclient._core.model import CachedLicense, Verified
from licclient._core.records import record_name, seal, unseal, write_cached_license
from licclient._core.requests import verify_call
from licclient._core.responses import Reply
from licclient._core.signed_responses import read_trusted_verify, request_signature
from licclient._core.storage import StateFolder
from licclient._core.successes import Subject, Successes

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SERVER, KEY, DOMAIN = "https://x.example", "CP-ABC123-DEF456-GHI789-JKL012-MNO345", "d"
SETTINGS = {"license": settings(SERVER), "signed": settings(SERVER, trust=Trust(public_keys=[SIGNER.text]))}
NAMES = {kind: record_name(kind, SERVER, KEY, DOMAIN) for kind in SETTINGS}


@pytest.fixture(params=SETTINGS)
def kind(request):
    """What an app without pins remembers, and what one with a pinned key does."""
    return request.param


@pytest.fixture
def make(kind, tmp_path):
    """The successes of a process that has just begun."""
    return lambda: Successes(SETTINGS[kind], StateFolder(tmp_path))


@pytest.fixture
def held(kind):
    """A success that came at NOW, signed for an app with pins."""
    settings = SETTINGS[kind]
    if kind == "license":
        return CachedLicense(Verified("Notes", None, lifetime=False), NOW, NOW)
    call = request_signature(verify_call(settings, KEY, DOMAIN, "192.0.2.1"), settings.public_keys, "n")
    signed_request = HttpRequest(call.method, call.url, {"Content-Digest": digest(call.body)}, call.body)
    answered = HttpResponse(
        signed_request, 200, {"Content-Type": "application/json"}, json.dumps(GOOD).encode()
    )
    SIGNER.sign(answered, "n", NOW)
    headers = {name.lower(): value for name, value in answered.headers.items()}
    return CachedLicense(
        read_trusted_verify(call, Reply(200, answered.body, headers), KEY, settings, NOW), NOW, NOW
    )


def seen_at(folder, kind):
    """The mark on the disk; None without a record."""
    path = folder / f"{NAMES[kind]}.state"
    return unseal(path.stem, path.read_bytes())["seen_at"] if path.exists() else None


def test_what_was_put_is_found(make, held, kind, tmp_path):
    """By this process and by the next, under a name that says what kind it is; and then forgotten."""
    first = make()
    subject = first.subject(KEY, DOMAIN)
    assert subject == Subject(KEY, DOMAIN, NAMES[kind])
    assert first.find(subject) is None
    first.put(subject, held)
    assert [path.name for path in tmp_path.glob("*.state")] == [f"{NAMES[kind]}.state"]
    again = make()
    assert first.find(subject) == again.find(subject) == held
    again.put(subject, None)
    assert first.find(subject) is None
    assert list(tmp_path.glob("*.state")) == []


def test_what_is_read_is_judged_once(make, held):
    """While the file does not change it is the very same object."""
    successes = make()
    subject = successes.subject(KEY, DOMAIN)
    successes.put(subject, held)
    assert successes.find(subject) is successes.find(subject)


@pytest.mark.parametrize("other", [(KEY[:-1] + "6", DOMAIN), (KEY, "e")])
def test_a_success_is_for_its_subject(make, held, other):
    """Another key's or another domain's is another record."""
    successes = make()
    successes.put(successes.subject(KEY, DOMAIN), held)
    assert successes.find(successes.subject(*other)) is None


def test_a_key_that_was_not_fetched_is_needed_for_a_signature(make, held, kind):
    """Without pins a record can be read by its name alone; one that was signed cannot (D-62)."""
    successes = make()
    successes.put(successes.subject(KEY, DOMAIN), held)
    nameless = Subject(None, DOMAIN, NAMES[kind])
    assert make().find(nameless) == (held if kind == "license" else None)
    assert successes.can_find(NAMES[kind]) is (kind == "license")
    assert not successes.can_find("other" + NAMES[kind])
    assert not successes.can_find(kind)


def test_a_record_in_the_clear_is_never_taken_for_a_signed_one(make, kind, tmp_path):
    """With a pin, what nobody signed grants nothing, whoever asks, key or no key (D-62)."""
    forged = write_cached_license(CachedLicense(Verified("Notes", None, lifetime=True), NOW, NOW))
    (tmp_path / f"{NAMES[kind]}.state").write_bytes(seal(NAMES[kind], forged))
    for key in (None, "", KEY):
        found = make().find(Subject(key, DOMAIN, NAMES[kind]))
        assert (found is None) is (kind == "signed")


def test_asking_without_the_key_spoils_nothing_for_who_has_it(make, held, kind):
    """The answer to the one is not remembered for the other."""
    successes = make()
    successes.put(successes.subject(KEY, DOMAIN), held)
    again = make()
    again.find(Subject(None, DOMAIN, NAMES[kind]))
    assert again.find(again.subject(KEY, DOMAIN)) == held


def test_a_subject_is_worked_out_once(make):
    """Up to a bound on memory."""
    successes = make()
    subject = successes.subject(KEY, DOMAIN)
    assert successes.subject(KEY, DOMAIN) is subject
    for number in range(64):
        successes.subject(KEY, f"domain {number}")
    assert successes.subject(KEY, DOMAIN) == subject
    assert successes.subject(KEY, DOMAIN) is not subject
    assert KEY not in repr(subject)


@pytest.mark.parametrize(
    ("later", "marked"), [(-HOUR, timedelta(0)), (timedelta(minutes=5), timedelta(0)), (HOUR, HOUR)]
)
def test_the_latest_instant_seen_is_written_down(make, held, kind, tmp_path, later, marked):
    """When it is worth a write; what is found has it as well (D-43)."""
    successes = make()
    subject = successes.subject(KEY, DOMAIN)
    successes.put(subject, held)
    expected = held._replace(seen_at=NOW + marked)
    assert successes.find_and_mark(subject, NOW + later) == expected
    assert make().find(subject) == expected
    assert seen_at(tmp_path, kind) == (NOW + marked).isoformat()


def test_nothing_is_marked_where_nothing_is(make, kind, tmp_path):
    """No record is made of it."""
    successes = make()
    assert successes.find_and_mark(successes.subject(KEY, DOMAIN), NOW) is None
    assert seen_at(tmp_path, kind) is None


class Meddled(StateFolder):
    """A folder in which another process does something just before we hold its lock."""

    def meddle(self) -> None:
        """Nothing yet."""

    def change(self, name, edit):
        """Let it come first."""
        self.meddle()
        return super().change(name, edit)


@pytest.mark.parametrize("what", ["forgets it", "breaks it", "has marked it"])
def test_what_another_process_does_meanwhile_counts(make, held, kind, tmp_path, what):
    """A refusal is not undone by a mark, nor is a later mark moved back."""
    there = make()
    state = Meddled(tmp_path)
    here = Successes(SETTINGS[kind], state)
    subject = here.subject(KEY, DOMAIN)
    there.put(subject, held)
    path = tmp_path / f"{subject.name}.state"

    def meddle():
        if what == "forgets it":
            there.put(subject, None)
        elif what == "breaks it":
            path.write_bytes(seal(subject.name, {"nothing": 1}))
        else:
            there.find_and_mark(subject, NOW + 2 * HOUR)

    state.meddle = meddle
    found = here.find_and_mark(subject, NOW + HOUR)
    assert found == (held._replace(seen_at=NOW + 2 * HOUR) if what == "has marked it" else None)
    assert make().find(subject) == found
    assert path.exists() is (what != "forgets it")
