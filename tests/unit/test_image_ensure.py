"""From an environment to its image: what is built, what is up to date, and what a failure leaves behind."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from fake_engine import FakeEngine
from package_folders import MemoryIndex
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.port import BuildRequest, Image
from envbuilder.environment import Environment
from envbuilder.errors import BuildFailedError, InputError, UsageError
from envbuilder.image import context, lockfile, names
from envbuilder.image.build import BuildOptions, Built, build_logged, ensure, is_moved, stored_build
from envbuilder.image.context import build_files, ensure_lock, ensure_packages, stale, standalone, unused, write_context
from envbuilder.image.host_settings import REPOSITORY
from envbuilder.support.console import Step
from envbuilder.validation.validate import ValidationRequest
from envbuilder.verdict import EngineRef
from envbuilder.workspace import Workspace, content_key, folder_contents, write_atomically

ROOT = Path(__file__).parents[2]
BASE = "envbuilder/base:debian-bookworm"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Make a workspace with the committed context of a vetted environment, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Workspace(tmp_path / "work")
    copied(vetted(), made)
    return made


def copied(environment: Environment, workspace: Workspace) -> None:
    for name, content in build_files(environment.id, Workspace(ROOT)).items():
        write_atomically(workspace.images / name, content)


def vetted() -> Environment:
    (environment,) = choose("tensorflow", ("tf2.20.0-py311-cpu-bookworm",), Workspace(ROOT), load()).environments
    return environment


def made(workspace: Workspace, engine: FakeEngine, options: BuildOptions | None = None) -> Built:
    return ensure(vetted(), load(), workspace, engine, lambda _: None, options or BuildOptions())


def test_environment_is_built_on_its_base(workspace: Workspace) -> None:
    engine = FakeEngine().with_base()
    steps: list[Step] = []
    copied(runtime(), workspace)
    before = build_files(vetted().id, workspace)
    built = ensure(vetted(), load(), workspace, engine, steps.append)
    (request,) = engine.builds
    base = engine.image(BASE)
    assert request.context == before
    assert not [name for name in before if name.startswith(runtime().id)]
    assert request.build_args == {"BASE": BASE}
    assert request.labels == {names.BASE_NAME_LABEL: BASE, names.BASE_DIGEST_LABEL: base.id}
    assert (built.fresh, built.environment) == (True, vetted())
    assert built.lock == before[f"{vetted().id}/{lockfile.LOCK}"].decode()
    assert built.record.key == content_key({**before, "base": base.id.encode()})
    assert (built.record.base, built.record.base_id, built.record.base_origin) == (BASE, base.id, "bootstrapped")
    assert built.record.engine == EngineRef(name="fake", version="1", builder="fake")
    assert built.record.builder == "fake 1 fake"
    assert engine.image(f"envbuilder/tensorflow:{vetted().id}").id == built.record.image
    assert build_files(vetted().id, workspace) == before
    assert "✓ FROM ${BASE} AS base" in workspace.build_log(vetted().id).read_text()
    assert [step.name for step in steps if step.kind == "log"] == ["lock", "base"]


def test_build_cache_is_read_from_a_registry_and_stored(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    cold, options = FakeEngine().with_base(), BuildOptions(cache="registry.example.org/team/tensorflow")
    cache = f"registry.example.org/team/tensorflow:cache-{vetted().id}"
    built = made(workspace, cold, options)
    assert "warning: no build cache: the engine could not pull" in capsys.readouterr().err
    assert [(one.tag, "BUILDKIT_INLINE_CACHE" in one.build_args) for one in cold.builds] == [
        (built.record.reference, False),
        (cache, True),
    ]
    assert (next(iter(cold.registry)), cold.image(cache)) == (cache, None)
    made(workspace, cold, options)  # up to date: nothing is pulled or pushed
    assert len(cold.builds) == 2
    other = FakeEngine().with_base()
    other.registry = cold.registry
    made(workspace, other, options)
    assert [one.cache_from for one in other.builds] == [(cache,)] * 2
    assert "no build cache" not in capsys.readouterr().err


@rows
def test_labels_name_the_commit_of_the_build_files(workspace: Workspace, remote: str, source: str | None) -> None:
    day = "2026-11-20T08:00:00+00:00"

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        environ = {**os.environ, "GIT_AUTHOR_DATE": day, "GIT_COMMITTER_DATE": day}
        return subprocess.run(
            ["git", *who, *words], cwd=workspace.root, env=environ, check=True, capture_output=True, text=True
        ).stdout.strip()

    def labels() -> dict[str, str]:
        engine = FakeEngine().with_base()
        made(workspace, engine, BuildOptions(no_cache=True))
        found = dict(engine.builds[-1].labels)
        return {name: found[name] for name in found.keys() - {names.BASE_NAME_LABEL, names.BASE_DIGEST_LABEL}}

    made(workspace, FakeEngine().with_base())
    assert labels() == {}
    git("init", "-q")
    git("remote", "add", "origin", remote)
    git("add", "images")
    git("commit", "-qm", "one")
    expected = {names.REVISION_LABEL: git("rev-parse", "HEAD"), names.CREATED_LABEL: day}
    expected |= {names.SOURCE_LABEL: source} if source else {}
    assert labels() == expected
    (workspace.root / "other").write_text("x")
    git("add", "other")
    git("commit", "-qm", "two")
    assert labels() == expected  # the build's files are those of the first commit
    lock = workspace.context(vetted().id) / lockfile.LOCK
    lock.write_text(f"{lock.read_text()}\n")
    assert labels() == {}


def test_repository_names_the_image_which_is_built(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine().with_base()
    first = made(workspace, engine)
    monkeypatch.setenv(REPOSITORY, "team/tensorflow")
    second = made(workspace, engine)
    assert (first.record.reference, second.record.reference) == (
        f"envbuilder/tensorflow:{vetted().id}",
        f"team/tensorflow:{vetted().id}",
    )
    assert (second.fresh, made(workspace, engine).fresh) == (True, False)
    tagged = msgspec.structs.replace(vetted(), tag="team-2.20")
    third = ensure(tagged, load(), workspace, engine, lambda _: None)
    assert (third.record.reference, third.record.key) == ("team/tensorflow:team-2.20", first.record.key)


def test_tag_that_was_moved_to_another_image_is_set_again(workspace: Workspace) -> None:
    engine = FakeEngine().with_base()
    record = made(workspace, engine).record
    engine.tag(record.image, "another:name")
    engine.tag(BASE, record.reference)
    assert is_moved(record, engine)
    assert (made(workspace, engine).fresh, is_moved(record, engine)) == (False, False)


def test_record_of_a_known_image_is_in_no_build_and_stays(workspace: Workspace) -> None:
    before = made(workspace, FakeEngine().with_base())
    write_atomically(workspace.known_image(vetted().id), b"a record")
    after = made(workspace, FakeEngine().with_base(), BuildOptions(no_cache=True))
    assert (after.record.key, after.record.context) == (before.record.key, before.record.context)
    assert (before.known, after.known) == (b"", b"a record")
    assert stale(vetted(), workspace) == ()


def test_existing_image_is_not_built_again(workspace: Workspace) -> None:
    engine = FakeEngine().with_base()
    first = made(workspace, engine)
    second = made(workspace, engine)
    assert (second.record, second.lock, second.fresh) == (first.record, first.lock, False)
    assert len(engine.builds) == 1
    assert stored_build(vetted(), workspace) == second


def test_lost_or_unwanted_image_and_a_damaged_record_are_built_again(workspace: Workspace) -> None:
    engine = FakeEngine().with_base()
    engine.remove(made(workspace, engine).record.reference)
    assert made(workspace, engine).fresh
    workspace.image_record(vetted().id).write_text("{")
    assert stored_build(vetted(), workspace) is None
    assert made(workspace, engine).fresh
    assert made(workspace, engine, BuildOptions(no_cache=True)).fresh
    assert [request.no_cache for request in engine.builds] == [False] * 3 + [True]
    assert made(workspace, FakeEngine().with_base(b"renewed")).fresh


def test_record_of_an_earlier_version_still_stands(workspace: Workspace) -> None:
    engine = FakeEngine().with_base()
    made(workspace, engine)
    path = workspace.image_record(vetted().id)
    older = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("engine", "checksum")}
    path.write_text(json.dumps(older))
    again = made(workspace, engine)
    assert (again.fresh, again.record.engine, again.record.builder) == (False, None, "fake 1 fake")


def test_failed_build_leaves_its_log_and_no_record(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine().with_base()
    made(workspace, engine)
    broken = {"Dockerfile.j2": f"FROM {BASE}\nRUN exit 7\n", "tools.lock": "uv==1\n"}
    monkeypatch.setattr("envbuilder.image.context.templates", lambda: broken)
    with pytest.raises(BuildFailedError, match="exit code: 7"):
        made(workspace, engine)
    assert "✗ RUN exit 7: exit code: 7" in workspace.build_log(vetted().id).read_text()
    assert stored_build(vetted(), workspace) is None


def test_lock_fits_however_a_requirement_spells_its_version(workspace: Workspace) -> None:
    environment = msgspec.structs.replace(vetted(), requirements=("NumPy==2.0",), cuda_wheels=())
    path = workspace.context(environment.id) / lockfile.LOCK
    write_atomically(path, b"numpy==2.0.0 \\\n    --hash=sha256:" + b"0" * 64 + b"\n")
    assert ensure_lock(environment, load(), workspace).startswith("numpy==2.0.0")
    other = msgspec.structs.replace(environment, requirements=("numpy==2.0.1",))
    with pytest.raises(InputError, match=r"pins numpy at 2\.0\.0, the environment asks for 2\.0\.1"):
        ensure_lock(other, load(), workspace)


def test_lock_that_is_given_is_the_one_that_is_built(workspace: Workspace) -> None:
    environment = msgspec.structs.replace(vetted(), id="another")
    text = (workspace.context(vetted().id) / lockfile.LOCK).read_text()
    built = ensure(environment, load(), workspace, FakeEngine().with_base(), lambda _: None, BuildOptions(lock=text))
    assert (built.lock, built.record.environment) == (text, "another")
    assert lockfile.of_context(workspace.context("another")) == text
    assert (workspace.context("another") / "Dockerfile").is_file()


def test_context_taken_as_stored_is_not_written(workspace: Workspace) -> None:
    folder = workspace.context(vetted().id)
    write_atomically(folder / "Dockerfile", f"FROM {BASE}\n# as it was committed\n".encode())
    before = folder_contents(folder)
    options = BuildOptions(as_stored=True)
    engine = FakeEngine().with_base()
    assert ensure(vetted(), load(), workspace, engine, lambda _: None, options).fresh
    assert folder_contents(folder) == before
    (folder / "Dockerfile").unlink()
    with pytest.raises(UsageError, match="has no Dockerfile"):
        ensure(vetted(), load(), workspace, engine, lambda _: None, options)


def test_installer_of_a_registry_base_has_a_base_of_its_own(workspace: Workspace) -> None:
    """A build on an image of others gets a second base, on which the installer runs, whatever Python the first has."""
    environment = choose("classic", ("tensorflow=2.4.4",), Workspace(ROOT), load()).environments[0]
    copied(environment, workspace)
    engine = FakeEngine().with_base()
    other = FakeEngine().add(environment.os, b"cuda")
    pinned = "nvidia/cuda@sha256:" + "c" * 64
    engine.registry[environment.os] = engine.registry[pinned] = replace(other, digests=(pinned,))
    engine.registry[pinned] = replace(engine.registry[pinned], tags=(pinned,))
    ensure(environment, load(), workspace, engine, lambda _: None)
    (request,) = engine.builds
    assert request.build_args == {"BASE": pinned, "TOOLS": BASE}


def runtime() -> Environment:
    return msgspec.structs.replace(vetted(), id=f"{vetted().id}-runtime", variant="runtime")


def test_smaller_form_has_the_pins_of_the_larger(workspace: Workspace) -> None:
    smaller = runtime()
    kept = workspace.context(vetted().id) / lockfile.LOCK
    whole = kept.read_text()
    made = ensure_lock(smaller, load(), workspace)
    assert {one.name for one in lockfile.parse(whole)} - {one.name for one in lockfile.parse(made)} == {"pip", "uv"}
    assert lockfile.of_context(workspace.context(smaller.id)) == made
    kept.unlink()
    assert ensure_lock(vetted(), load(), workspace) == whole


def test_notebook_keeps_the_pins_of_its_sibling(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has more packages, so it is resolved, with the pins of the sibling."""
    (notebook,) = choose("notebook", ("flavor=cpu",), Workspace(ROOT), load()).environments
    assert (notebook.requirements[1:], notebook.added.system_packages) == (("jupyterlab>=4",), ("git",))
    asked: dict[str, str] = {}

    def resolve(environment: Environment, _glibc: str, *, keep: str, refresh: bool) -> str:
        asked[environment.id] = keep
        return keep

    monkeypatch.setattr(lockfile, "resolve", resolve)
    monkeypatch.setattr(context, "ensure_system_locks", lambda *_words, **_more: None)
    ensure_lock(notebook, load(), workspace)
    assert asked == {notebook.id: (workspace.context(vetted().id) / lockfile.LOCK).read_text()}


