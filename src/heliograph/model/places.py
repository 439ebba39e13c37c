"""Places: where durable data is kept, a folder or the URL of a PostgreSQL database; URLs may contain a password.

In:    the text of a place.
Out:   whether it is a database, whether it contains a password, and texts without the password.
State: none.
Not here: opening it (live/vaults/), the settings that have places (stores/config.py, discovery/topics/config.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

POSTGRES = ("postgresql://", "postgres://")
HIDDEN = "***"
ELSEWHERE = "keep it in ~/.pgpass, or in the file that PGPASSFILE names"
_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")
_SECRETS = ("password", "sslpassword", "oauth_client_secret")  # parameters of a URL


def has_password(place: str) -> bool:
    """True if whoever sees this text sees a password."""
    return masked(place) != place


def masked(place: str) -> str:
    """The place, with its password replaced: what may be shown."""
    return "".join(HIDDEN if is_secret and text else text for text, is_secret in _pieces(place))


def without_password(text: str, place: str) -> str:
    """What a library says about a place, without the password in it."""
    for secret in (text for text, is_secret in _pieces(place) if is_secret and text not in ("", HIDDEN)):
        text = text.replace(secret, HIDDEN).replace(_decoded(secret), HIDDEN)
    return text


def _pieces(place: str) -> Iterator[tuple[str, bool]]:
    """The text in order, each piece with whether it is a password."""
    if not place.startswith(POSTGRES):
        yield place, False
        return
    scheme, _, rest = place.partition("://")
    before, mark, query = rest.partition("?")
    user, at, where = before.rpartition("@")  # the last one: a password may have a / or @ that should be encoded
    name, colon, password = user.partition(":")
    yield f"{scheme}://{name}{colon}", False
    yield password, True
    yield f"{at}{where}{mark}", False
    for number, parameter in enumerate(query.split("&")):
        key, equals, value = parameter.partition("=")
        yield ("&" if number else "") + key + equals, False
        yield value, _decoded(key) in _SECRETS


def _decoded(text: str) -> str:
    """A part of a URL as the database's library reads it."""
    plain = _ENCODED.sub(lambda found: bytes([int(found[1], 16)]), text.encode("utf-8", "surrogatepass"))
    return plain.decode("utf-8", "replace")
