"""Mail addresses of customers, in any script, and of the vendor as the sender. Pure."""

from typing import Final, NamedTuple

import idna

from licserver.domain.environments import MAX_FOREIGN, is_printable

MAX_EMAIL: Final = 254  # characters of an address (RFC 5321, 4.5.3.1.3, without the brackets)


class InvalidAddressError(ValueError):
    """Error of a text that is no mail address; the message shows the format."""


def parse_address(text: str) -> tuple[str, str]:
    """Return the part before the @ and the domain, in ASCII, of a mail address.

    Raises:
        InvalidAddressError: The text is no address, or `email` would read it as another address.
    """
    local, _, domain = text.partition("@")
    # A comment in brackets, or an encoded word: `email` would send to the rest, or to the decoded word.
    is_odd = bool(set(' ,;<>()"\\') & {*text}) or "=?" in text
    ascii_domain = _to_ascii(domain)
    # No such domain exists (RFC 6761, 6.4): WooCommerce anonymises addresses to deleted@site.invalid.
    is_odd = is_odd or ascii_domain.lower().rstrip(".").endswith(".invalid")
    if not (local and ascii_domain and is_printable(text)) or is_odd or len(text) > MAX_EMAIL:
        raise InvalidAddressError("this is not a valid email address; write it like ann@example.com")
    return local, ascii_domain


def can_be_mailed(text: str) -> bool:
    """Return whether a mail can be sent to an address, which may be stored all the same."""
    try:
        parse_address(text)
    except InvalidAddressError:
        return False
    return True


def _to_ascii(domain: str) -> str:
    """Return a domain with A-labels, which all mail servers accept; "" if it has none."""
    if domain.isascii() or sum(not char.isascii() for char in domain) > MAX_FOREIGN:  # `idna` is quadratic
        return domain if domain.isascii() and "@" not in domain else ""
    try:
        return idna.encode(domain, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        return ""


class Sender(NamedTuple):
    """The sender of a mail: a name, which may be empty, and an address whose domain is in ASCII."""

    name: str
    local: str
    domain: str


def parse_sender(text: str) -> Sender:
    """Read a sender, such as ``Example Software <licenses@example.com>``; commas need no quotes.

    Raises:
        InvalidAddressError: The text is no address, or its address has letters other than ASCII before the @.
    """
    name, bracket, ending = text.strip().rpartition("<")
    address = ending.removesuffix(">") if bracket else text.strip()
    name = name.strip()
    if len(name) > 1 and name[0] == name[-1] == '"':
        name = name[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    try:
        local, domain = parse_address(address)
    except InvalidAddressError:
        local, domain = "", ""
    is_open = bool(bracket) and not ending.endswith(">")
    if not local or is_open or not is_printable(text) or set("<>") & {*name}:
        raise InvalidAddressError("must look like Example Software <licenses@example.com>")
    if not local.isascii():
        raise InvalidAddressError("must be ASCII before the @, which all mail servers accept")
    return Sender(name, local, domain)