@rows
def test_installer_fits_the_python(python: str, pins: list[str]) -> None:
    found = lockfile.parse(lockfile.installer(python))
    assert [f"{one.name}=={one.version}" for one in found] == pins
    assert all(len(one.hashes) == 1 for one in found)
    of_stages = {one.name: one for one in lockfile.parse((ROOT / "templates" / "tools.lock").read_text())}
    assert all(one.version == of_stages["uv"].version for one in found if one.name == "uv")


def test_larger_form_of_other_pins_gives_none(workspace: Workspace) -> None:
    kept = workspace.context(vetted().id) / lockfile.LOCK
    kept.write_text(kept.read_text().replace("tensorflow-cpu==2.20.0", "tensorflow-cpu==2.19.0"))
    engine = FakeEngine().with_base()
    for one in (runtime(), vetted()):
        with pytest.raises(InputError, match=r"pins tensorflow-cpu at 2\.19\.0") as caught:
            ensure(one, load(), workspace, engine, lambda _: None)
        assert str(kept) in str(caught.value)
    assert engine.builds == []
    assert not workspace.context(runtime().id).exists()


def test_runtime_variant_is_built_with_the_stored_lists(workspace: Workspace) -> None:
    copied(runtime(), workspace)
    built = ensure(runtime(), load(), workspace, FakeEngine().with_base(), lambda _: None)
    assert {one.reason for one in built.record.omitted} == {"compilers", "symbols", "tests", "unimported", "unnamed"}
    assert sum(one.size for one in built.record.omitted) > 500_000_000
    assert ValidationRequest().of(built).removed == built.removed
    assert stored_build(runtime(), workspace) == replace(built, fresh=False)


