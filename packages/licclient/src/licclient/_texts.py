"""Pure: what people read, in six languages. Every code here is the value of an enum of another room.

Add a language by adding a column to every line; a test holds the table complete. `{detail}` is filled in.
"""

from collections.abc import Sequence
from typing import Final

LANGUAGES: Final = ("en", "de", "fr", "es", "ja", "zh")
"""English, German, French, Spanish, Japanese, Simplified Chinese: the columns below, in this order."""

Row = tuple[str, str, str, str, str, str]

_LONGEST: Final = 100 * 3600
"""Seconds; whoever is told more than four days does not wait."""

TEXTS: Final[dict[str, Row]] = {
    # --- Reason: why the server said no (spec 7) ---
    "reason.invalid_format": (
        "This is not a license key. Please compare it with the one you received.",
        "Das ist kein Lizenzschlüssel. Bitte vergleichen Sie ihn mit dem, den Sie erhalten haben.",
        "Ce n’est pas une clé de licence. Veuillez la comparer avec celle que vous avez reçue.",
        "Esta no es una clave de licencia. Compárela con la que recibió.",
        "これはライセンスキーではありません。受け取ったキーと見比べてください。",
        "这不是许可证密钥。请与您收到的密钥核对。",
    ),
    "reason.not_found": (
        "This license key is not known. Please compare it with the one you received.",
        "Dieser Lizenzschlüssel ist unbekannt. Bitte vergleichen Sie ihn mit dem, den Sie erhalten haben.",
        "Cette clé de licence est inconnue. Veuillez la comparer avec celle que vous avez reçue.",
        "Esta clave de licencia no existe. Compárela con la que recibió.",
        "このライセンスキーは登録されていません。受け取ったキーと見比べてください。",
        "未找到此许可证密钥。请与您收到的密钥核对。",
    ),
    "reason.revoked": (
        "This license has been revoked.",
        "Diese Lizenz wurde widerrufen.",
        "Cette licence a été révoquée.",
        "Esta licencia ha sido revocada.",
        "このライセンスは取り消されました。",
        "此许可证已被吊销。",
    ),
    "reason.expired": (
        "This license has expired.",
        "Diese Lizenz ist abgelaufen.",
        "Cette licence a expiré.",
        "Esta licencia ha caducado.",
        "このライセンスは有効期限が切れています。",
        "此许可证已过期。",
    ),
    "reason.environment": (
        "This license is already in use on as many computers as it allows.",
        "Diese Lizenz wird bereits auf so vielen Computern verwendet, wie sie erlaubt.",
        "Cette licence est déjà utilisée sur tous les ordinateurs qu’elle autorise.",
        "Esta licencia ya se usa en todos los equipos que permite.",
        "このライセンスは、使用できる台数の上限に達しています。",
        "此许可证已达到可用设备数量的上限。",
    ),
    "reason.other_product": (
        "This license is for another product.",
        "Diese Lizenz gilt für ein anderes Produkt.",
        "Cette licence concerne un autre produit.",
        "Esta licencia es para otro producto.",
        "これは別の製品のライセンスです。",
        "此许可证适用于其他产品。",
    ),
    "reason.support_ended": (
        "The support period of this license is over, so it includes no newer versions.",
        "Der Supportzeitraum dieser Lizenz ist vorbei; neuere Versionen sind nicht enthalten.",
        "La période d’assistance de cette licence est terminée : elle n’inclut plus les nouvelles versions.",
        "El período de soporte de esta licencia ha terminado; no incluye versiones nuevas.",
        "このライセンスのサポート期間は終了したため、新しいバージョンは利用できません。",
        "此许可证的支持期已结束，不再包含新版本。",
    ),
    "reason.other": (
        "The license was refused.",
        "Die Lizenz wurde abgelehnt.",
        "La licence a été refusée.",
        "La licencia fue rechazada.",
        "ライセンスが拒否されました。",
        "许可证被拒绝。",
    ),
    # --- KeyFlaw: what is wrong with what was typed (D-57) ---
    "flaw.empty": (
        "Please enter your license key.",
        "Bitte geben Sie Ihren Lizenzschlüssel ein.",
        "Veuillez saisir votre clé de licence.",
        "Introduzca su clave de licencia.",
        "ライセンスキーを入力してください。",
        "请输入您的许可证密钥。",
    ),
    "flaw.prefix": (
        "A license key begins with CP-.",
        "Ein Lizenzschlüssel beginnt mit CP-.",
        "Une clé de licence commence par CP-.",
        "Una clave de licencia empieza por CP-.",
        "ライセンスキーは CP- で始まります。",
        "许可证密钥以 CP- 开头。",
    ),
    "flaw.characters": (
        "A license key holds only the letters A to Z and digits, not: {detail}",
        "Ein Lizenzschlüssel enthält nur die Buchstaben A bis Z und Ziffern, nicht: {detail}",
        "Une clé de licence ne contient que les lettres A à Z et des chiffres, pas : {detail}",
        "Una clave de licencia solo contiene las letras A a Z y cifras, no: {detail}",
        "ライセンスキーに使えるのは英字 A～Z と数字だけです。使えない文字: {detail}",
        "许可证密钥只包含字母 A 到 Z 和数字，不能包含：{detail}",
    ),
    "flaw.too_short": (
        "The license key is incomplete. Characters missing: {detail}",
        "Der Lizenzschlüssel ist unvollständig. Fehlende Zeichen: {detail}",
        "La clé de licence est incomplète. Caractères manquants : {detail}",
        "La clave de licencia está incompleta. Caracteres que faltan: {detail}",
        "ライセンスキーが途中までしかありません。不足している文字数: {detail}",
        "许可证密钥不完整。缺少的字符数：{detail}",
    ),
    "flaw.too_long": (
        "The license key is too long. Characters too many: {detail}",
        "Der Lizenzschlüssel ist zu lang. Überzählige Zeichen: {detail}",
        "La clé de licence est trop longue. Caractères en trop : {detail}",
        "La clave de licencia es demasiado larga. Caracteres de más: {detail}",
        "ライセンスキーが長すぎます。余分な文字数: {detail}",
        "许可证密钥过长。多出的字符数：{detail}",
    ),
    # --- the other errors ---
    "error.not_activated": (
        "No license key has been entered on this computer yet.",
        "Auf diesem Computer wurde noch kein Lizenzschlüssel eingegeben.",
        "Aucune clé de licence n’a encore été saisie sur cet ordinateur.",
        "Todavía no se ha introducido ninguna clave de licencia en este equipo.",
        "このコンピューターにはまだライセンスキーが入力されていません。",
        "此计算机上尚未输入许可证密钥。",
    ),
    "error.invalid_request": (
        "The license service did not understand the request. Please contact support.",
        "Der Lizenzdienst hat die Anfrage nicht verstanden. Bitte wenden Sie sich an den Support.",
        "Le service de licences n’a pas compris la demande. Veuillez contacter l’assistance.",
        "El servicio de licencias no entendió la solicitud. Póngase en contacto con el soporte.",
        "ライセンスサービスが要求を理解できませんでした。サポートにお問い合わせください。",
        "许可证服务无法识别该请求。请联系技术支持。",
    ),
    "error.unavailable": (
        "The license could not be confirmed. Please go online and try again.",
        "Die Lizenz konnte nicht bestätigt werden. Bitte gehen Sie online und versuchen Sie es erneut.",
        "La licence n’a pas pu être confirmée. Veuillez vous connecter à Internet et réessayer.",
        "No se pudo confirmar la licencia. Conéctese a Internet e inténtelo de nuevo.",
        "ライセンスを確認できませんでした。インターネットに接続して、もう一度お試しください。",
        "无法确认许可证。请连接网络后重试。",
    ),
    "error.untrusted": (
        "What arrived is not vouched for by the license service or the vendor. Please contact support.",
        "Was ankam, dafür steht weder Lizenzdienst noch Hersteller ein. Bitte fragen Sie den Support.",
        "Ni le service de licences ni l’éditeur ne garantissent ce qui est arrivé. Contactez l’assistance.",
        "Lo recibido no está avalado por el servicio de licencias ni por el fabricante. Consulte al soporte.",
        "受信した内容が正規のものであることを確認できません。サポートにお問い合わせください。",
        "无法确认收到的内容来自许可证服务或开发商。请联系技术支持。",
    ),
    "error.unusable_archive": (
        "The update cannot be installed. This version goes on working; please contact support.",
        "Das Update lässt sich nicht installieren. Diese Version läuft weiter; bitte fragen Sie den Support.",
        "La mise à jour ne peut pas être installée. Cette version reste utilisable ; contactez l’assistance.",
        "La actualización no se puede instalar. Esta versión sigue funcionando; consulte al soporte.",
        "更新をインストールできません。現在のバージョンは引き続き使えます。サポートにお問い合わせください。",
        "无法安装更新。当前版本仍可使用。请联系技术支持。",
    ),
    "error.cancelled": (
        "The download was cancelled.",
        "Der Download wurde abgebrochen.",
        "Le téléchargement a été annulé.",
        "La descarga se ha cancelado.",
        "ダウンロードはキャンセルされました。",
        "下载已取消。",
    ),
    # {detail} is the system's own sentence
    "error.disk": (
        "The file could not be saved. {detail}",
        "Die Datei konnte nicht gespeichert werden. {detail}",
        "Le fichier n’a pas pu être enregistré. {detail}",
        "No se pudo guardar el archivo. {detail}",
        "ファイルを保存できませんでした。{detail}",
        "无法保存文件。{detail}",
    ),
    "update.none": (
        "There is no update.",
        "Es gibt keine Aktualisierung.",
        "Il n’y a pas de mise à jour.",
        "No hay ninguna actualización.",
        "アップデートはありません。",
        "没有可用的更新。",
    ),
    # --- LicenseState: the first line of a settings page; {detail} is a date ---
    "state.valid": (
        "Licensed.",
        "Lizenziert.",
        "Licence active.",
        "Con licencia.",
        "ライセンスは有効です。",
        "许可证有效。",
    ),
    "state.grace": (
        "Licensed, but not confirmed lately. Please go online by {detail}.",
        "Lizenziert, aber länger nicht bestätigt. Bitte gehen Sie bis {detail} online.",
        "Licence active, mais non confirmée récemment. Connectez-vous à Internet avant le {detail}.",
        "Con licencia, pero sin confirmar últimamente. Conéctese a Internet antes del {detail}.",
        "ライセンスは有効ですが、最近確認されていません。{detail} までにインターネットに接続してください。",
        "许可证有效，但近期未经确认。请在 {detail} 之前连接网络。",
    ),
}


