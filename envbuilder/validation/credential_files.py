"""Files in which tools keep credentials: by their names, by each tool's own way of writing, by their first bytes."""

from __future__ import annotations

import re

from envbuilder.validation.secret_search import ADDRESS, Secret, shaped_in

NAMES = re.compile(
    r"(?:^|/)(?:\.netrc|_netrc|\.pypirc|\.npmrc|\.yarnrc|\.git-credentials|\.dockercfg|\.docker/config\.json"
    r"|\.aws/(?:credentials|config)|\.config/gcloud/.*\.json|\.kube/config|kubeconfig|pip\.conf|uv\.toml|\.pgpass"
    r"|\.my\.cnf|\.s3cfg|\.boto|\.huggingface/token|huggingface/token|\.kaggle/kaggle\.json|kaggle\.json"
    r"|\.env(?:\.[\w.-]+)?|[^/]+\.env|apt/auth\.conf(?:\.d/[^/]+)?|\.git/config|\.gitconfig|\.bash_history"
    r"|\.python_history|\.zsh_history|\.condarc|\.wgetrc|\.curlrc|credentials(?:\.json)?|\.vault-token"
    r"|secrets?\.(?:ya?ml|json|toml|txt|ini)|\.htpasswd|terraform\.tfstate|settings\.xml|\.config/rclone/rclone\.conf"
    r"|rclone\.conf|jupyter_(?:\w+_)?config\.(?:py|json)|\.databrickscfg|pypoetry/auth\.toml|uv/credentials\.toml|\.cargo/credentials\.toml|credentials\.tfrc\.json|apt/apt\.conf(?:\.d/[^/]+)?|apt/sources\.list(?:\.d/[^/]+)?|etc/profile(?:\.d/[^/]+)?|gh/hosts\.yml|\.config/hub|etc/environment|\.bashrc|\.profile|\.bash_profile"
    r"|\.envrc|etc/g?shadow-?|\.yarnrc\.yml|[^/]+\.tfvars(?:\.json)?|gradle\.properties|settings-security\.xml"
    r"|containers(?:/\d+)?/auth\.json|\.ngc/config|\.dvc/config\.local|\.mlflow/credentials|\.mambarc|\.dbt/profiles\.yml"
    r"|\.snowflake/(?:config|connections)\.toml|\.aws/(?:sso|cli)/cache/[^/]+\.json|\.azure/[^/]+\.json|\.smbcredentials"
    r"|\.comet\.config|clearml\.conf|(?:docker-)?compose(?:\.[\w-]+)?\.ya?ml)\Z"
)
"""Files in which tools keep credentials: a plain password in one of them is found too."""

