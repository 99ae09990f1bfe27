"""Keys of a keyboard reach the Tk dialog from within a procedure of Tk, whose variables are local."""

import pytest

from licclient import LicenseClient

pytestmark = pytest.mark.window


def test_a_key_that_a_procedure_of_tk_inserts_is_read(hands, tmp_path):
    """As `ttk::entry::Insert` does; and what the dialog repairs is shown from there, too."""
    if not hands.kit.__name__.endswith(".tk"):
        pytest.skip("a rule of Tcl")
    with LicenseClient("https://licenses.example.com", storage=tmp_path) as client:
        hands.open(hands.kit.ActivationDialog(client, hands.parent, language="en"))
        dialog, problems = hands.dialog, []
        dialog.report_callback_exception = hands.parent.report_callback_exception = lambda *problem: (
            problems.append(problem)
        )
        field = dialog._field
        dialog.tk.eval(f"proc insert_key text {{ {field} insert end $text }}")
        dialog.tk.call("insert_key", "cp-abc123 def456 ghi789 jkl012 mno34")
        assert dialog._driver.state.typed == "cp-abc123 def456 ghi789 jkl012 mno34"
        go = dialog._buttons[next(iter(action for action in dialog._buttons if action.value == "go"))]
        dialog.tk.eval(f"proc press {{}} {{ {go} invoke }}")
        dialog.tk.call("press")
        assert hands.message().startswith("⚠")
        assert problems == []
