"""Pure: what people read of the computers of a license, and of a move, in each language."""

from datetime import datetime
from typing import Final

from licclient._computers.protocol import ComputerList, MovedTo
from licclient._core.model import MoveObstacle
from licclient._core.texts import format_date, join_sentences, pick_language, text_of, to_local
from licclient.errors import MoveError

TEXTS: Final = {
    "en": {
        "in_use": "Computers that use this license: {0} of {1}.",
        "in_use_unlimited": "Computers that use this license: {0}.",
        "moved_to": "This license was moved to {0} on {1}.",
        "another": "another computer ({0})",
        "file_held": "The computer that you chose has a license file. The license can be moved from it on {0}.",
        "computer_not_found": "The computer that you chose does not use this license any more. Please choose again.",
        "not_allowed": "Only support can move this license to another computer. Please contact support.",
    },
    "de": {
        "in_use": "Computer, die diese Lizenz nutzen: {0} von {1}.",
        "in_use_unlimited": "Computer, die diese Lizenz nutzen: {0}.",
        "moved_to": "Diese Lizenz wurde am {1} auf {0} übertragen.",
        "another": "einen anderen Computer ({0})",
        "file_held": "Der gewählte Computer hat eine Lizenzdatei. Die Lizenz lässt sich ab {0} von ihm übertragen.",
        "computer_not_found": "Der gewählte Computer nutzt diese Lizenz nicht mehr. Bitte wählen Sie erneut.",
        "not_allowed": "Nur der Support kann diese Lizenz auf einen anderen Computer übertragen. Bitte wenden Sie sich an den Support.",
    },
    "fr": {
        "in_use": "Ordinateurs qui utilisent cette licence : {0} sur {1}.",
        "in_use_unlimited": "Ordinateurs qui utilisent cette licence : {0}.",
        "moved_to": "Cette licence a été transférée vers {0} le {1}.",
        "another": "un autre ordinateur ({0})",
        "file_held": "L’ordinateur choisi dispose d’un fichier de licence. La licence pourra en être transférée à partir du {0}.",
        "computer_not_found": "L’ordinateur choisi n’utilise plus cette licence. Veuillez choisir de nouveau.",
        "not_allowed": "Seule l’assistance peut transférer cette licence vers un autre ordinateur. Veuillez contacter l’assistance.",
    },
    "es": {
        "in_use": "Equipos que usan esta licencia: {0} de {1}.",
        "in_use_unlimited": "Equipos que usan esta licencia: {0}.",
        "moved_to": "Esta licencia se transfirió a {0} el {1}.",
        "another": "otro equipo ({0})",
        "file_held": "El equipo elegido tiene un archivo de licencia. La licencia se podrá transferir desde él a partir del {0}.",
        "computer_not_found": "El equipo elegido ya no usa esta licencia. Elija de nuevo.",
        "not_allowed": "Solo el soporte puede transferir esta licencia a otro equipo. Póngase en contacto con el soporte.",
    },
    "ja": {
        "in_use": "このライセンスを使用しているコンピューター：{1}台中{0}台。",
        "in_use_unlimited": "このライセンスを使用しているコンピューター：{0}台。",
        "moved_to": "このライセンスは{1}に{0}へ移されました。",
        "another": "別のコンピューター（{0}）",
        "file_held": "選択したコンピューターにはライセンスファイルがあります。{0}から移すことができます。",
        "computer_not_found": "選択したコンピューターは、もうこのライセンスを使用していません。もう一度選択してください。",
        "not_allowed": "このライセンスをほかのコンピューターへ移せるのはサポートだけです。サポートにお問い合わせください。",
    },
    "zh": {
        "in_use": "正在使用此许可证的计算机：{0}/{1}。",
        "in_use_unlimited": "正在使用此许可证的计算机：{0}。",
        "moved_to": "此许可证已于{1}移至{0}。",
        "another": "另一台计算机（{0}）",
        "file_held": "所选计算机持有许可证文件。自{0}起可以从中移出许可证。",
        "computer_not_found": "所选计算机已不再使用此许可证。请重新选择。",
        "not_allowed": "只有技术支持可以将此许可证移至其他计算机。请联系技术支持。",
    },
}
"""{0} and {1} are numbers, or a computer and a date."""


def sentence_of(what: ComputerList | MoveError, tag: str) -> str:
    """Return where the license is in use, or why it was not moved; `tag` is a language as of `pick_tag`."""
    if isinstance(what, ComputerList):
        return _describe_list(what, tag)
    match what.obstacle, what.retry_at:
        case MoveObstacle.TOO_MANY_MOVES, datetime() as at:
            return _moved_often(at, tag)
        case MoveObstacle.FILE_HELD, datetime() as at:
            return _text("file_held", tag, _day(at, tag))
        case MoveObstacle.COMPUTER_NOT_FOUND, _:
            return _text("computer_not_found", tag)
        case _:
            return _text("not_allowed", tag)


def describe_move(moved_to: MovedTo, tag: str) -> str:
    """Return where the license of this computer was moved to, and when."""
    name = moved_to.name or _text("another", tag, moved_to.masked_id)
    return _text("moved_to", tag, name, format_date(moved_to.on, tag))


def describe_next_move(computers: ComputerList, tag: str) -> str:
    """Return when the license can be moved again; an empty text if it can be moved now."""
    if computers.moves_left:
        return ""
    return _text("not_allowed", tag) if computers.retry_at is None else _moved_often(computers.retry_at, tag)


def _describe_list(computers: ComputerList, tag: str) -> str:
    if computers.moved_to is not None:
        first = describe_move(computers.moved_to, tag)
    elif computers.slots is None:
        first = _text("in_use_unlimited", tag, str(computers.used))
    else:
        first = _text("in_use", tag, str(computers.used), str(computers.slots))
    second = describe_next_move(computers, tag)
    return join_sentences(first, second, tag) if second else first


def _moved_often(at: datetime, tag: str) -> str:
    return text_of("error.moved_often", tag, _day(at, tag))


def _day(at: datetime, tag: str) -> str:
    return format_date(to_local(at).date(), tag)


def _text(code: str, tag: str, *details: str) -> str:
    return TEXTS[pick_language([tag])][code].format(*details)
