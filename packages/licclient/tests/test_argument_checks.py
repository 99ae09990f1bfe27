"""What arguments of an app must be, before anything is done with them."""

import pytest

from licclient._core.arguments import check_call, check_text, read_items, refuse_copies


def test_a_text_is_a_string_or_none():
    """And nothing that only looks like one."""
    check_text("label", None)
    check_text("label", "Ann")
    with pytest.raises(TypeError, match="label must be a string or None, not bytes"):
        check_text("label", b"Ann")


def test_items_are_counted_while_they_are_read():
    """An endless iterable ends at the limit."""
    assert read_items("channels", iter(["a", "b"]), "texts", 2) == ("a", "b")
    with pytest.raises(ValueError, match="channels must have at most 2 items"):
        read_items("channels", iter(int, 1), "texts", 2)
    for value in ("ab", b"ab", 1):
        with pytest.raises(TypeError, match="channels must be texts"):
            read_items("channels", value, "texts", 2)


def test_an_object_with_locks_is_not_copied():
    """The message names its class, and what to do."""
    with pytest.raises(TypeError, match="int cannot be copied or pickled: make another"):
        refuse_copies(1, "make another")


def test_what_is_called_back_is_a_plain_function():
    """A coroutine function would never be awaited."""
    check_call("on_lost", None)
    check_call("on_lost", print)
    with pytest.raises(TypeError, match="on_lost must be callable"):
        check_call("on_lost", "print")

    async def late():
        pass

    with pytest.raises(TypeError, match="on_lost must be a plain function: its result is never awaited"):
        check_call("on_lost", late)