_KEY_FILE = re.compile(r"(?:^|/)(?:id_(?:rsa|dsa|ecdsa|ed25519)|[^/]+\.(?:p12|pfx|jks|keystore|ppk))\Z")
_HEADER = re.compile(rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY")
_ALWAYS = re.compile(
    r"(?:^|/)(?:\.netrc|_netrc|\.git-credentials|\.pgpass|\.vault-token|huggingface/token|\.huggingface/token"
    r"|\.gnupg/private-keys-v1\.d/[^/]+\.key)\Z|\Arun/secrets/[^/]+(?:/[^/]+)?\Z"
)
_PLAIN = re.compile(
    rb"(?im)(?:(?:passw(?:or)?d|passphrase|secret|token|api_?key|access_?key|_auth|credentials?)[\w-]{0,40}[\"']?\s*[=:]"
    rb"\s*[\"']?(?![\s$<{*\"'])[^\s\"'$<{]{6,}|\bpassword\s+[^\s$<{=:]{3,}|\"auth\"\s*:\s*\"[A-Za-z0-9+/=]{8,}\")"
)
_COMPOSED = re.compile(r"(?:^|/)(?:docker-)?compose(?:\.[\w-]+)?\.ya?ml\Z")
_WRITTEN = re.compile(
    rb"(?m)(?:^[^:\s]{1,64}:(?:\$(?:1|5|6|y|gy|7|2[aby]|apr1|argon2i?d?|scrypt)\$|\{SHA\})[^:\s]{8,}"  # a hash
    rb"|<(?:password|passphrase|privateKey|master)>[^<$\s{][^<\n]{2,200}</"  # Maven
    rb"|\"key\"[ \t]*:[ \t]*\"[0-9a-f]{32}\""  # Kaggle
    rb"|^[ \t]*pass[ \t]*=[ \t]*[^\s$<{]{6,}"  # rclone
    rb"|(?:^[ \t]*|\bcurl\b[^\n|;&]{0,200}[ \t])(?:-u|--?user\b|(?:proxy-)?user\b)[ \t]*=?[ \t]*[\"']?"
    rb"[^\s\":$<{]{1,100}:[^\s\"$<{]{2,}"  # curl
    rb"|/t/[a-z]{2}-[0-9a-f-]{20,}/"  # Anaconda's channels
    rb"|^(?:export[ \t]+)?[A-Z0-9_]{0,60}(?:PASS|_PWD|(?<!PUBLIC)(?<!GPG)_KEY)=[\"']?(?![\s$<{\"'*/])[^\s\"'$<{]{6,}"
    rb"|\bsshpass[ \t]+-p[ \t]*[^\s$<{]{3,})"
)
"""Ways of writing a credential that one tool has, in files that are called as that tool calls them."""

_IN_YAML = re.compile(
    rb"(?im)^[ \t-]*[\"']?[\w.-]{0,60}(?:passw(?:or)?d|token|api_?key|secret_?key)[\"']?[ \t]*[:=][ \t]*"
    rb"[\"']?(?![\s$<{*\"'!|>/])[^\s\"'$<{]{6,}"
)

_STORES: tuple[tuple[re.Pattern[str], re.Pattern[bytes]], ...] = tuple(
    (re.compile(name), re.compile(head, re.DOTALL))
    for name, head in (
        (r"\.(?:p12|pfx)\Z", rb"0[\x80-\x84]"),
        (r"\.(?:jks|jceks|keystore)\Z", rb"(?:\xfe\xed\xfe\xed|\xce\xce\xce\xce).{4}.{4}\0\0\0[\x01\x03]"),
        (r"\.keytab\Z", rb"\x05[\x01\x02]"),
        (r"\.(?:key|der|pk8|pem)\Z", rb"0(?:\x82..|\x81.|[\x20-\x7f])\x02\x01[\0\x01]"),
        (r"(?:^|/)\.gnupg/(?:private-keys-v1\.d/[^/]+\.key|secring\.gpg)\Z", rb"."),
        (r"(?:^|/)gcloud/(?:credentials|access_tokens)\.db\Z", rb"SQLite format 3"),
        (r"\.kdbx\Z", rb"\x03\xd9\xa2\x9a"),
    )
)
"""Files that are no text, by name and first bytes: PKCS #12, a Java store whose first entry is a key, Kerberos's keys,
DER keys, GnuPG's, the Google command line's, KeePass's. A Java store that begins with a certificate is none."""


def in_text(path: str, text: bytes) -> tuple[Secret, ...]:
    """Search a file's text: shapes of known credentials in any file, plain passwords where tools keep such."""
    found = list(shaped_in(path, text))
    if not found and path.endswith((".key", ".pem")) and _HEADER.search(text):
        found.append(Secret(path, "a private key"))
    if not found and text.strip() and (_KEY_FILE.search(path) or _ALWAYS.search(path)):
        found.append(Secret(path, "a credential"))
    if not found and NAMES.search(path):
        plain = _IN_YAML if _COMPOSED.search(path) else _PLAIN
        if plain.search(text) or ADDRESS.search(text) or _WRITTEN.search(text):
            found.append(Secret(path, "a credential"))
    return tuple(dict.fromkeys(found))


def is_store(path: str, head: bytes | bytearray) -> bool:
    """Tell a file that is no text, and that holds keys, by its name and first bytes."""
    return any(name.search(path) and first.match(head) for name, first in _STORES)
