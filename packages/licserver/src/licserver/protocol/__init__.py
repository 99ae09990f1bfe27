"""The wire formats: requests, responses, links, signatures, manifests. Pure, like `domain`."""
