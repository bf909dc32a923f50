"""Answers that come in pages: the next one is named by a ``Link``, and somebody else writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from envbuilder.registry.exchange import Answer
from envbuilder.registry.faults import Fault, RegistryRefusedError
from envbuilder.registry.transport import Transport

MAX_PAGES = 1_000
_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[^,;="]+(?:=(?:"[^"]*"|[^,;"]*))?)*)')
_NEXT = re.compile(r"\brel\s*=\s*(?:\"(?:[^\"]*\s)?next(?:\s[^\"]*)?\"|next\b)", re.IGNORECASE)

_RELATION = re.compile(r"\brel\s*=", re.IGNORECASE)


def pages(transport: Transport, path: str, *, expect: tuple[int, ...], limit: int) -> Iterator[Answer]:
    """Fetch every page from the first on, each of at most ``limit`` bytes.

    Raises RegistryRefusedError for a link that leads out of the registry, in a circle, or on without end.
    """
    following, seen = path, set[str]()
    for _ in range(MAX_PAGES):
        answer = transport.send("GET", following, expect=expect, limit=limit)
        yield answer
        seen.add(answer.address)
        following = _following(answer)
        if not following:
            return
        if following in seen:
            raise RegistryRefusedError(Fault.BAD_LINK, f"the registry's pages lead in a circle: {following[:200]}")
        seen.add(following)
    raise RegistryRefusedError(Fault.TOO_MANY, f"the registry answers in more than {MAX_PAGES} pages")


def _following(answer: Answer) -> str:
    """Return the address of the next page; '' where this is the last."""
    header = answer.headers.get("Link", "")
    links: list[tuple[str, str]] = _LINK.findall(header)
    link = next((address for address, parameters in links if _NEXT.search(parameters)), None)
    if link is None:
        # A relation that is not known may be the next page in somebody's own spelling: nothing is left unread for that.
        if header.strip() and ("next" in header.casefold() or not _all_related(header, links)):
            raise RegistryRefusedError(
                Fault.BAD_LINK, f"the registry names its next page in no known form: {header[:200]!r}"
            )
        return ""
    try:
        following = urljoin(answer.address, link)
        same = urlsplit(following)[:2] == urlsplit(answer.address)[:2]
    except ValueError:
        same = False
    if not link or not same:
        raise RegistryRefusedError(Fault.BAD_LINK, f"the registry's next page is elsewhere: {link[:200]!r}")
    return following


def _all_related(header: str, links: list[tuple[str, str]]) -> bool:
    """Tell whether a header is made of links alone, each of which says how it is related."""
    return not _LINK.sub("", header).strip(" ,\t") and all(_RELATION.search(parameters) for _, parameters in links)