def test_step_without_a_folder_makes_the_files_stale(workspace: Workspace) -> None:
    lock = (workspace.context(vetted().id) / lockfile.LOCK).read_text()
    folder = next(workspace.images.glob("shared/packages/tensorflow-*"))
    shutil.rmtree(folder)
    with pytest.raises(UsageError, match=folder.name) as caught:
        write_context(vetted(), lock, workspace)
    assert "envbuilder lock" in (caught.value.hint or "")
    assert stale(vetted(), workspace)


def test_folder_that_no_build_uses_is_named(workspace: Workspace) -> None:
    other = workspace.images / "shared/packages/other-1.0"
    write_atomically(other / lockfile.LOCK, b"other==1.0\n")
    write_atomically(workspace.images / "gone/Dockerfile", b"FROM x\n")
    assert set(unused(workspace, {vetted().id})) == {other, workspace.images / "gone"}


def test_standalone_folder_has_all_that_its_dockerfile_names(workspace: Workspace, tmp_path: Path) -> None:
    lock = (workspace.context(vetted().id) / lockfile.LOCK).read_text()
    standalone(vetted(), lock, workspace, tmp_path / "alone")
    files = folder_contents(tmp_path / "alone")
    assert files.pop("Dockerfile") == files[f"{vetted().id}/Dockerfile"]
    assert files == build_files(vetted().id, workspace)
    with pytest.raises(UsageError, match="not empty"):
        standalone(vetted(), lock, workspace, tmp_path / "alone")


