"""A malformed verify takes no slot and breaks nothing, though a good key stands in it (D-11, issue 4)."""

import gzip
import json

PATH = "/api/v1/licenses/verify"
JSON = {"Content-Type": "application/json"}


def fields(key, **more: object):
    """A good body, with what is to be wrong about it."""
    return {"license_key": key, "domain": "a.example", "ip": "192.0.2.1", **more}


def text(key, **more: object):
    """The same as JSON."""
    return json.dumps(fields(key, **more)).encode()


def but(key, found, instead):
    """A good body in which a piece of text is another."""
    body = text(key)
    assert found in body
    return body.replace(found, instead)


BODIES = {
    "domain too long": lambda key: text(key, domain="a" * 300),
    "address with a zone": lambda key: text(key, ip="fe80::1%eth0"),
    "address with a prefix": lambda key: text(key, ip="192.0.2.0/24"),
    "address in other digits": lambda key: text(key, ip="١٩٢.0.2.1"),
    "nothing": lambda _: b"",
    "blank": lambda _: b" \r\n\t ",
    "null": lambda _: b"null",
    "a list of it": lambda key: b"[" + text(key) + b"]",
    "a string of it": lambda key: json.dumps(text(key).decode()).encode(),
    "twice": lambda key: text(key) * 2,
    "cut": lambda key: text(key)[:-1],
    "one more brace": lambda key: text(key) + b"}",
    "a comma too many": lambda key: text(key)[:-1] + b",}",
    "single quotes": lambda key: text(key).replace(b'"', b"'"),
    "a comment": lambda key: text(key)[:-1] + b"/* */}",
    "NaN": lambda key: text(key)[:-1] + b',"x":NaN}',
    "infinity": lambda key: text(key)[:-1] + b',"x":-Infinity}',
    "a number of thousands of digits": lambda key: text(key)[:-1] + b',"x":' + b"9" * 5000 + b"}",
    "an escape that is none": lambda key: but(key, b"a.example", b"a\\x.example"),
    "half an escape": lambda key: but(key, b"a.example", b"\\ud83d"),
    "a raw line break": lambda key: but(key, b"a.example", b"a\n.example"),
    "lists in lists": lambda key: text(key)[:-1] + b',"x":' + b"[" * 7000 + b"]" * 7000 + b"}",
    "objects in objects": lambda key: text(key)[:-1] + b',"x":' + b'{"x":' * 2500 + b"1" + b"}" * 2500 + b"}",
    "never closed": lambda key: text(key)[:-1] + b',"x":' + b"[" * 15000,
    "UTF-16": lambda key: text(key).decode().encode("utf-16"),
    "UTF-32": lambda key: text(key).decode().encode("utf-32"),
    "UTF-7": lambda key: b"+ACI-" + text(key),
    "Latin-1": lambda key: but(key, b"a.example", b"b\xfccher.example"),
    "overlong UTF-8": lambda key: but(key, b"a.example", b"a\xc0\xae.example"),
    "a surrogate in UTF-8": lambda key: but(key, b"a.example", b"\xed\xa0\x80"),
    "two byte order marks": lambda key: b"\xef\xbb\xbf" * 2 + text(key),
    "a form": lambda key: f"license_key={key}&domain=a.example&ip=192.0.2.1".encode(),
    "a query in the body": lambda key: f"?license_key={key}".encode(),
    "XML": lambda key: f"<license_key>{key}</license_key>".encode(),
    "YAML": lambda key: f"license_key: {key}\ndomain: a.example\nip: 192.0.2.1".encode(),
    "too long": lambda key: text(key) + b" " * 17000,
    "too long by a field": lambda key: text(key, x="x" * 17000),
}


async def test_a_malformed_body_takes_no_slot(make_world, open_site):
    """4xx in our own format, nothing stored; the key still has its one slot afterwards."""
    world = make_world(miss_limit=0)
    site, key = await open_site(world), world.key()
    for name, body in BODIES.items():
        status, _, answer = await site.call("POST", PATH, data=body(key), headers=JSON)
        # Depth is no fault as such: where the reader manages it, the field is an unknown one and ignored.
        if status == 200:
            assert name in {"lists in lists", "objects in objects"}
            world.vendor.deactivate(key, "a.example")
            continue
        assert status in {413, 422}, name
        assert "message" in answer, name
        assert key not in json.dumps(answer), name
        assert world.held(key) == [], name
    assert (await site.verify(key))[0] == 200


async def test_an_encoded_body_is_refused(site, world):
    """415 for any Content-Encoding, also for a body that would be good; no slot is taken."""
    key = world.key()
    for encoding in ("gzip", "x-gzip", "deflate", "br", "zstd", "identity", "gzip, gzip", ""):
        headers = {**JSON, "Content-Encoding": encoding}
        status, told, answer = await site.call("POST", PATH, data=gzip.compress(text(key)), headers=headers)
        assert (status, answer["error"]) == (415, "unsupported_media_type"), encoding
        assert told["Accept-Encoding"] == "identity"
    assert world.held(key) == []
