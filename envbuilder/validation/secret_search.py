"""What a credential looks like: in a file's name and text, in a variable, in a build instruction. Never quoted.

Every repetition that can follow another one is bounded: a hostile text costs linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from envbuilder.support import decoding

_ENCODED_KEY = (
    r"LS0tLS1CRUdJTi(?:BQUklWQVRF|BSU0EgUFJJVkFUR|BFQyBQUklWQVRF|BEU0EgUFJJVkFUR|BPUEVOU1NIIFBSSVZBVE"
    r"|BFTkNSWVBURUQgUFJJVkFUR)"
)
"""The head of a private key in base64, as a cluster's secrets and variables of CI hold it, for each kind of key."""

_SHAPES: tuple[tuple[str, bytes, str], ...] = (
    (
        "a private key",
        b"PRIVATE KEY",
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----(?:\\{1,4}[nr]|\s){1,8}(?:[A-Za-z-]{1,40}: [^\n]{0,200}\n){0,8}\s{0,8}[A-Za-z0-9+/=]{16}",  # noqa: E501 - one shape
    ),
    ("a private key", b"PuTTY-User-Key-File", r"PuTTY-User-Key-File-\d: "),
    ("an AWS access key", b"AKIA", r"(?<![A-Za-z0-9])AKIA[A-Z2-7]{16}(?![A-Za-z0-9])"),
    ("an AWS access key", b"ASIA", r"(?<![A-Za-z0-9])ASIA[A-Z2-7]{16}(?![A-Za-z0-9])"),
    ("an AWS secret key", b"aws_secret_access_key", r"aws_secret_access_key\s*[=:]\s*[\"']?[A-Za-z0-9+/]{20,}"),
    ("an AWS secret key", b"AWS_SECRET_ACCESS_KEY", r"AWS_SECRET_ACCESS_KEY\s*[=:]\s*[\"']?[A-Za-z0-9+/]{20,}"),
    *(
        ("a GitHub token", hint, rf"(?<![A-Za-z0-9]){decoding.lossy(hint)}[A-Za-z0-9]{{30,}}")
        for hint in (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_")
    ),
    ("a GitHub token", b"github_pat_", r"github_pat_[A-Za-z0-9_]{30,}"),
    ("a GitLab token", b"glpat-", r"glpat-[A-Za-z0-9_-]{20,}"),
    *(
        ("a Slack token", hint, rf"(?<![A-Za-z0-9]){decoding.lossy(hint)}[A-Za-z0-9-]{{20,}}")
        for hint in (b"xoxa-", b"xoxb-", b"xoxe-", b"xoxp-", b"xoxr-", b"xoxs-")
    ),
    ("a Hugging Face token", b"hf_", r"(?<![A-Za-z0-9_])hf_[A-Za-z]{30,}(?![A-Za-z0-9_])"),
    ("a Google API key", b"AIza", r"(?<![A-Za-z0-9_-])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("a package index token", b"pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{30,}"),
    ("an npm token", b"npm_", r"(?<![A-Za-z0-9_])npm_[A-Za-z0-9]{36}(?![A-Za-z0-9_])"),
    ("an npm token", b"_authToken", r"_authToken\s*=\s*[^\s${<]{3,}"),
    ("a Stripe key", b"_live_", r"(?<![A-Za-z0-9])[sr]k_live_[A-Za-z0-9]{20,}"),
    ("an API key", b"sk-", r"(?<![A-Za-z0-9_-])sk-(?:ant-|proj-)?[A-Za-z0-9_-]{40,}"),
    ("a DigitalOcean token", b"dop_v1_", r"dop_v1_[a-f0-9]{64}"),
    ("a Weights & Biases key", b"WANDB_API_KEY", r"WANDB_API_KEY\s*[=:]\s*[\"']?[a-f0-9]{40}"),
    ("a client's key", b"client-key-data", r"client-key-data:\s*[A-Za-z0-9+/=]{40,}"),
    ("an Azure storage key", b"AccountKey=", r"AccountKey=[A-Za-z0-9+/=]{60,}"),
    (
        "a signed web token",
        b".eyJ",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,999}\.eyJ[A-Za-z0-9_-]{10,999}\.[A-Za-z0-9_-]{20,}",
    ),
    ("a private key", b"LS0tLS1CRUdJTi", _ENCODED_KEY),
    ("an NVIDIA key", b"nvapi-", r"(?<![A-Za-z0-9_-])nvapi-[A-Za-z0-9_-]{60,}"),
    ("a Docker Hub token", b"dckr_pat_", r"dckr_pat_[A-Za-z0-9_-]{20,}"),
    ("an Artifactory key", b"AKCp", r"(?<![A-Za-z0-9])AKCp[A-Za-z0-9]{69}(?![A-Za-z0-9])"),
)
"""What it is called, a few bytes without which it cannot be there, and its shape."""

_COMPILED = tuple((what, hint, re.compile(shape.encode())) for what, hint, shape in _SHAPES)
_ANCHORS = b"KJI-_"
"""One of these is in every hint, the rarest in source code first: a regular expression that begins with one letter
skips to the next such letter at memory's speed, so that a text is gone through once a letter, not once a hint."""


def _prefilters(hints: frozenset[bytes]) -> tuple[re.Pattern[bytes], ...]:
    """Compile what finds whether any hint is in a text: for each anchor, the anchor with the rest of a hint around."""
    grouped: dict[int, list[bytes]] = {}
    for hint in sorted(hints):
        anchor = next(letter for letter in _ANCHORS if letter in hint)
        before, own, after = hint.partition(bytes((anchor,)))
        grouped.setdefault(anchor, []).append(b"(?<=%b)%b" % (re.escape(before + own), re.escape(after)))
    return tuple(
        re.compile(b"%b(?:%b)" % (re.escape(bytes((anchor,))), b"|".join(around))) for anchor, around in grouped.items()
    )


_PREFILTERS = _prefilters(frozenset(hint for _, hint, _ in _COMPILED))

ADDRESS = re.compile(
    rb"(?i)\b[a-z][a-z0-9+.-]{0,20}://[^/\s:@\"'<>${]{0,200}:[^/\s@\"'<>${]{1,200}@|://(?:gh[pousr]_|glpat-)\w{20,100}@"
)
_VARIABLE = re.compile(
    r"(?i)(?:token|secret|passw(?:or)?d|passphrase|_pwd|_pass|credentials?|api_?key|access_key(?:_id)?|secret_key|private_key"
    r"|auth_key|_pat)(?:_(?:prod|dev|stag(?:e|ing)|test|base|\d+))?\Z"
)
_ASSIGNED = re.compile(r"(?:^|[\s|'\"])([A-Za-z_][A-Za-z0-9_]*)=(\"[^\"]*\"|'[^']*'|[^\s;&|]*)")
_FLAG = re.compile(
    r"(?i)--?(?:password|passwd|token|api-?key|secret)[= ]+(?![\s$<{])\S{4,}"
    r"|\b(?:curl|wget)\b[^|;&\n]{0,400}\s(?:-u|--user)[= ]?\s{0,4}[\"']?[^\s:\"'$<{]{1,100}:[^\s\"'$<{]{3,}"
    r"|\bsshpass\s+-p\s{0,4}[^\s$<{]{3,}"
    r"|\b(?:authorization:\s{0,4}(?:bearer|basic|token)|(?:x-[\w-]{1,40}(?:token|api|key)|private-token|job-token):)\s{0,4}[^\s$<{\"']{8,}"
    r"|[\w.-]{1,60}:[^\s:$<{\"']{3,100}[\"']?\s{0,4}\|\s{0,4}(?:sudo\s+)?chpasswd\b"
)


class Secret(msgspec.Struct, frozen=True):
    """What looks like a credential: ``what`` it is, and where (a path, a variable's name). Never its value."""

    path: str
    what: str


def shaped_in(path: str, content: bytes) -> Iterator[Secret]:
    """Search any file, text or not, for the shapes of known credentials."""
    if any(prefilter.search(content) for prefilter in _PREFILTERS):
        yield from (Secret(path, what) for what, hint, shape in _COMPILED if hint in content and shape.search(content))


def in_variable(name: str, value: str) -> str:
    """Say what a variable or label holds that looks like a credential; '' where nothing does."""
    if shaped := _shaped(value):
        return shaped
    return "what looks like a credential" if _VARIABLE.search(name) and _is_value(value) else ""


def in_instruction(text: str) -> str:
    """Say what a build instruction, an entry point or a command holds that looks like a credential; else ''."""
    if shaped := _shaped(text):
        return shaped
    given = [(name, value.strip("\"'")) for name, value in _ASSIGNED.findall(text)]
    if any(_VARIABLE.search(name) and _is_value(value) for name, value in given) or _FLAG.search(text):
        return "what looks like a credential"
    return ""


def _shaped(text: str) -> str:
    data = text.encode("utf-8", "replace")
    shaped = next((what for what, hint, shape in _COMPILED if hint in data and shape.search(data)), "")
    return shaped or ("an address with a password" if ADDRESS.search(data) else "")


def _is_value(value: str) -> bool:
    """Tell a value from nothing, a reference, a placeholder, a switch and a file's name (a mounted secret's)."""
    return bool(value) and not value.startswith(("$", "<", "{", "/")) and value.lower() not in ("true", "false", "none")
