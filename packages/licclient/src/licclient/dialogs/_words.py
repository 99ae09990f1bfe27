"""Pure: what the dialogs say, in the six languages of `_texts`, and in their order.

`&` stands before the letter that presses a button with Alt; among the texts that a window shows together no
letter is there twice, which a test holds. Japanese and Chinese windows write the letter in parentheses.
"""

from typing import Final

from licclient._explain import explain
from licclient._texts import LANGUAGES, Row
from licclient.dialogs._view import cut_short
from licclient.errors import LicclientError

WORDS: Final[dict[str, Row]] = {
    # --- entering a key; {0} is the product ---
    "activation.title": (
        "Activate {0}",
        "{0} aktivieren",
        "Activer {0}",
        "Activar {0}",
        "{0} のライセンス認証",
        "激活 {0}",
    ),
    "activation.title_alone": (
        "License activation",
        "Lizenz aktivieren",
        "Activation de la licence",
        "Activación de la licencia",
        "ライセンス認証",
        "激活许可证",
    ),
    "activation.intro": (
        "Please enter the license key that you received with your purchase.",
        "Bitte geben Sie den Lizenzschlüssel ein, den Sie beim Kauf erhalten haben.",
        "Veuillez saisir la clé de licence reçue lors de votre achat.",
        "Introduzca la clave de licencia que recibió con su compra.",
        "ご購入時に受け取ったライセンスキーを入力してください。",
        "请输入购买时收到的许可证密钥。",
    ),
    "activation.label": (
        "License &key:",
        "Li&zenzschlüssel:",
        "&Clé de licence :",
        "&Clave de licencia:",
        "ライセンスキー(&K):",
        "许可证密钥(&K)：",
    ),
    "activation.asking": (
        "Asking the license service …",
        "Der Lizenzdienst wird gefragt …",
        "Interrogation du service de licences…",
        "Consultando el servicio de licencias…",
        "ライセンスサービスに問い合わせています…",
        "正在查询许可证服务……",
    ),
    "activation.done": (
        "Thank you. Your license is active.",
        "Vielen Dank. Ihre Lizenz ist aktiv.",
        "Merci. Votre licence est active.",
        "Gracias. Su licencia está activa.",
        "ありがとうございます。ライセンスが有効になりました。",
        "谢谢。您的许可证已激活。",
    ),
    # {0} is the last valid day
    "activation.done_until": (
        "Thank you. Your license is active until {0}.",
        "Vielen Dank. Ihre Lizenz ist bis {0} aktiv.",
        "Merci. Votre licence est active jusqu’au {0}.",
        "Gracias. Su licencia está activa hasta el {0}.",
        "ありがとうございます。ライセンスは {0} まで有効です。",
        "谢谢。您的许可证有效期至 {0}。",
    ),
    # --- an update; {0} in the heading is name and version ---
    "update.title": (
        "Software update",
        "Softwareaktualisierung",
        "Mise à jour",
        "Actualización",
        "ソフトウェアの更新",
        "软件更新",
    ),
    "update.heading": (
        "{0} is available",
        "{0} ist verfügbar",
        "{0} est disponible",
        "{0} está disponible",
        "{0} が利用できます",
        "{0} 现已推出",
    ),
    "update.installed": (
        "Installed: {0}",
        "Installiert: {0}",
        "Installée : {0}",
        "Instalada: {0}",
        "現在のバージョン: {0}",
        "当前版本：{0}",
    ),
    "update.published": (
        "Published: {0}",
        "Veröffentlicht: {0}",
        "Publiée : {0}",
        "Publicada: {0}",
        "公開日: {0}",
        "发布日期：{0}",
    ),
    "update.size": (
        "Size: {0}",
        "Größe: {0}",
        "Taille : {0}",
        "Tamaño: {0}",
        "サイズ: {0}",
        "大小：{0}",
    ),
    "update.label": (
        "What is &new:",
        "&Neu in dieser Version:",
        "&Nouveautés :",
        "&Novedades:",
        "更新内容(&N):",
        "更新内容(&N)：",
    ),
    "update.connecting": (
        "Connecting …",
        "Verbindung wird aufgebaut …",
        "Connexion…",
        "Conectando…",
        "接続しています…",
        "正在连接……",
    ),
    "update.progress": (
        "{0} of {1}",
        "{0} von {1}",
        "{0} sur {1}",
        "{0} de {1}",
        "{1} 中 {0}",
        "{0} / {1}",
    ),
    # {0} is a time, as 1:05
    "update.left": (
        "{0} left",
        "noch {0}",
        "reste {0}",
        "quedan {0}",
        "残り {0}",
        "剩余 {0}",
    ),
    "update.stopping": (
        "Cancelling …",
        "Wird abgebrochen …",
        "Annulation…",
        "Cancelando…",
        "キャンセルしています…",
        "正在取消……",
    ),
    # no answer, or cut off; `explain` would speak of the license
    "update.cut": (
        "The download was interrupted. Please go online and try again; it goes on where it stopped.",
        "Der Download wurde unterbrochen. Bitte gehen Sie online und setzen Sie ihn fort.",
        "Le téléchargement a été interrompu. Connectez-vous à Internet et réessayez ; il reprendra.",
        "La descarga se interrumpió. Conéctese a Internet e inténtelo de nuevo; continuará donde quedó.",
        "ダウンロードが中断されました。インターネットに接続して再試行すると、続きから再開します。",
        "下载已中断。请连接网络后重试，将从中断处继续。",
    ),
    "update.here": (
        "Downloaded and verified.",
        "Heruntergeladen und geprüft.",
        "Téléchargée et vérifiée.",
        "Descargada y verificada.",
        "ダウンロードと検証が完了しました。",
        "已下载并通过验证。",
    ),
    # --- buttons ---
    "button.activate": (
        "&Activate",
        "&Aktivieren",
        "&Activer",
        "&Activar",
        "認証(&A)",
        "激活(&A)",
    ),
    "button.not_now": (
        "&Not now",
        "&Nicht jetzt",
        "&Pas maintenant",
        "A&hora no",
        "後で(&L)",
        "以后再说(&L)",
    ),
    "button.close": (
        "&Close",
        "&Schließen",
        "&Fermer",
        "C&errar",
        "閉じる(&C)",
        "关闭(&C)",
    ),
    "button.download": (
        "&Download",
        "&Herunterladen",
        "&Télécharger",
        "&Descargar",
        "ダウンロード(&D)",
        "下载(&D)",
    ),
    "button.again": (
        "&Try again",
        "Noch ein&mal versuchen",
        "&Réessayer",
        "&Reintentar",
        "再試行(&R)",
        "重试(&R)",
    ),
    "button.later": (
        "&Later",
        "S&päter",
        "&Plus tard",
        "&Más tarde",
        "後で(&L)",
        "以后再说(&L)",
    ),
    "button.skip": (
        "&Skip this version",
        "Diese Version ü&berspringen",
        "&Ignorer cette version",
        "&Omitir esta versión",
        "このバージョンをスキップ(&S)",
        "跳过此版本(&S)",
    ),
    "button.cancel": (
        "&Cancel",
        "&Abbrechen",
        "&Annuler",
        "&Cancelar",
        "キャンセル(&C)",
        "取消(&C)",
    ),
    "button.continue": (
        "&Continue",
        "&Weiter",
        "&Continuer",
        "&Continuar",
        "続ける(&C)",
        "继续(&C)",
    ),
    # --- what nobody expected ---
    "problem.unexpected": (
        "Something went wrong that should not have. Please contact support.",
        "Etwas Unerwartetes ist schiefgegangen. Bitte wenden Sie sich an den Support.",
        "Un problème inattendu est survenu. Veuillez contacter l’assistance.",
        "Ha ocurrido algo inesperado. Póngase en contacto con el soporte.",
        "予期しない問題が発生しました。サポートにお問い合わせください。",
        "发生意外问题。请联系技术支持。",
    ),
}


def say(code: str, language: str, *details: str) -> str:
    """Return a text of the dialogs.

    Args:
        code: A key of `WORDS`.
        language: One of `LANGUAGES`.
        details: What belongs into the text.
    """
    return WORDS[code][LANGUAGES.index(language)].format(*details)


def say_problem(problem: BaseException, language: str) -> str:
    """Say what went wrong; what nobody expected is not quoted: it may hold anything."""
    match problem:
        case LicclientError() | OSError():
            return cut_short(explain(problem, language))
        case _:
            return say("problem.unexpected", language)
