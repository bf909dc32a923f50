"""Read a project's page of the simple API, in HTML or JSON, into files."""

import posixpath
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec

from envbuilder.support import decoding

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON_TYPE}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
"""A client's header that accepts both forms."""


class DistFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a project on an index; ``size`` in bytes.

    ``sha256`` is '' if the index has none. ``has_metadata`` says if the index serves ``<url>.metadata``, None if
    unknown; ``metadata_sha256`` is the digest of that, '' if unknown.
    """

    project: str
    filename: str
    url: str
    sha256: str = ""
    requires_python: str = ""
    has_metadata: bool | None = None
    metadata_sha256: str = ""
    size: int | None = None
    uploaded: str = ""
    yanked: bool = False


class _JsonFile(msgspec.Struct, rename="kebab"):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    requires_python: str | None = None
    core_metadata: bool | dict[str, str] | None = None
    size: int | None = None
    upload_time: str | None = None
    yanked: bool | str = False


class _JsonPage(msgspec.Struct):
    files: list[_JsonFile]


MAX_FILES = 60_000
"""Files of one project; the largest project of the public index has half as many."""


def parse(project: str, content: bytes, content_type: str, url: str) -> tuple[DistFile, ...]:
    """Parse one page; ``url`` is its address, for relative links. Raises ValueError if it is not a page of an index.

    Also for more than `MAX_FILES` files, or for text that may have as many: parsing takes much more memory than that.
    """
    marks = ((b'"filename"', 1), (b"<a", 1), (b"<", 4), (b",", 24))
    if any(content.count(mark) > each * MAX_FILES for mark, each in marks):
        raise ValueError(f"more than {MAX_FILES:,} files")
    return (_json if "json" in content_type else _html)(project, content, url)


def _json(project: str, content: bytes, url: str) -> tuple[DistFile, ...]:
    page = decoding.from_json(content, _JsonPage, "not a page of the simple API")
    return tuple(
        DistFile(
            project=project,
            filename=file.filename,
            url=urljoin(url, file.url),
            sha256=file.hashes.get("sha256", ""),
            requires_python=file.requires_python or "",
            has_metadata=None if file.core_metadata is None else bool(file.core_metadata),
            metadata_sha256=file.core_metadata.get("sha256", "") if isinstance(file.core_metadata, dict) else "",
            size=file.size,
            uploaded=(file.upload_time or "")[:10],
            yanked=file.yanked is not False,
        )
        for file in page.files
    )


def _html(project: str, content: bytes, url: str) -> tuple[DistFile, ...]:
    links = _Links()
    links.feed(decoding.lossy(content))
    if not links.found and not links.is_index:
        raise ValueError("lists no files and is not a page of an index: a login page, or a proxy's message?")
    return tuple(_from_link(project, attributes, links.base or url) for attributes in links.found)


def _from_link(project: str, attributes: dict[str, str], url: str) -> DistFile:
    address, fragment = urldefrag(urljoin(url, attributes["href"]))
    metadata = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata"))
    return DistFile(
        project=project,
        filename=unquote(posixpath.basename(urlsplit(address).path)),
        url=address,
        sha256=fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else "",
        requires_python=attributes.get("data-requires-python", ""),
        has_metadata=None if metadata is None else metadata != "false",
        metadata_sha256=metadata.removeprefix("sha256=") if metadata and metadata.startswith("sha256=") else "",
        yanked="data-yanked" in attributes,
    )


class _Links(HTMLParser):
    """Collects the links of a page and their base address."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self.base = ""
        self.is_index = False
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self._in_title = tag in ("title", "h1")
        self.is_index |= tag == "meta" and attributes.get("name") == "pypi:repository-version"
        if "href" not in attributes:
            return
        if tag == "base":
            self.base = attributes["href"]
        elif tag == "a" and unquote(urlsplit(attributes["href"]).path).lower().endswith(_FILES):
            self.found.append(attributes)

    def handle_data(self, data: str) -> None:
        # An index's page of a project without files is known by its title.
        self.is_index |= self._in_title and data.strip().lower().startswith(("links for", "index of", "simple index"))


_FILES = (".whl", ".tar.gz", ".zip", ".egg", ".tar.bz2", ".tgz", ".exe", ".metadata", ".tar.xz", ".msi", ".rpm", ".deb")
