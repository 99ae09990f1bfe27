"""Pure: what people read of installing an update, in each language."""

from typing import Final

from licclient._core.model import InstallObstacle
from licclient._core.texts import join_sentences, pick_language
from licclient.errors import InstallationError
from licclient.install._plan import InstallationReceipt, UpdatePlan

TEXTS: Final = {
    "en": {
        "other_updater": "{0} updates this app.",
        "command": "To update it, run: {0}",
        "not_writable": "This app is in a place that you may not change. Please move it to a folder of your own, or ask your administrator to update it.",
        "not_replaceable": "This app cannot update itself here. Please download and install the new version.",
        "wrong_file": "The update does not fit the way in which this app was installed. You can go on using this version; please contact support.",
        "wrong_publisher": "The update is not signed by the publisher of this app, and was not installed. Please contact support.",
        "refused": "The update was not installed, because it was cancelled or not permitted.",
        "forbidden": "A policy of this computer forbids the update. Please ask your administrator.",
        "busy": "Another installation is running. Please try again when it has ended.",
        "still_running": "The update was not installed, because the app was still running. Please close all its windows, and try again.",
        "restart_needed": "Please restart the computer to complete the update.",
        "timed_out": "The update took too long, and was stopped. Please try again.",
        "interrupted": "The update was interrupted. Please try again.",
        "no_effect": "The update was not installed. Please close all windows of the app, and try again.",
        "newer_installed": "A newer version is installed already. Please close all windows of the app, and open it again.",
        "aborted": "The set-up of the update ended without installing it. You can go on using this version; please contact support.",
        "rolled_back": "The app went back to the version before the update. You can go on using it until the next update.",
        "failed": "The update failed. Please try again, or contact support.",
        "code": "(Code {0})",
        "quits": "The app closes to install the update, and opens again.",
        "administrator": "Windows asks for the administrator's permission.",
        "next_start": "The new version is used from the next start on.",
        "installed": "The update to version {0} is installed.",
    },
    "de": {
        "other_updater": "{0} aktualisiert diese App.",
        "command": "Geben Sie dazu ein: {0}",
        "not_writable": "Diese App liegt an einem Ort, den Sie nicht ändern dürfen. Verschieben Sie sie in einen eigenen Ordner, oder bitten Sie Ihre Administration um die Aktualisierung.",
        "not_replaceable": "Diese App kann sich hier nicht selbst aktualisieren. Bitte laden Sie die neue Version herunter, und installieren Sie sie.",
        "wrong_file": "Das Update passt nicht dazu, wie diese App installiert wurde. Diese Version läuft weiter; bitte fragen Sie den Support.",
        "wrong_publisher": "Das Update ist nicht vom Herausgeber dieser App signiert und wurde nicht installiert. Bitte fragen Sie den Support.",
        "refused": "Das Update wurde nicht installiert, weil es abgebrochen oder nicht erlaubt wurde.",
        "forbidden": "Eine Richtlinie dieses Computers verbietet das Update. Bitte fragen Sie Ihre Administration.",
        "busy": "Eine andere Installation läuft gerade. Bitte versuchen Sie es danach erneut.",
        "still_running": "Das Update wurde nicht installiert, weil die App noch lief. Schließen Sie alle ihre Fenster, und versuchen Sie es erneut.",
        "restart_needed": "Bitte starten Sie den Computer neu, um das Update abzuschließen.",
        "timed_out": "Das Update dauerte zu lange und wurde beendet. Bitte versuchen Sie es erneut.",
        "interrupted": "Das Update wurde unterbrochen. Bitte versuchen Sie es erneut.",
        "no_effect": "Das Update wurde nicht installiert. Schließen Sie alle Fenster der App, und versuchen Sie es erneut.",
        "newer_installed": "Eine neuere Version ist bereits installiert. Schließen Sie alle Fenster der App, und öffnen Sie sie erneut.",
        "aborted": "Das Installationsprogramm des Updates endete, ohne es zu installieren. Diese Version läuft weiter; bitte fragen Sie den Support.",
        "rolled_back": "Die App läuft wieder in der Version vor dem Update. Sie können diese bis zum nächsten Update verwenden.",
        "failed": "Das Update ist fehlgeschlagen. Versuchen Sie es erneut, oder fragen Sie den Support.",
        "code": "(Code {0})",
        "quits": "Die App wird für das Update geschlossen und wieder geöffnet.",
        "administrator": "Windows fragt nach der Erlaubnis der Administration.",
        "next_start": "Die neue Version gilt ab dem nächsten Start.",
        "installed": "Das Update auf Version {0} ist installiert.",
    },
    "fr": {
        "other_updater": "{0} met cette application à jour.",
        "command": "Pour cela, saisissez : {0}",
        "not_writable": "Cette application se trouve à un endroit que vous ne pouvez pas modifier. Déplacez-la dans un dossier à vous, ou demandez à votre administrateur de la mettre à jour.",
        "not_replaceable": "Cette application ne peut pas se mettre à jour elle-même ici. Veuillez télécharger et installer la nouvelle version.",
        "wrong_file": "La mise à jour ne correspond pas à la façon dont cette application a été installée. Vous pouvez continuer avec cette version ; veuillez contacter l’assistance.",
        "wrong_publisher": "La mise à jour n’est pas signée par l’éditeur de cette application et n’a pas été installée. Veuillez contacter l’assistance.",
        "refused": "La mise à jour n’a pas été installée, car elle a été annulée ou n’a pas été autorisée.",
        "forbidden": "Une règle de cet ordinateur interdit la mise à jour. Adressez-vous à votre administrateur.",
        "busy": "Une autre installation est en cours. Réessayez lorsqu’elle sera terminée.",
        "still_running": "La mise à jour n’a pas été installée, car l’application était encore ouverte. Fermez toutes ses fenêtres et réessayez.",
        "restart_needed": "Redémarrez l’ordinateur pour terminer la mise à jour.",
        "timed_out": "La mise à jour a pris trop de temps et a été arrêtée. Veuillez réessayer.",
        "interrupted": "La mise à jour a été interrompue. Veuillez réessayer.",
        "no_effect": "La mise à jour n’a pas été installée. Fermez toutes les fenêtres de l’application et réessayez.",
        "newer_installed": "Une version plus récente est déjà installée. Fermez toutes les fenêtres de l’application, puis rouvrez-la.",
        "aborted": "Le programme d’installation s’est arrêté sans installer la mise à jour. Vous pouvez continuer avec cette version ; veuillez contacter l’assistance.",
        "rolled_back": "L’application est revenue à la version précédant la mise à jour. Vous pouvez continuer à l’utiliser jusqu’à la prochaine mise à jour.",
        "failed": "La mise à jour a échoué. Réessayez, ou contactez l’assistance.",
        "code": "(Code {0})",
        "quits": "L’application se ferme pour installer la mise à jour, puis se rouvre.",
        "administrator": "Windows demande l’autorisation de l’administrateur.",
        "next_start": "La nouvelle version sera utilisée au prochain démarrage.",
        "installed": "La mise à jour vers la version {0} est installée.",
    },
    "es": {
        "other_updater": "{0} actualiza esta aplicación.",
        "command": "Para actualizarla, ejecute: {0}",
        "not_writable": "Esta aplicación está en un lugar que usted no puede modificar. Muévala a una carpeta propia o pida a su administrador que la actualice.",
        "not_replaceable": "Esta aplicación no puede actualizarse a sí misma aquí. Descargue e instale la nueva versión.",
        "wrong_file": "La actualización no corresponde a la forma en que se instaló esta aplicación. Puede seguir usando esta versión; póngase en contacto con el soporte.",
        "wrong_publisher": "La actualización no está firmada por el editor de esta aplicación y no se instaló. Póngase en contacto con el soporte.",
        "refused": "La actualización no se instaló porque se canceló o no se permitió.",
        "forbidden": "Una directiva de este equipo prohíbe la actualización. Consulte a su administrador.",
        "busy": "Hay otra instalación en curso. Inténtelo de nuevo cuando haya terminado.",
        "still_running": "La actualización no se instaló porque la aplicación seguía abierta. Cierre todas sus ventanas e inténtelo de nuevo.",
        "restart_needed": "Reinicie el equipo para completar la actualización.",
        "timed_out": "La actualización tardó demasiado y se detuvo. Inténtelo de nuevo.",
        "interrupted": "La actualización se interrumpió. Inténtelo de nuevo.",
        "no_effect": "La actualización no se instaló. Cierre todas las ventanas de la aplicación e inténtelo de nuevo.",
        "newer_installed": "Ya hay instalada una versión más reciente. Cierre todas las ventanas de la aplicación y vuelva a abrirla.",
        "aborted": "El programa de instalación terminó sin instalar la actualización. Puede seguir usando esta versión; póngase en contacto con el soporte.",
        "rolled_back": "La aplicación ha vuelto a la versión anterior a la actualización. Puede seguir usándola hasta la próxima actualización.",
        "failed": "La actualización ha fallado. Inténtelo de nuevo o póngase en contacto con el soporte.",
        "code": "(Código {0})",
        "quits": "La aplicación se cierra para instalar la actualización y vuelve a abrirse.",
        "administrator": "Windows pide el permiso del administrador.",
        "next_start": "La nueva versión se usará a partir del próximo inicio.",
        "installed": "La actualización a la versión {0} está instalada.",
    },
    "ja": {
        "other_updater": "このアプリは{0}で更新されます。",
        "command": "更新するには次を実行してください：{0}",
        "not_writable": "このアプリは変更できない場所にあります。ご自分のフォルダーに移すか、管理者に更新を依頼してください。",
        "not_replaceable": "このアプリはここでは自分で更新できません。新しいバージョンをダウンロードしてインストールしてください。",
        "wrong_file": "更新がこのアプリのインストール方法に合っていません。このバージョンは引き続き使えます。サポートにお問い合わせください。",
        "wrong_publisher": "更新がこのアプリの発行元によって署名されていないため、インストールされませんでした。サポートにお問い合わせください。",
        "refused": "キャンセルされたか許可されなかったため、更新はインストールされませんでした。",
        "forbidden": "このコンピューターのポリシーにより更新が禁止されています。管理者にお問い合わせください。",
        "busy": "別のインストールが実行中です。終了してからもう一度お試しください。",
        "still_running": "アプリがまだ実行中だったため、更新はインストールされませんでした。すべてのウィンドウを閉じて、もう一度お試しください。",
        "restart_needed": "更新を完了するには、コンピューターを再起動してください。",
        "timed_out": "更新に時間がかかりすぎたため、停止されました。もう一度お試しください。",
        "interrupted": "更新が中断されました。もう一度お試しください。",
        "no_effect": "更新はインストールされませんでした。アプリのすべてのウィンドウを閉じて、もう一度お試しください。",
        "newer_installed": "より新しいバージョンがすでにインストールされています。アプリのすべてのウィンドウを閉じて、もう一度開いてください。",
        "aborted": "セットアップが更新をインストールせずに終了しました。このバージョンは引き続き使えます。サポートにお問い合わせください。",
        "rolled_back": "アプリは更新前のバージョンに戻りました。次の更新までこのバージョンを引き続き使えます。",
        "failed": "更新に失敗しました。もう一度お試しになるか、サポートにお問い合わせください。",
        "code": "（コード {0}）",
        "quits": "更新をインストールするためにアプリが終了し、再び開きます。",
        "administrator": "Windows が管理者の許可を求めます。",
        "next_start": "新しいバージョンは次回の起動から使われます。",
        "installed": "バージョン {0} への更新がインストールされました。",
    },
    "zh": {
        "other_updater": "此应用由 {0} 更新。",
        "command": "要更新，请运行：{0}",
        "not_writable": "此应用位于您无权更改的位置。请将其移到您自己的文件夹，或请管理员更新。",
        "not_replaceable": "此应用在这里无法自行更新。请下载并安装新版本。",
        "wrong_file": "此更新与应用的安装方式不符。您可以继续使用此版本；请联系技术支持。",
        "wrong_publisher": "此更新未由本应用的发布者签名，因此未安装。请联系技术支持。",
        "refused": "更新已取消或未获许可，因此未安装。",
        "forbidden": "此计算机的策略禁止更新。请联系管理员。",
        "busy": "另一个安装正在进行。请在其结束后重试。",
        "still_running": "应用仍在运行，因此未安装更新。请关闭其所有窗口后重试。",
        "restart_needed": "请重新启动计算机以完成更新。",
        "timed_out": "更新耗时过长，已停止。请重试。",
        "interrupted": "更新已中断。请重试。",
        "no_effect": "更新未安装。请关闭应用的所有窗口后重试。",
        "newer_installed": "已安装更新的版本。请关闭应用的所有窗口，然后重新打开。",
        "aborted": "安装程序未安装更新便已结束。您可以继续使用此版本；请联系技术支持。",
        "rolled_back": "应用已恢复到更新前的版本。在下次更新之前，您可以继续使用此版本。",
        "failed": "更新失败。请重试，或联系技术支持。",
        "code": "（代码 {0}）",
        "quits": "应用会关闭以安装更新，然后重新打开。",
        "administrator": "Windows 会请求管理员许可。",
        "next_start": "新版本将从下次启动起使用。",
        "installed": "已安装到版本 {0} 的更新。",
    },
}

