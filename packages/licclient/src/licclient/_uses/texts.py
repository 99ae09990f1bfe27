"""Pure: what people read of a quota that is used up, in each language."""

from typing import Final

from licclient._core.texts import format_date, pick_language, to_local
from licclient.errors import QuotaExceededError

TEXTS: Final = {
    "en": "You have used all that your license includes for now. It can be used again from {0}.",
    "de": "Sie haben alles verbraucht, was Ihre Lizenz derzeit enthält. Weiter geht es ab {0}.",
    "fr": "Vous avez utilisé tout ce que votre licence comprend pour le moment. Vous pourrez continuer à partir du {0}.",
    "es": "Ha usado todo lo que su licencia incluye por ahora. Podrá continuar a partir del {0}.",
    "ja": "ライセンスに含まれる利用枠を使い切りました。{0}から再び利用できます。",
    "zh": "您已用完许可证当前包含的额度。自{0}起可以继续使用。",
}
"""{0} is a date."""


def sentence_of(error: QuotaExceededError, tag: str) -> str:
    """Return that all is used up, and until when; `tag` is a language as of `pick_tag`."""
    text = TEXTS[pick_language([tag])]
    return text.format(format_date(to_local(error.resets_at).date(), tag))
