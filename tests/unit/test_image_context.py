"""What a matrix puts on top of TensorFlow: all of it in the context, checked and quoted, and each change seen."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from jinja2 import meta
from package_folders import store_packages
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.environment import Environment
from envbuilder.errors import InputError, UnsatisfiableError, UsageError
from envbuilder.image import render
from envbuilder.image.context import check_templates, stale, templates, write_context
from envbuilder.image.system_lock import SYSTEM_LOCK
from envbuilder.workspace import Workspace

CATALOG = load()
LOCK = "tensorflow-cpu==2.20.0 --hash=sha256:" + "0" * 64 + "\n"
TABLES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
WHOLE: dict[str, object] = TABLES["whole"]


def chosen(root: Path, more: Mapping[str, object], row: Mapping[str, object] | None = None) -> Environment:
    include = [{"tensorflow": "2.20.0", "os": "debian-bookworm", **(row or {})}]
    (root / "matrix.yaml").write_text(json.dumps({"name": "team", "include": include, **more}))
    (environment,) = choose(str(root / "matrix.yaml"), (), Workspace(root), CATALOG).environments
    return environment


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in (("team.txt", "# ours\npandas>=2.2,<3  # tables\n\nrich==13.9.4\n"), ("conf/app.conf", "a=1\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/my.Dockerfile.j2").write_text(TABLES["template"])
    return tmp_path


def pinned(environment: Environment, root: Path) -> Path:
    """Pin what an environment asks of its system, as `lock` would, and return the lock's path."""
    path = Workspace(root).context(environment.id) / SYSTEM_LOCK
    asked = [text.partition("=") for text in environment.pinned_packages]
    lines = [f"{'0' * 64}  {name}_{version.replace(':', '%3a') or '12.2'}_amd64.deb\n" for name, _, version in asked]
    if lines:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(sorted(lines)))
    return path


def written(environment: Environment, root: Path) -> dict[str, str]:
    pinned(environment, root)
    store_packages(environment, LOCK, Workspace(root))
    write_context(environment, LOCK, Workspace(root))
    folder = Workspace(root).context(environment.id)
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_everything_is_in_the_context(root: Path) -> None:
    environment = chosen(root, WHOLE)
    files = written(environment, root)
    lines = files["Dockerfile"].splitlines()
    assert environment.requirements[1:] == ("scikit-learn==1.6.1", "pandas>=2.2,<3", "rich==13.9.4")
    assert "sh /run/tools/install-apt git=1:2.39.5-0+deb12u2 libgomp1=12.2\n" in files["Dockerfile"]
    assert r'ENV GREETING="say \"hello\", \$HOME\\n is not read"' in lines
    assert r'LABEL com.example.team="vision; \$(id)"' in lines
    assert "USER worker" in lines
    assert any("sh /run/tools/finish worker && find /opt/venv -type d -exec chown worker:0 " in line for line in lines)
    assert "WORKDIR /srv/app" in lines
    assert r'ENTRYPOINT ["/usr/bin/env","--","a b","\""]' in lines
    assert any(line.endswith('["sh","/run/tools/add-file","conf/app.conf","/etc/app.conf"]') for line in lines)
    assert files["files/conf/app.conf"] == "a=1\n"
    assert "RUN echo of ours" in lines
    assert "# for 2.20.0" in lines
    assert json.loads(files["environment.json"])["additions"]["user"] == "worker"
    assert lines.index("RUN echo of ours") < lines.index("USER worker") < lines.index("# for 2.20.0")


@pytest.mark.parametrize("change", TABLES["changes"], ids=lambda change: next(iter(change)))
def test_changed_field_is_another_environment(change: dict[str, object], root: Path) -> None:
    merged = {key: value for key, value in {**WHOLE, **change}.items() if value is not None}
    assert chosen(root, merged).id != chosen(root, WHOLE).id


@pytest.mark.parametrize("name", ["conf/app.conf", "ours/my.Dockerfile.j2"])
def test_changed_file_makes_the_context_stale(name: str, root: Path) -> None:
    environment = chosen(root, WHOLE)
    written(environment, root)
    assert stale(environment, Workspace(root)) == ()
    text = (root / name).read_text()
    (root / name).write_text(text.replace("of ours", "of others").replace("a=1", "a=2"))
    assert stale(environment, Workspace(root))


def test_changed_lock_of_the_system_makes_the_context_stale(root: Path) -> None:
    environment = chosen(root, WHOLE)
    written(environment, root)
    path = pinned(environment, root)
    text = path.read_text()
    for other in (text.replace("12.2", "12.3"), text.splitlines(keepends=True)[0], None):
        path.unlink() if other is None else path.write_text(other)
        assert stale(environment, Workspace(root))
    pinned(environment, root)
    assert stale(environment, Workspace(root)) == ()


