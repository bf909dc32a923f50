"""Entry point, user and readable code of an image."""

from __future__ import annotations

import pytest
from made_images import SITE, context_of, image_of

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code
from envbuilder.validation.image_settings import configuration

PASSWD = {"etc/passwd": b"root:x:0:0::/root:/bin/sh\nenvbuilder:x:1000:1000::/home/e:/bin/sh\n"}


def folder(path: str, mode: int = 0o755, uid: int = 0) -> dict[str, LayerFile]:
    return {path: LayerFile(path, "folder", mode=mode, uid=uid)}


def module(path: str, mode: int = 0o644, uid: int = 0) -> dict[str, LayerFile]:
    return {path: LayerFile(path, "file", mode=mode, uid=uid, size=1, pieces=lambda: iter([b"x"]))}


def closed(user: str, *more: dict[str, LayerFile]) -> list[str]:
    names = ("opt", "opt/venv", SITE, f"{SITE}/tensorflow")
    layer = {**PASSWD}
    for part in (*(folder(name) for name in names), module(f"{SITE}/tensorflow/__init__.py"), *more):
        layer |= part  # type: ignore[arg-type]
    found = configuration(context_of(image_of(layer), user=user)).findings
    return [one.found for one in found if one.code is Code.USER_START]


def test_readable_packages_have_no_finding() -> None:
    own = {**module(f"{SITE}/a.py", 0o600, 1000), **module(f"{SITE}/b.py", 0o640), **folder(f"{SITE}/c", 0o700, 1000)}
    assert closed("envbuilder", own) == []
    assert closed("1000:1000", own) == []
    assert closed("", module(f"{SITE}/a.py", 0o600, 7)) == []
    assert closed("nobody-knows", module(f"{SITE}/a.py", 0o600)) == []


@pytest.mark.parametrize(
    ("shut", "named"),
    [
        (module(f"{SITE}/a.so", 0o600), f"/{SITE}/a.so"),
        (folder(f"{SITE}/tensorflow", 0o700), f"/{SITE}/tensorflow"),
        (folder("opt/venv", 0o700), "/opt/venv"),
        (folder(SITE, 0o744), f"/{SITE}"),
    ],
)
def test_outermost_unreadable_path_is_reported_once(shut: dict[str, LayerFile], named: str) -> None:
    assert closed("envbuilder", shut) == [named]


def test_unreadable_notes_of_an_installer_do_not_matter() -> None:
    assert closed("envbuilder", module(f"{SITE}/notes.txt", 0o600)) == []