def text_of(code: str, language: str, detail: str = "") -> str:
    """Return a text.

    Args:
        code: A key of `TEXTS`; for another one the text for an unknown reason.
        language: As `de`, `de-AT`, `zh_CN.UTF-8`; English stands in for what is not there.
        detail: What belongs into the text.
    """
    row = TEXTS.get(code, TEXTS["reason.other"])
    return row[LANGUAGES.index(pick_language([language]))].format(detail=detail)


def amount(count: float, language: str = "en") -> str:
    """Write a number of bytes, as disks and networks are sold: a kilobyte has 1000 of them.

    Args:
        count: Bytes.
        language: As for `text_of`.
    """
    tongue = pick_language([language])
    byte = "o" if tongue == "fr" else "B"
    text = f"{count / 1000**3:.2f} G{byte}"
    for unit, most in ((byte, 1000), (f"k{byte}", 1000**2), (f"M{byte}", 1000**3)):
        if count < most:
            text = f"{count:.0f} {unit}" if unit == byte else f"{count / most * 1000:.1f} {unit}"
            break
    return text.replace(".", ",") if tongue in {"de", "fr", "es"} else text


def span(seconds: float) -> str | None:
    """Write how long something takes, as `1:05` or `2:01:05`; None for what nobody waits for."""
    whole = round(min(max(seconds, 0), _LONGEST))
    if whole >= _LONGEST:
        return None
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def pick_language(wanted: Sequence[str]) -> str:
    """Choose the first wanted language that is there; English when none is.

    Args:
        wanted: Tags as browsers, systems and environment variables write them, best first.
    """
    for tag in wanted:
        plain = tag.lower().replace("_", "-").partition(".")[0].partition("@")[0]
        first, *more = plain.split("-")
        # Who reads Traditional Chinese is better served by English than by the wrong script.
        if first == "zh" and {"tw", "hk", "mo", "hant"} & set(more):
            continue
        if first in LANGUAGES:
            return first
    return "en"
