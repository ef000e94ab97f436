"""Addresses of engines: what can be asked, and nothing secret in what is said of the rest."""

import pytest

from gateway.addresses import engine_url


@pytest.mark.parametrize("url", ["http://127.0.0.1:30000", "https://api.example.com/v1", "http://[::1]:8000"])
def test_where_an_engine_can_be_asked_the_address_stays(url: str) -> None:
    assert engine_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "localhost:80/s3cret",
        "ftp://s3cret",
        "http://u:s3cret@h",
        "http://h/?key=s3cret",
        "http://h/#s3cret",
        "http://u:s3cret@h℀",
    ],
)
def test_anything_else_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"^write |^no |^nothing ") as refused:
        engine_url(url)
    assert "s3cret" not in str(refused.value)