def test_workspace_below_another_takes_its_known_folders(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = (workspace.context(vetted().id) / lockfile.LOCK).read_text() + f"rich==1.0 --hash=sha256:{'0' * 64}\n"
    below, opened = workspace.for_upgrades, list[MemoryIndex]()

    def index() -> MemoryIndex:
        opened.append(MemoryIndex())
        return opened[-1]

    monkeypatch.setattr(context, "open_index", index)
    one = msgspec.structs.replace(vetted(), requirements=(*vetted().requirements, "rich"))
    ensure_packages(one, lock, load(), below)
    ensure_packages(one, lock, load(), below)
    assert len(opened) == 1
    assert (next(below.images.glob("shared/packages/tensorflow-*")) / "removed.tsv").is_file()
    (added,) = below.images.glob("shared/packages/added-*")
    assert "rich==1.0" in (added / lockfile.LOCK).read_text()


SAID = "Looking in indexes: https://user:s3cret@index.example/simple"


class Talkative(FakeEngine):
    """An engine whose steps print an index's address, as an installer of old would."""

    def build(self, request: BuildRequest, on_step: Callable[[Step], None]) -> Image:
        on_step(Step("log", "RUN pip install x", SAID))
        on_step(Step("failed", f"RUN pip install --index-url {SAID.rpartition(' ')[2]} x", error=SAID))
        return self.add(request.tag)


def test_build_s_log_holds_no_credentials(tmp_path: Path) -> None:
    heard: list[Step] = []
    log = tmp_path / "build.log"
    build_logged(BuildRequest(context=tmp_path, tag="a:b"), Talkative(), log, heard.append)
    told = log.read_text() + "".join(f"{step.name} {step.text} {step.error}\n" for step in heard)
    assert "s3cret" not in told
    assert told.count("https://****@index.example/simple") == 5
    assert "RUN pip install --index-url h…://****@" in told, "the display cuts an instruction after the login is gone"


class Remembering(FakeEngine):
    def build(self, request: BuildRequest, _: Callable[[Step], None]) -> Image:
        self.builds.append(request)
        return self.add(request.tag)


@rows
def test_installer_s_stage_is_built_first(tmp_path: Path, text: str, no_cache: bool, stages: list[str]) -> None:  # noqa: FBT001 - a row
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "Dockerfile").write_text(text)
    engine = Remembering()
    request = BuildRequest(context=tmp_path / "context", tag="a:b", no_cache=no_cache)
    build_logged(request, engine, tmp_path / "log", lambda _: None)
    assert [one.target for one in engine.builds] == stages
    assert engine.builds[-1].tag == "a:b"
    assert engine.image("a:b-tools") is None
