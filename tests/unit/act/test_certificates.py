"""The webhook's certificates: what clients trust, when they are renewed, what is refused."""

import base64
from datetime import UTC, datetime, timedelta

from cryptography import x509

from slimscale.act.certificates import (
    SERVING_LIFE,
    bundle_from_secret,
    issue,
    needs_renewal,
    secret_data,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("slimscale-webhook.slimscale.svc", "slimscale-webhook.slimscale")


def test_the_serving_certificate_is_signed_by_the_ca_and_carries_the_names() -> None:
    bundle = issue(NAMES, now=NOW)
    leaf = x509.load_pem_x509_certificate(bundle.certificate)
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(bundle.ca_certificate))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == set(NAMES)


def test_a_bundle_survives_the_secret_and_a_restart() -> None:
    bundle = issue(NAMES, now=NOW)
    assert bundle_from_secret(secret_data(bundle)) == bundle
    assert not needs_renewal(bundle, NAMES, NOW + timedelta(days=1))


def test_renewal_comes_after_two_thirds_of_the_life_and_keeps_the_ca() -> None:
    bundle = issue(NAMES, now=NOW)
    later = NOW + SERVING_LIFE * 0.7
    assert not needs_renewal(bundle, NAMES, NOW + SERVING_LIFE * 0.6)
    assert needs_renewal(bundle, NAMES, later)
    renewed = issue(NAMES, now=later, previous=bundle)
    assert renewed.certificate != bundle.certificate
    assert renewed.trusted == bundle.trusted


def test_an_old_ca_stays_trusted_while_the_new_one_spreads() -> None:
    old = issue(NAMES, now=NOW)
    later = NOW + timedelta(days=3000)
    new = issue(NAMES, now=later, previous=old)
    assert new.ca_certificate != old.ca_certificate
    assert old.ca_certificate in new.trusted
    assert new.ca_certificate in new.trusted


def test_an_expired_previous_ca_is_dropped() -> None:
    old = issue(NAMES, now=NOW)
    middle = issue(NAMES, now=NOW + timedelta(days=3000), previous=old)
    last = issue(NAMES, now=NOW + timedelta(days=3700), previous=middle)
    assert old.ca_certificate not in last.trusted


def test_other_names_ask_for_a_renewal() -> None:
    assert needs_renewal(issue(NAMES, now=NOW), ("other.svc",), NOW)


def test_a_clock_far_in_the_past_asks_for_a_renewal() -> None:
    assert needs_renewal(issue(NAMES, now=NOW), NAMES, NOW - timedelta(days=30))


def test_a_damaged_or_mismatched_secret_is_no_bundle() -> None:
    one, two = secret_data(issue(NAMES, now=NOW)), secret_data(issue(NAMES, now=NOW))
    assert bundle_from_secret({}) is None
    assert bundle_from_secret({**one, "tls.key": two["tls.key"]}) is None
    assert bundle_from_secret({**one, "ca.crt": two["ca.crt"]}) is None
    assert bundle_from_secret({**one, "tls.crt": base64.b64encode(b"junk").decode()}) is None
    assert bundle_from_secret({**one, "tls.crt": "%%%"}) is None


def test_keys_are_not_shown_when_a_bundle_is_printed() -> None:
    bundle = issue(NAMES, now=NOW)
    assert "PRIVATE" not in repr(bundle)