def test_nothing_is_written_before_the_system_s_packages_are_pinned(root: Path) -> None:
    environment = chosen(root, WHOLE)
    with pytest.raises(UsageError) as caught:
        write_context(environment, LOCK, Workspace(root))
    assert "envbuilder lock" in (caught.value.hint or "")


def test_row_adds_to_its_matrix_and_outranks_it(root: Path) -> None:
    row = {"env": {"GREETING": "row", "MORE": "1"}, "user": "rower", "system_packages": ["curl"], "packages": ["six"]}
    environment = chosen(root, WHOLE, row)
    assert environment.added.env == (("GREETING", "row"), ("MORE", "1"))
    assert environment.added.user == "rower"
    assert environment.added.system_packages == ("libgomp1", "git=1:2.39.5-0+deb12u2", "curl")
    assert environment.requirements[1] == "six"
    assert "-six-" in environment.id


def test_nothing_added_is_the_plain_environment(root: Path) -> None:
    environment = chosen(root, {})
    assert environment.id == "tf2.20.0-py311-cpu-bookworm"
    assert "additions" not in json.loads(written(environment, root)["environment.json"])


def test_numeric_user_keeps_the_account(root: Path) -> None:
    text = written(chosen(root, {"user": "1234:99"}), root)["Dockerfile"]
    assert "USER 1234:99\n" in text
    assert "sh /run/tools/finish envbuilder && find /opt/venv -type d -exec chown envbuilder:0 " in text


@pytest.mark.parametrize(
    "more", [{key: value} for key, values in TABLES["hostile"].items() for value in values], ids=repr
)
@pytest.mark.parametrize("place", ["matrix", "row"])
def test_hostile_value_is_refused_with_its_place(more: dict[str, object], place: str, root: Path) -> None:
    with pytest.raises(InputError) as caught:
        chosen(root, more if place == "matrix" else {}, more if place == "row" else None)
    (problem,) = caught.value.problems
    assert problem.line > 0
    assert problem.key.removeprefix("include[0].").startswith(next(iter(more)))


@pytest.mark.parametrize("line", ["-r other.txt", "-e .", "https://x/y.whl", "a @ b", "$(id)", "tensorflow==2.20.0"])
def test_line_that_is_no_requirement_is_refused_with_its_number(line: str, root: Path) -> None:
    (root / "team.txt").write_text(f"six\n\n{line}\n")
    with pytest.raises(InputError) as caught:
        chosen(root, {"requirements": "team.txt"})
    assert [one.line for one in caught.value.problems] == [3]


IN_BLOCK = "{% extends 'Dockerfile.j2' %}\n{% block as_user %}"


@rows
def test_template_that_cannot_be_rendered_is_the_user_s_mistake(text: str, line: int, says: str, root: Path) -> None:
    """What has a line is found before anything is locked, in every variant."""
    (root / "ours/my.Dockerfile.j2").write_text(text + ("{% endblock %}" if text.startswith(IN_BLOCK) else ""))
    environment = chosen(root, {"template": "ours/my.Dockerfile.j2"})
    check = check_templates if line else lambda _, __: written(environment, root)
    with pytest.raises(InputError, match=says) as caught:
        check((environment,), Workspace(root))
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("ours/my.Dockerfile.j2", line)


def test_template_can_use_values_and_names_of_its_parent(root: Path) -> None:
    text = "RUN {{ tools }} {% for one in steps %}{{ one.layer.folder }}{{ loop.index }}{% endfor %}{{ super() }}"
    path = root / "ours/my.Dockerfile.j2"
    path.write_text(f"{{% extends 'Dockerfile.j2' %}}\n{{% block as_root %}}{text}{{% endblock %}}\n")
    check_templates((chosen(root, {"template": "ours/my.Dockerfile.j2"}),), Workspace(root))


def test_names_that_a_template_may_use_are_those_that_it_gets(root: Path) -> None:
    """Each is rendered, so that a value that is gone is an error here."""
    parent = render._engine(tuple(templates().items())).parse(templates()["Dockerfile.j2"])
    names = sorted(meta.find_undeclared_variables(parent))
    assert {"environment", "added", "steps", "lock_digest"} <= set(names)
    path = root / "ours/my.Dockerfile.j2"
    uses = "".join(f"{{% set x = {name} %}}" for name in names)
    path.write_text(f"{{% extends 'Dockerfile.j2' %}}\n{{% block as_user %}}{uses}{{% endblock %}}\n")
    written(chosen(root, {"template": "ours/my.Dockerfile.j2"}), root)


def test_conflicting_packages_are_refused_before_a_build(root: Path) -> None:
    for more in ({"packages": ["numpy==1.21.0"]}, {"requirements": "team.txt"}):
        (root / "team.txt").write_text("numpy==1.21.0\n")
        with pytest.raises(UnsatisfiableError, match="needs NumPy"):
            chosen(root, more)
