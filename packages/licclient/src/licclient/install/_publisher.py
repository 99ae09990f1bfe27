"""Whether a file has a valid signature of a publisher, by Windows itself (D-354).

`WinVerifyTrust` compares digest, chain and revocation; the name is that of the certificate that signed. Not
by PowerShell, which policies turn off, and whose absence others take for a signature.
"""

import ctypes
from ctypes import POINTER, Structure, byref, c_byte, c_long, c_ulong, c_ushort, c_void_p, c_wchar_p, sizeof
from pathlib import Path
from typing import Any, Final

_SIMPLE_NAME: Final = 4  # CERT_NAME_SIMPLE_DISPLAY_TYPE
_LONGEST: Final = 256
_NO_WINDOW: Final = 2  # WTD_UI_NONE
_WHOLE_CHAIN: Final = 1  # WTD_REVOKE_WHOLECHAIN
_OF_A_FILE: Final = 1  # WTD_CHOICE_FILE
_VERIFY: Final = 1  # WTD_STATEACTION_VERIFY
_CLOSE: Final = 2  # WTD_STATEACTION_CLOSE


class _Guid(Structure):
    _fields_ = (("data1", c_ulong), ("data2", c_ushort), ("data3", c_ushort), ("data4", c_byte * 8))


class _FileInfo(Structure):
    _fields_ = (("size", c_ulong), ("path", c_wchar_p), ("handle", c_void_p), ("subject", c_void_p))


class _TrustData(Structure):
    _fields_ = (
        ("size", c_ulong),
        ("policy", c_void_p),
        ("client", c_void_p),
        ("ui", c_ulong),
        ("revocation", c_ulong),
        ("union", c_ulong),
        ("file", POINTER(_FileInfo)),
        ("action", c_ulong),
        ("state", c_void_p),
        ("url", c_wchar_p),
        ("flags", c_ulong),
        ("context", c_ulong),
        ("settings", c_void_p),
    )


class _Certificate(Structure):  # the head of CRYPT_PROVIDER_CERT
    _fields_ = (("size", c_ulong), ("context", c_void_p))


# WINTRUST_ACTION_GENERIC_VERIFY_V2
_ACTION: Final = (0x00AAC56B, 0xCD44, 0x11D0, (c_byte * 8)(-116, -62, 0, -64, 79, -62, -107, -18))


def read_publisher(path: Path) -> str | None:
    """Return the name of the certificate that validly signed a file; None without a valid signature.

    Raise `OSError` where there is no Windows to ask.
    """
    load: Any = getattr(ctypes, "WinDLL", None)
    if load is None:
        raise OSError("signatures of programs are verified by Windows")
    return _read(path, load("wintrust"), load("crypt32"))


def _read(path: Path, trust: Any, crypt: Any) -> str | None:
    file = _FileInfo(sizeof(_FileInfo), str(path), None, None)
    data = _TrustData(
        size=sizeof(_TrustData),
        ui=_NO_WINDOW,
        revocation=_WHOLE_CHAIN,
        union=_OF_A_FILE,
        file=ctypes.pointer(file),
        action=_VERIFY,
    )
    action, window = _Guid(*_ACTION), c_void_p(-1)
    trust.WinVerifyTrust.argtypes = (c_void_p, POINTER(_Guid), POINTER(_TrustData))
    trust.WinVerifyTrust.restype = c_long
    is_valid = trust.WinVerifyTrust(window, byref(action), byref(data)) == 0
    try:
        return _name(data.state, trust, crypt) if is_valid else None
    finally:
        data.action = _CLOSE
        trust.WinVerifyTrust(window, byref(action), byref(data))


def _name(state: int | None, trust: Any, crypt: Any) -> str | None:
    """Return the name of the certificate that signed."""
    provider, signer_of, certificate_of = (
        trust.WTHelperProvDataFromStateData,
        trust.WTHelperGetProvSignerFromChain,
        trust.WTHelperGetProvCertFromChain,
    )
    provider.argtypes, provider.restype = (c_void_p,), c_void_p
    signer_of.argtypes, signer_of.restype = (c_void_p, c_ulong, c_long, c_ulong), c_void_p
    certificate_of.argtypes, certificate_of.restype = (c_void_p, c_ulong), POINTER(_Certificate)
    signer = signer_of(provider(state), 0, 0, 0)
    certificate = certificate_of(signer, 0) if signer else None
    if not certificate:
        return None
    text = ctypes.create_unicode_buffer(_LONGEST)
    crypt.CertGetNameStringW.argtypes = (c_void_p, c_ulong, c_ulong, c_void_p, c_wchar_p, c_ulong)
    crypt.CertGetNameStringW(certificate.contents.context, _SIMPLE_NAME, 0, None, text, _LONGEST)
    return text.value or None
