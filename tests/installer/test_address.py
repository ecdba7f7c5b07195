"""What is shown of an address never holds a secret."""

import pytest

from mference.errors import InstallError
from mference.installer.address import Address, parse_address, shown


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("https://host/a/b", "https://host/a/b"),
        ("https://host:8443/a", "https://host:8443/a"),
        ("https://user:secret@host/a", "https://host/a"),
        ("user:secret@host/a", "host/a"),
        ("https://host/a?token=secret", "https://host/a"),
        ("https://host/a#secret", "https://host/a"),
        ("HTTPS://secret@host", "HTTPS://host"),
    ],
)
def test_only_what_is_no_secret_is_shown(text, seen):
    assert shown(text) == seen


@pytest.mark.parametrize(
    "text",
    [
        "https://user:sec/ret@host/a",
        "https://user:sec?ret@host/a",
        "https://user:sec#ret@host/a",
        "https://user:sec@ret@host/a",
        "https://host/a?user=sec@ret",
    ],
)
def test_an_address_whose_parts_cannot_be_told_apart_is_not_shown(text):
    assert "sec" not in shown(text)
    assert "ret" not in shown(text)


def test_a_user_and_password_are_parted_from_the_address():
    assert parse_address("https://me:p%40ss@host:1/a/") == Address(
        "https://host:1/a", ("me", "p@ss")
    )
    assert parse_address("http://host") == Address("http://host", None)
    assert parse_address("http://me@host").credentials == ("me", "")


@pytest.mark.parametrize(
    "text", ["ftp://u:secret@h", "https://u:secret@h:x", "https://h?secret", "h", "", "http://["]
)
def test_what_is_no_address_is_refused_without_its_secret(text):
    with pytest.raises(InstallError, match="--base-url") as caught:
        parse_address(text, "--base-url")
    assert "secret" not in str(caught.value)
