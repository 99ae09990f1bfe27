"""Pure: what people read of a seat, in each language."""

from typing import Final

from licclient._core.texts import pick_language, to_local
from licclient.errors import NoSeatError

TEXTS: Final = {
    "en": {
        "in_use": "All seats of this license are in use ({0}). Please try again at {1}, or when another user has closed the app.",
        "in_use_untimed": "All seats of this license are in use ({0}). Please try again when another user has closed the app.",
        "lost": "The seat of this computer was taken back. Please save your work, and ask the administrator of the license.",
        "not_included": "This license has no seats to share. Please contact support.",
    },
    "de": {
        "in_use": "Alle Plätze dieser Lizenz sind belegt ({0}). Versuchen Sie es um {1} erneut oder wenn jemand die App geschlossen hat.",
        "in_use_untimed": "Alle Plätze dieser Lizenz sind belegt ({0}). Versuchen Sie es erneut, wenn jemand die App geschlossen hat.",
        "lost": "Der Platz dieses Computers wurde zurückgenommen. Sichern Sie Ihre Arbeit, und fragen Sie, wer die Lizenz verwaltet.",
        "not_included": "Diese Lizenz hat keine gemeinsamen Plätze. Bitte wenden Sie sich an den Support.",
    },
    "fr": {
        "in_use": "Toutes les places de cette licence sont occupées ({0}). Réessayez à {1}, ou lorsque quelqu’un aura fermé l’application.",
        "in_use_untimed": "Toutes les places de cette licence sont occupées ({0}). Réessayez lorsque quelqu’un aura fermé l’application.",
        "lost": "La place de cet ordinateur a été reprise. Enregistrez votre travail et adressez-vous au gestionnaire de la licence.",
        "not_included": "Cette licence n’a pas de places partagées. Veuillez contacter l’assistance.",
    },
    "es": {
        "in_use": "Todos los puestos de esta licencia están en uso ({0}). Inténtelo de nuevo a las {1} o cuando alguien cierre la aplicación.",
        "in_use_untimed": "Todos los puestos de esta licencia están en uso ({0}). Inténtelo de nuevo cuando alguien cierre la aplicación.",
        "lost": "Se ha recuperado el puesto de este equipo. Guarde su trabajo y consulte a quien administra la licencia.",
        "not_included": "Esta licencia no tiene puestos compartidos. Póngase en contacto con el soporte.",
    },
    "ja": {
        "in_use": "このライセンスの{0}シートはすべて使用中です。{1}に、またはだれかがアプリを閉じてから、もう一度お試しください。",
        "in_use_untimed": "このライセンスの{0}シートはすべて使用中です。だれかがアプリを閉じてから、もう一度お試しください。",
        "lost": "このコンピューターのシートは取り戻されました。作業を保存し、ライセンスの管理者にお問い合わせください。",
        "not_included": "このライセンスには共有シートがありません。サポートにお問い合わせください。",
    },
    "zh": {
        "in_use": "此许可证的 {0} 个席位均在使用中。请在 {1} 或有人关闭应用后重试。",
        "in_use_untimed": "此许可证的 {0} 个席位均在使用中。请在有人关闭应用后重试。",
        "lost": "这台计算机的席位已被收回。请保存您的工作，并联系许可证管理员。",
        "not_included": "此许可证没有共享席位。请联系技术支持。",
    },
}


def sentence_of(error: NoSeatError, tag: str) -> str:
    """Return why there is no seat, and what to do; `tag` is a language as of `pick_tag`."""
    texts, at = TEXTS[pick_language([tag])], error.retry_at
    match error.seats:
        case None:
            return texts["lost"]
        case 0:
            return texts["not_included"]
        case seats if at is None:
            return texts["in_use_untimed"].format(seats)
        case seats:
            return texts["in_use"].format(seats, f"{to_local(at):%H:%M}")
