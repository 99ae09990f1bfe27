"""The console: the vendor's side in a browser, as pages that work without JavaScript."""
