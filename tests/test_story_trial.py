"""A trial from its start to a purchase, the real client against the real server."""

import pytest

from harness.flavours import both_flavours
from harness.shop import NAME, SLUG, Open
from harness.world import MovableClock, Server, World
from licclient import LicenseClient, Reason, explain
from licclient.errors import LicenseRefusedError


@pytest.fixture
def customer(
    shop: World, server: Server, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> LicenseClient:
    """Somebody who has installed an app with trials of 14 days."""
    assert server.url
    monkeypatch.setattr("licclient._trials.flow.read_machine_id", lambda: "4f8a1c0e9b2d47d3")
    shop.services.products.change(SLUG, trial_days=14)
    return open_client(product=NAME, slug=SLUG)


@pytest.mark.slow
@both_flavours
def test_a_trial_ends_and_a_key_is_bought(
    shop: World, server: Server, customer: LicenseClient, clock: MovableClock
) -> None:
    """It works, also without the server, ends with a sentence, and the purchased key takes its place."""
    trial = customer.start_trial()
    assert (trial.product, f"{trial.expiry}", trial.is_trial) == (NAME, "2026-12-04", True)
    (license_,) = shop.services.licenses.list_all()
    assert (license_.trial, license_.slots_used) == (True, 1)
    server.stop()
    clock.forward(days=3)
    assert customer.verify().is_trial
    server.start()
    assert customer.start_trial().expiry == trial.expiry

    clock.forward(days=12)
    with pytest.raises(LicenseRefusedError) as ended:
        customer.verify()
    assert ended.value.reason is Reason.EXPIRED
    with pytest.raises(LicenseRefusedError) as again:
        customer.start_trial()
    assert explain(again.value, "en") == "The trial on this computer has ended. Please enter a license key."

    (trial_machine,) = shop.activations(shop.services.licenses.decrypt_key(license_))
    key = shop.new_key(SLUG)
    bought = customer.activate(key)
    assert (bought.is_trial, customer.verify().product) == (False, NAME)
    assert shop.activations(key) == [trial_machine], "it is the same installation"


def test_the_app_is_installed_again(customer: LicenseClient, open_client: Open) -> None:
    """Nothing is left of its state: the trial of this computer goes on, with the same end."""
    trial = customer.start_trial()
    assert open_client(product=NAME, slug=SLUG).start_trial().expiry == trial.expiry


@both_flavours
def test_a_trial_is_converted_and_nothing_is_entered(
    shop: World, customer: LicenseClient, clock: MovableClock
) -> None:
    """The app notices within a day, and lives on after the trial's end."""
    customer.start_trial()
    (license_,) = shop.services.licenses.list_all()
    shop.services.trials.convert(license_.id.hex(), customer_email="ann@example.com")
    clock.forward(days=30)
    found = customer.verify()
    assert (found.is_trial, found.expiry) == (False, None)
    assert shop.services.licenses.get(license_.id.hex()).slots_used == 1


def test_a_server_without_trials_is_no_outage(
    customer: LicenseClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of another maker: the app gets an error that there are none."""
    monkeypatch.setattr("licclient._trials.protocol.TRIAL_PATH", "/api/v1/licenses/unheard-of")
    with pytest.raises(LicenseRefusedError) as refused:
        customer.start_trial()
    assert refused.value.reason is Reason.TRIAL_NOT_OFFERED
