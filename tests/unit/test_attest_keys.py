"""Signing keys: who may read them, and that none is ever lost."""

from __future__ import annotations

import stat

import pytest

from envbuilder.attest.keys import PRIVATE, PUBLIC, create, load_private, load_public_keys
from envbuilder.errors import EnvbuilderError, PublishError, UsageError


def test_a_key_pair_signs_and_verifies(tmp_path) -> None:
    create(tmp_path)
    secret, public = load_private(tmp_path / PRIVATE), load_public_keys(tmp_path / PUBLIC)[0]
    assert secret.keyid == public.keyid
    assert public.verify(b"text", secret.sign(b"text"))
    assert not public.verify(b"other", secret.sign(b"text"))
    assert not public.verify(b"text", b"")


def test_only_the_owner_reads_the_private_key(tmp_path) -> None:
    create(tmp_path)
    assert stat.S_IMODE((tmp_path / PRIVATE).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [PRIVATE, PUBLIC])
def test_no_key_is_ever_overwritten(tmp_path, name) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="never overwritten"):
        create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_protected_key_needs_its_password(tmp_path) -> None:
    right, other = "correct", "other"
    made = create(tmp_path, password=right)
    assert load_private(tmp_path / PRIVATE, password=right).keyid == made.keyid
    for wrong in (None, other):
        with pytest.raises(PublishError, match="ENVBUILDER_KEY_PASSWORD"):
            load_private(tmp_path / PRIVATE, password=wrong)


def test_the_wrong_half_is_named(tmp_path) -> None:
    create(tmp_path)
    with pytest.raises(PublishError, match=PUBLIC):
        load_public_keys(tmp_path / PRIVATE)


@pytest.mark.parametrize("text", ["", "hello", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_what_is_no_key_is_refused(tmp_path, text) -> None:
    (tmp_path / "file").write_text(text)
    for load in (load_private, load_public_keys):
        with pytest.raises(EnvbuilderError):
            load(tmp_path / "file")
    with pytest.raises(UsageError):
        load_public_keys(tmp_path / "absent")
