"""The two dialogs without their windows: `licclient.tk` and `licclient.qt` only draw what is decided here.

`view` says what a window can show and tell, `activation` and `update` decide, `words` speaks six languages,
and `driver` runs what a dialog wants done on threads. All but the last are pure.
"""
