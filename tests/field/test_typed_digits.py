"""Keys typed on keyboards whose digits are not ASCII."""

import pytest

from licclient import ClientSettings
from licclient.testing import LicenseService

KEY = "CP-A1B2C3-D4E5F6-G7H8J9-K0L1M2-N3P4Q5"


@pytest.mark.parametrize("digits", ["٠١٢٣٤٥٦٧٨٩", "۰۱۲۳۴۵۶۷۸۹", "०१२३४५६७८९", "০১২৩৪৫৬৭৮৯"])
def test_a_key_typed_with_the_digits_of_another_script(digits: str) -> None:
    """Arabic, Persian, Hindi and Bengali digits count as their values, also around other text."""
    typed = KEY.lower().translate(str.maketrans("0123456789", digits))
    with LicenseService() as service:
        service.issue("Notes Pro", key=KEY)
        with service.client(ClientSettings("https://licenses.example.com", product="Notes Pro")) as client:
            assert client.activate(typed).product == "Notes Pro"
            assert client.activate(f"Your key: {typed}.").product == "Notes Pro"


def test_a_key_sold_elsewhere_typed_with_the_digits_of_another_script() -> None:
    """The letters of such a key stay as they are."""
    with LicenseService() as service:
        service.issue("Notes Pro", key="ab12-cd34-ef56")
        with service.client(ClientSettings("https://licenses.example.com", product="Notes Pro")) as client:
            assert client.activate("ab١٢-cd٣٤-ef٥٦").product == "Notes Pro"
