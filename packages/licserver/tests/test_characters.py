"""Characters that a terminal would act on are escaped."""

import json

from licserver.domain.characters import dump_json, escape_controls, shows_as_written


def test_json_has_no_character_that_moves_the_cursor():
    """It reads back as it was; letters of any script stay."""
    value = {"a": "\x1b[2J\u202eé\ud800"}
    text = dump_json(value)
    assert text.isprintable()
    assert "é" in text
    assert json.loads(text) == value


def test_text_has_none_either():
    """But keeps its tabs and line breaks."""
    assert escape_controls("a\tb\n\x1b\u202e") == "a\tb\n\\x1b\\u202e"
    assert escape_controls("é") == "é"


def test_a_name_shows_as_it_is_written():
    """Joiners are part of words."""
    assert shows_as_written("\u0915\u200d")
    assert not shows_as_written("gpj.\u202eexe")
