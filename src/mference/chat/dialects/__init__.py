"""The dialects this version speaks, one file each."""

from collections.abc import Callable

from mference.chat.dialects.base import Dialect, UnsupportedDialectError
from mference.chat.dialects.chatml import CHATML
from mference.chat.dialects.gemma4 import GEMMA4

DIALECTS = {dialect.name: dialect for dialect in (GEMMA4, CHATML)}

# Tokens that only one dialect has, in the order in which they decide. Gemma needs none.
_SIGNS = (("<|message_user|>", "inkling"), ("<｜User｜>", "deepseek"), ("<|im_end|>", "chatml"))


def dialect(name: str) -> Dialect:
    """The dialect of this name.

    Raises:
        UnsupportedDialectError: this version does not speak it; names those it does.
    """
    try:
        return DIALECTS[name]
    except KeyError:
        raise UnsupportedDialectError(
            f"the chat dialect {name!r} is not supported; supported: {', '.join(DIALECTS)}"
        ) from None


def detect(has_token: Callable[[str], bool]) -> Dialect:
    """The dialect of a vocabulary, from the control tokens it has.

    Raises:
        UnsupportedDialectError: the tokens are those of a dialect this version does not speak.
    """
    return dialect(next((name for sign, name in _SIGNS if has_token(sign)), GEMMA4.name))
