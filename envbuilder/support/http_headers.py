"""Headers of HTTP that have a grammar: links to further pages, and challenges to log in."""

import re

_WORD = r"[\w!#$%&'*+.^`|~-]++"
_VALUE = rf'\s*+=\s*+({_WORD}|"(?:[^"\\]|\\.)*+")'
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"?')
_AUTH_PARAMETER = re.compile(rf'(?:^|[\s,])({_WORD})\s*+=\s*+("[^"]*+"|[^\s,"]++)')
_LINK = re.compile(rf"\s*+<([^<>]*+)>((?:\s*+;(?:\s*+{_WORD}(?:{_VALUE})?+)?+)*+)\s*+(?:,[\s,]*+|\Z)")
_PARAMETER = re.compile(rf";\s*+({_WORD}){_VALUE}")
_RELATIONS = re.compile(r"[a-z][a-z0-9.-]*+(?: ++[a-z][a-z0-9.-]*+)*+")
"""A link with its parameters (RFC 8288, section 3), and its relations: registered names, not somebody's address."""


def known_scheme(header: str) -> tuple[str, dict[str, str]]:
    """Return the first scheme of a challenge that is known, and its parameters (RFC 9110, section 11.6.1)."""
    masked = _QUOTED.sub(lambda text: "_" * len(text[0]), header)
    schemes = [*re.finditer(r"(?:^|,)\s*+([\w-]++)(?=\s++[^=]|\s*+(?:,|$))", masked)]
    for number, found in enumerate(schemes):
        if (kind := found[1].lower()) in ("bearer", "basic"):
            part = header[found.end() : schemes[number + 1].start() if number + 1 < len(schemes) else None]
            return kind, {name.lower(): text.strip('"') for name, text in _AUTH_PARAMETER.findall(part)}
    return "", {}


def next_links(header: str) -> list[str] | None:
    """Return the links to a next page ('' for one that is another document's); None if a part is not understood."""
    header, found = header.strip(" \t,"), list[str]()
    clear = not _LINK.sub("", header)
    for link in _LINK.finditer(header):
        parameters = [(name.casefold(), text.strip('"').casefold()) for name, text in _PARAMETER.findall(link[2])]
        relations = [text for name, text in parameters if name == "rel"]
        clear = clear and len(relations) == 1 and _RELATIONS.fullmatch(relations[0]) is not None
        if "next" in " ".join(relations).split():
            found.append("" if "anchor" in dict(parameters) else link[1])
    return found if clear else None
