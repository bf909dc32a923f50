"""Sign and verify without keys: Sigstore's short-lived certificate for an identity, and its public log."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from envbuilder.attest.envelope import BUNDLE, Opened, Opener, Rejected, SignedBy
from envbuilder.errors import InfrastructureError, PublishError


@dataclass(frozen=True)
class SigstoreSealer:
    """`Sealer` with the identity of a CI job (its OpenID Connect token)."""

    media_type: str = BUNDLE
    openers: tuple[Opener, ...] = ()

    def seal(self, payload: bytes) -> bytes:
        """Sign a statement and have it logged. Raises PublishError without an identity."""
        sigstore = _sigstore()
        try:
            token = sigstore.oidc.detect_credential()
            if not token:
                raise PublishError(
                    "this job has no identity to sign with",
                    hint="in CI allow OpenID Connect tokens (GitHub: `permissions: id-token: write`), or use --key",
                )
            context = sigstore.sign.SigningContext.from_trust_config(sigstore.models.ClientTrustConfig.production())
            with context.signer(sigstore.oidc.IdentityToken(token)) as signer:
                bundle = signer.sign_dsse(sigstore.dsse.Statement(payload))
        except (sigstore.errors.Error, OSError) as error:
            raise InfrastructureError(
                f"Sigstore did not sign: {error}", hint="is it reachable? or use --key"
            ) from error
        return str(bundle.to_json()).encode()


@dataclass(frozen=True)
class SigstoreOpener:
    """`Opener` that trusts one identity (a workflow's address, an e-mail address) of one issuer."""

    identity: str
    issuer: str
    media_type: str = BUNDLE

    @property
    def names(self) -> tuple[str, ...]:
        return (self.identity,)

    def open(self, content: bytes) -> Opened | Rejected:
        """Open a bundle that this identity signed and that is in the log."""
        sigstore = _sigstore()
        try:
            bundle = sigstore.models.Bundle.from_json(content)
        except Exception as error:
            raise PublishError(f"not a Sigstore bundle: {error}") from error
        policy = sigstore.verify.policy.Identity(identity=self.identity, issuer=self.issuer)
        try:
            kind, payload = sigstore.verify.Verifier.production().verify_dsse(bundle, policy)
        except sigstore.errors.VerificationError as error:
            return Rejected(unknown_signer=True, message=f"not signed by {self.identity}: {error}")
        except (sigstore.errors.Error, OSError) as error:
            raise InfrastructureError(f"Sigstore's trust root cannot be fetched: {error}") from error
        except Exception as error:
            raise PublishError(f"a Sigstore bundle that cannot be checked: {error}") from error
        return Opened(payload_type=kind, payload=payload, signed_by=(SignedBy(name=self.identity),))


def _sigstore() -> Any:  # noqa: ANN401 - an optional package's modules
    """Import Sigstore's client with the modules that are used. It is optional and heavy."""
    try:
        for name in ("dsse", "errors", "models", "oidc", "sign", "verify.policy"):
            import_module(f"sigstore.{name}")
    except ImportError as error:
        raise PublishError(
            "keyless signing needs the package sigstore", hint="pip install 'tf-envbuilder[sigstore]', or use --key"
        ) from error
    return import_module("sigstore")
