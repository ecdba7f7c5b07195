"""Web addresses as people give them: checked, parted from their password, fit to be printed."""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from mference.errors import InstallError

_SHOWABLE = re.compile(r"(\w+://)?(?:[^/?#@]*@)?([^?#@]*)(?:[?#][^@]*)?")


@dataclass(frozen=True)
class Address:
    """The address below which files lie, without a slash at its end.

    `credentials` are the user and password that were written into it; `base` is free of them.
    """

    base: str
    credentials: tuple[str, str] | None = None


def parse_address(text: str, what: str = "the source") -> Address:
    """Read an http or https address; `what` says in messages where it was given.

    Raises `InstallError` for anything else, or one that has a query or a fragment.
    """
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half of an IPv6 address
        usable = False
    if not usable or "?" in text or "#" in text:
        raise InstallError(f"{what} '{shown(text)}' is no http or https address of a folder")
    base = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    if parts.username is None:
        return Address(base)
    return Address(base, (unquote(parts.username), unquote(parts.password or "")))


def shown(address: str) -> str:
    """An address without what may be secret: user, password, query and fragment.

    One whose parts cannot be told apart is not shown at all.
    """
    match = _SHOWABLE.fullmatch(address)
    return f"{match[1] or ''}{match[2]}" if match else "(an address that may hold a password)"
