"""Asks without end for some seconds over connections that it keeps; prints how often, and every failure.

Run by a Python that has nothing of ours: ``python3 asker.py URL KEY SECONDS``.
"""

import collections
import http.client
import json
import ssl
import sys
import threading
import time
from urllib.parse import urlsplit


def main(url: str, key: str, seconds: float) -> None:
    """Ask with four threads; what is counted is an answer's status, or why there was none."""
    where, until = urlsplit(url), time.monotonic() + seconds
    body = json.dumps({"license_key": key, "domain": "a.example", "ip": "192.0.2.1"})
    counts: collections.Counter[str] = collections.Counter()

    def connect() -> http.client.HTTPConnection:
        if where.scheme == "https":
            return http.client.HTTPSConnection(where.netloc, timeout=20, context=ssl.create_default_context())
        return http.client.HTTPConnection(where.netloc, timeout=20)

    def ask() -> None:
        connection = connect()
        while time.monotonic() < until:
            try:
                connection.request(
                    "POST", "/api/v1/licenses/verify", body, {"Content-Type": "application/json"}
                )
                answer = connection.getresponse()
                answer.read()
                counts[str(answer.status)] += 1
            except (OSError, http.client.HTTPException) as problem:
                counts[type(problem).__name__] += 1
                connection = connect()
                time.sleep(0.02)
            time.sleep(0.002)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps(counts))


main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
