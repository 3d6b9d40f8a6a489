"""The webhook's certificates: a CA of our own and a serving certificate under it. Pure in time.

The CA outlives many serving certificates, so that the bundle in the webhook configuration seldom
changes; both are renewed when two thirds of their life are over.
"""

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["CertificateBundle", "bundle_from_secret", "issue", "needs_renewal", "secret_data"]

CA_LIFE = timedelta(days=3650)
SERVING_LIFE = timedelta(days=90)
CLOCK_SKEW = timedelta(minutes=5)
RENEW_AFTER_FRACTION = 2 / 3


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """PEM texts. `previous_ca` stays in the bundle that clients trust while a CA is replaced."""

    ca_certificate: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes
    previous_ca: bytes = b""

    @property
    def trusted(self) -> bytes:
        """What goes into `caBundle`: the CA, and the one before it until that has expired."""
        return self.ca_certificate + self.previous_ca

    @property
    def expires_at(self) -> datetime:
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    def __repr__(self) -> str:
        return f"CertificateBundle(expires_at={self.expires_at.isoformat()})"


def issue(
    names: tuple[str, ...], *, now: datetime, previous: CertificateBundle | None = None
) -> CertificateBundle:
    """Issue a serving certificate for DNS names, under the previous CA while that is young.

    Args:
        names: DNS names of the Service, the first is the subject.
        now: aware time; certificates start a little earlier, for clocks that differ.
        previous: what stands now; a damaged or old CA is replaced and kept as `previous_ca`.
    """
    if previous is not None and not _aged(previous.ca_certificate, now):
        ca_pem, ca_key_pem, old = previous.ca_certificate, previous.ca_key, previous.previous_ca
        if old and x509.load_pem_x509_certificate(old).not_valid_after_utc <= now:
            old = b""
    else:
        ca_pem, ca_key_pem = _new_ca(now)
        old = b"" if previous is None else previous.ca_certificate
    certificate, key = _new_serving(names, ca_pem=ca_pem, ca_key_pem=ca_key_pem, now=now)
    return CertificateBundle(
        ca_certificate=ca_pem, ca_key=ca_key_pem, certificate=certificate, key=key, previous_ca=old
    )


def needs_renewal(bundle: CertificateBundle, names: tuple[str, ...], now: datetime) -> bool:
    """True when either certificate is past two thirds of its life or the names differ."""
    if _aged(bundle.certificate, now) or _aged(bundle.ca_certificate, now):
        return True
    certificate = x509.load_pem_x509_certificate(bundle.certificate)
    alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return set(alternative.value.get_values_for_type(x509.DNSName)) != set(names)


def secret_data(bundle: CertificateBundle) -> dict[str, str]:
    """The bundle as `data` of a Secret of type kubernetes.io/tls."""
    parts = {
        "tls.crt": bundle.certificate,
        "tls.key": bundle.key,
        "ca.crt": bundle.ca_certificate,
        "ca.key": bundle.ca_key,
        "previous-ca.crt": bundle.previous_ca,
    }
    return {name: base64.b64encode(pem).decode() for name, pem in parts.items()}


def bundle_from_secret(data: dict[str, str]) -> CertificateBundle | None:
    """The bundle of a Secret; None when something is missing, damaged or does not fit together."""
    try:
        bundle = CertificateBundle(
            ca_certificate=base64.b64decode(data["ca.crt"], validate=True),
            ca_key=base64.b64decode(data["ca.key"], validate=True),
            certificate=base64.b64decode(data["tls.crt"], validate=True),
            key=base64.b64decode(data["tls.key"], validate=True),
            previous_ca=base64.b64decode(data.get("previous-ca.crt", ""), validate=True),
        )
        ca = x509.load_pem_x509_certificate(bundle.ca_certificate)
        leaf = x509.load_pem_x509_certificate(bundle.certificate)
        leaf.verify_directly_issued_by(ca)
        if _public(leaf) != _public_of_key(bundle.key) or _public(ca) != _public_of_key(
            bundle.ca_key
        ):
            return None
        if bundle.previous_ca:
            x509.load_pem_x509_certificate(bundle.previous_ca)
    except Exception:  # whatever is wrong with it, a new one is issued
        return None
    return bundle


def _aged(pem: bytes, now: datetime) -> bool:
    certificate = x509.load_pem_x509_certificate(pem)
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= start + (end - start) * RENEW_AFTER_FRACTION or now < start


def _new_ca(now: datetime) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slimscale-webhook-ca")])
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        _builder(name, issuer=name, public=key.public_key(), now=now, life=CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate), _key_pem(key)


def _new_serving(
    names: tuple[str, ...], *, ca_pem: bytes, ca_key_pem: bytes, now: datetime
) -> tuple[bytes, bytes]:
    ca = x509.load_pem_x509_certificate(ca_pem)
    ca_key = serialization.load_pem_private_key(ca_key_pem, password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA's key is not an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    # a common name holds at most 64 characters; clients look at the alternative names anyway
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    certificate = (
        _builder(subject, issuer=ca.subject, public=key.public_key(), now=now, life=SERVING_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return _pem(certificate), _key_pem(key)


def _builder(
    subject: x509.Name,
    *,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - CLOCK_SKEW)
        .not_valid_after(now.astimezone(UTC) + life)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _public_of_key(pem: bytes) -> bytes:
    return (
        serialization.load_pem_private_key(pem, password=None)
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