_WITH_CODE: Final = frozenset({InstallObstacle.FAILED, InstallObstacle.ABORTED})
"""Obstacles of which support needs the code."""


def sentence_of(what: InstallationError | UpdatePlan | InstallationReceipt, tag: str) -> str:
    """Return what installing an update means or came to; `tag` is a language as of `pick_tag`."""
    texts = TEXTS[pick_language([tag])]
    match what:
        case InstallationError():
            return _obstacle(what.obstacle, what.updater, what.command, what.code, tag)
        case UpdatePlan(obstacle=InstallObstacle() as obstacle):
            return _obstacle(obstacle, what.updater, what.command, None, tag)
        case UpdatePlan(updater=str() as updater):
            return texts["other_updater"].format(updater)
        case UpdatePlan():
            sentence = texts["quits" if what.has_to_quit else "next_start"]
            if what.is_administrator_asked:
                sentence = join_sentences(sentence, texts["administrator"], tag)
            return sentence
        case InstallationReceipt(obstacle=InstallObstacle() as obstacle):
            return _obstacle(obstacle, None, None, what.code, tag)
        case InstallationReceipt():
            return texts["installed"].format(what.version)


def _obstacle(
    obstacle: InstallObstacle, updater: str | None, command: str | None, code: int | None, tag: str
) -> str:
    """Return why an update was not installed, and what to do."""
    texts = TEXTS[pick_language([tag])]
    if obstacle is InstallObstacle.OTHER_UPDATER:
        sentence = texts["other_updater"].format(updater)
        detail = texts["command"].format(command) if command else None
    else:
        sentence = texts[obstacle.value]
        detail = texts["code"].format(code) if obstacle in _WITH_CODE and code is not None else None
    return sentence if detail is None else join_sentences(sentence, detail, tag)
