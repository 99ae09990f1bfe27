"""What a release needs beside the packages; RELEASING.md describes it. Run as `python -m tools.NAME`."""
