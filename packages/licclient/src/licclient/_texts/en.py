"""What people read, in English; the keys are explained here.

`&` stands before the letter that presses a button with Alt, and no letter is there twice in one window.
"""

from typing import Final

TEXTS: Final = {
    # `Reason`: why the server refused (spec 7)
    "reason.invalid_format": "This is not a license key. Please compare it with the one you received.",
    "reason.not_found": "This license key does not exist. Please compare it with the one you received.",
    "reason.revoked": "This license has been revoked. Please contact support.",
    "reason.expired": "This license has expired. Please renew it, or enter another key.",
    "reason.environment": "All computers that this license allows are in use. Please free one, or enter another key.",
    "reason.other_product": "This license is for another product. Please enter a key for this one.",
    "reason.support_ended": "The support period of this license is over. Please renew it to get newer versions.",
    "reason.no_version": "No version of this app is offered at the moment. Please try again later.",
    "reason.trial_not_offered": "There are no trials of this product. Please enter a license key.",
    "reason.trial_ended": "The trial on this computer has ended. Please enter a license key.",
    "reason.trial_limit": "No more trials can be started today. Please try again tomorrow, or enter a license key.",
    "reason.other": "The license was refused. Please contact support.",
    # `KeyFlaw`: what is wrong with a typed key (D-57); {0} are characters, or how many
    "flaw.empty": "Please enter your license key.",
    "flaw.prefix": "A license key begins with CP-.",
    "flaw.characters": "A license key holds only the letters A to Z and digits, not: {0}",
    "flaw.too_short": "The license key is incomplete. Characters missing: {0}",
    "flaw.too_long": "The license key is too long. Characters too many: {0}",
    # the other errors; {0} is a date, or the system's own sentence; of seats {0} is a number and {1} a time
    "error.not_activated": "No license key has been entered on this computer yet.",
    "error.not_entitled": "Your license does not include this feature.",
    "error.quota_exceeded": "You have used all that your license includes for now. It can be used again from {0}.",
    "error.invalid_request": "The license service did not accept the request. Please contact support.",
    "error.unavailable": "The license service could not be reached. Please go online and try again.",
    "error.keyring": "The license key could not be read from the system's keyring. Please unlock it and try again.",
    "error.untrusted": "What was received could not be verified, and was not used. Please contact support.",
    "error.unusable_archive": "The update cannot be installed. You can go on using this version; please contact support.",
    "error.moved_often": "This license was moved to another computer too often. It can be moved again on {0}.",
    "error.not_movable": "Only support can free this computer for another one. Please contact support.",
    "error.seats_in_use": "All {0} seats of this license are in use. Please try again at {1}, or when somebody has closed the app.",
    "error.seat_lost": "The seat of this computer was taken back. Please save your work, and ask whoever manages the license.",
    "error.no_seats": "This license has no seats to share. Please contact support.",
    "error.cancelled": "The download was cancelled.",
    "error.disk": "The file could not be saved. {0}",
    # `FileFlaw`: why a license file cannot be used
    "file.damaged": "This is not a license file, or a part of it is missing. Please get it again.",
    "file.other_machine": "This license file is for another computer. Please ask for one for this computer.",
    "file.ended": "This license file has ended. Please ask for a new one.",
    "file.clock": "The clock of this computer is wrong. Please set it, then try again.",
    # `LicenseState`: the first line of a settings page; {0} is a date
    "state.valid": "Licensed.",
    "state.grace": "Licensed, but not confirmed recently. Please go online by {0}.",
    "state.unconfirmed": "The license could not be confirmed. Please go online and try again.",
    # dialogs: entering a key; {0} is the product, or the last valid day
    "activation.title": "Activate {0}",
    "activation.title_alone": "License activation",
    "activation.intro": "Please enter the license key that you received with your purchase.",
    "activation.label": "License &key:",
    "activation.asking": "Checking the license key …",
    "activation.never_online": "If this computer is never online, ask support for a license file.",
    "activation.done": "Thank you. Your license is active.",
    "activation.done_until": "Thank you. Your license is active until {0}.",
    # an update; {0} is name and version, a version, a date, a size or a time; {0} of {1} are sizes
    "update.none": "This version is up to date.",
    "update.ahead": "This version is newer than the one that is offered now. The next newer one will be offered.",
    "update.required": "You need to update to go on being supported.",
    "update.unavailable": "Updates could not be checked. Please go online and try again.",
    "update.title": "Software update",
    "update.heading": "{0} is available",
    "update.important": "This is an important update. Please install it soon.",
    "update.installed": "Installed: {0}",
    "update.published": "Published: {0}",
    "update.size": "Size: {0}",
    "update.label": "What is &new:",
    "update.connecting": "Connecting …",
    "update.progress": "{0} of {1}",
    "update.left": "{0} left",
    "update.stopping": "Cancelling …",
    "update.cut": "The download was interrupted. Please go online and try again; it goes on where it stopped.",
    "update.here": "Downloaded and verified.",
    "update.unverified": "Downloaded. Only its size could be verified.",
    # buttons
    "button.activate": "&Activate",
    "button.trial": "Start &trial",
    "button.not_now": "&Not now",
    "button.close": "&Close",
    "button.download": "&Download",
    "button.again": "&Try again",
    "button.later": "&Later",
    "button.skip": "&Skip this version",
    "button.cancel": "&Cancel",
    "button.continue": "&Continue",
    # links
    "link.buy": "Buy a license",
    "link.lost": "Lost your key?",
    "link.manage": "Manage your computers",
    "link.support": "Contact support",
    # an exception that nobody expected
    "problem.unexpected": "An unexpected problem occurred. Please contact support.",
}
