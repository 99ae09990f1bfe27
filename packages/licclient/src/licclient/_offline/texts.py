"""Pure: what people read of a license file that cannot be used, in each language."""

from typing import Final

from licclient._core.model import FileFlaw
from licclient._core.texts import pick_language, text_of
from licclient.errors import LicenseFileError

TEXTS: Final = {
    "en": {
        FileFlaw.DAMAGED: "This is not a license file, or a part of it is missing. Please get it again.",
        FileFlaw.OTHER_MACHINE: "This license file is for another computer. Please ask for one for this computer.",
        FileFlaw.ENDED: "This license file has ended. Please ask for a new one.",
    },
    "de": {
        FileFlaw.DAMAGED: "Das ist keine Lizenzdatei, oder ein Teil fehlt. Bitte holen Sie sie noch einmal.",
        FileFlaw.OTHER_MACHINE: "Diese Lizenzdatei ist für einen anderen Computer. Bitte fordern Sie eine für diesen Computer an.",
        FileFlaw.ENDED: "Diese Lizenzdatei ist abgelaufen. Bitte fordern Sie eine neue an.",
    },
    "fr": {
        FileFlaw.DAMAGED: "Ce n’est pas un fichier de licence, ou il est incomplet. Veuillez l’obtenir à nouveau.",
        FileFlaw.OTHER_MACHINE: "Ce fichier de licence est pour un autre ordinateur. Veuillez en demander un pour celui-ci.",
        FileFlaw.ENDED: "Ce fichier de licence a expiré. Veuillez en demander un nouveau.",
    },
    "es": {
        FileFlaw.DAMAGED: "Esto no es un archivo de licencia, o está incompleto. Obténgalo de nuevo.",
        FileFlaw.OTHER_MACHINE: "Este archivo de licencia es para otro ordenador. Solicite uno para este ordenador.",
        FileFlaw.ENDED: "Este archivo de licencia ha caducado. Solicite uno nuevo.",
    },
    "ja": {
        FileFlaw.DAMAGED: "これはライセンスファイルではないか、一部が欠けています。もう一度入手してください。",
        FileFlaw.OTHER_MACHINE: "このライセンスファイルは別のコンピューター用です。このコンピューター用のものを申請してください。",
        FileFlaw.ENDED: "このライセンスファイルは期限が切れています。新しいものを申請してください。",
    },
    "zh": {
        FileFlaw.DAMAGED: "这不是许可证文件，或者内容不完整。请重新获取。",
        FileFlaw.OTHER_MACHINE: "此许可证文件用于另一台电脑。请为这台电脑申请一个。",
        FileFlaw.ENDED: "此许可证文件已到期。请申请新的文件。",
    },
}

SHARED: Final = {
    FileFlaw.UNTRUSTED: "error.untrusted",
    FileFlaw.OTHER_PRODUCT: "reason.other_product",
    FileFlaw.REVOKED: "reason.revoked",
    FileFlaw.CLOCK: "error.clock",
}
"""Texts that are no different without a file, by their codes in `_core/texts`."""


def sentence_of(error: LicenseFileError, tag: str) -> str:
    """Return why a file cannot be used, and what to do; `tag` is a language as of `pick_tag`."""
    code = SHARED.get(error.flaw)
    return TEXTS[pick_language([tag])][error.flaw] if code is None else text_of(code, tag)
