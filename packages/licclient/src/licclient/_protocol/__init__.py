"""The wire format, pure: requests, responses, download links and the headers of a download."""
