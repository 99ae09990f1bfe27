"""Ready dialogs for Tk and Qt (`licclient.dialogs.tk`, `licclient.dialogs.qt`): license key, update.

Pure: `_states` decides. `_driver` calls the service on threads; `tk` and `qt` draw.
"""

__all__: list[str] = []
