"""Look for what must not be in an image: keys, tokens, passwords, and certificates of the host that built it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from .answer import Answer, Facts, Finding, finding, judged

# Names under which tools keep credentials (file name or the end of the path), and private keys by their usual names.
NAMES = re.compile(
    r"(^|/)(\.netrc|\.pypirc|\.npmrc|\.git-credentials|\.dockercfg|\.docker/config\.json|\.aws/credentials"
    r"|\.config/gcloud/.*\.json|\.kube/config|id_(rsa|dsa|ecdsa|ed25519)|[^/]*\.(key|p12|pfx|jks)|[^/]*\.pem"
    r"|pip\.conf|uv\.toml|\.huggingface/token)\Z"
)
PRIVATE_KEY = re.compile(rb"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----")
CREDENTIAL = re.compile(
    rb"(?i)(password|_authToken|_password|secret_access_key|\bpassword)\s*[=:]\s*\S+|://[^/\s:@]+:[^/\s@]+@"
)
VARIABLE = re.compile(r"(?i)(^|_)(token|secret|password|passwd|credentials?|api_?key|access_key(_id)?)($|_)")
ROOTS = ("/root", "/home", "/opt", "/etc", "/run", "/srv", "/tmp", "/usr/local", "/var/lib", "/app", "/workspace")
PACKAGES = ("site-packages", "dist-packages")
HOST_BUNDLE = ("/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors", "/run/host")
MOUNTED = ("/envbuilder", "/proc", "/sys", "/dev")
AT_MOST = 256 * 1024


def in_files(facts: Facts) -> Answer:
    """Search the image's file system, and its variables, for credentials and for a build host's certificates."""
    findings = []
    for path in candidates():
        problem = judge_file(path, _head(path))
        if problem:
            findings.append(problem)
    findings += variables(facts.get("image_env") or {})
    findings += certificates()
    observed = "; ".join(one["message"] for one in findings) or "none found"
    return judged(findings, "no secrets and no certificates of the build host", observed)


def candidates() -> list[str]:
    """List the files whose name suggests a credential, outside of what was mounted."""
    found = []
    for root in ROOTS:
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if os.path.join(folder, name) not in MOUNTED and name not in PACKAGES]
            found += [os.path.join(folder, name) for name in files if NAMES.search(os.path.join(folder, name))]
    return sorted(set(found))


def judge_file(path: str, head: bytes) -> Finding | None:
    """Decide about one file by its name and its first bytes; None where it is harmless."""
    if not NAMES.search(path) or not head:
        return None
    inside = any("/{0}/".format(name) in path for name in PACKAGES)
    if PRIVATE_KEY.search(head):
        return _secret(path, "a private key", "warning" if inside else "error")
    if path.endswith((".pem", ".key", ".p12", ".pfx", ".jks")):
        return None
    named = os.path.basename(path)
    if CREDENTIAL.search(head) or named in (".netrc", ".git-credentials", "token") or named.startswith("id_"):
        return _secret(path, "a credential", "warning" if inside else "error")
    return None


def _secret(path: str, what: str, severity: str) -> Finding:
    fix = "use a build mount for it (RUN --mount=type=secret or type=bind), and change the secret: it is published"
    return finding("SECRET_IN_IMAGE", path, "{0} is left in {1}".format(what, path), fix=fix, severity=severity)


def variables(env: Mapping[str, str]) -> list[Finding]:
    """Find variables of the image whose name says secret and that have a value, and addresses with passwords."""
    found = []
    for name, value in sorted(env.items()):
        if (VARIABLE.search(name) and value) or re.search(r"://[^/\s:@]+:[^/\s@]+@", value):
            text = "the variable {0} holds what looks like a credential".format(name)
            found.append(finding("SECRET_IN_IMAGE", name, text, fix="give it at run time, never in the image"))
    return found


def certificates() -> list[Finding]:
    """Find authorities that a build host added: in the local folders, or in the bundle and not among the system's."""
    found = []
    for folder in HOST_BUNDLE:
        for place, _, files in os.walk(folder):
            found += [_authority(os.path.join(place, name)) for name in files if name.endswith((".crt", ".pem"))]
    extra = len(added_to_bundle())
    if extra:
        text = "the system's bundle holds {0} authorities that its package did not bring".format(extra)
        found.append(
            finding("SECRET_IN_IMAGE", "/etc/ssl/certs/ca-certificates.crt", text, fix="mount it while building")
        )
    return found


def _authority(path: str) -> Finding:
    text = "a certificate of the build host is left in {0}".format(path)
    return finding("SECRET_IN_IMAGE", path, text, fix="mount it in the steps that need it, copy it into none")


def added_to_bundle(
    bundle: str = "/etc/ssl/certs/ca-certificates.crt", packaged: str = "/usr/share/ca-certificates"
) -> list[bytes]:
    """List certificates of the bundle that the distribution's package does not have; empty where neither is there."""
    known = set()
    for folder, _, files in os.walk(packaged):
        for name in files:
            if name.endswith(".crt"):
                known |= set(_bodies(_head(os.path.join(folder, name))))
    if not known:
        return []
    return [body for body in _bodies(_head(bundle, 4 << 20)) if body not in known]


def _bodies(data: bytes) -> list[bytes]:
    found = re.findall(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", data, re.DOTALL)
    return [re.sub(rb"\s", b"", body) for body in found]


def _head(path: str, limit: int = AT_MOST) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(limit)
    except OSError:
        return b""
