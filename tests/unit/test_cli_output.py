"""Tables are made from JSON only, no text of a document adds a line; answers leave no trace, errors are documents too.

The samples that need an engine or a registry are in `golden/documents.yaml`.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from click.testing import CliRunner
from command_line import WITH_JSON, WITHOUT, ran
from factories import failed_verdict, gpu_verdict, inconclusive_verdict, verdict
from msgspec.structs import replace
from table_rows import beside, rows

from envbuilder.catalog import store
from envbuilder.catalog.store import load
from envbuilder.cli import catalog_listing, root
from envbuilder.cli.output import as_json, flattened, wants_json, write_output
from envbuilder.cli.schema_command import DOCUMENTS, schema, schema_of
from envbuilder.compat import check_text
from envbuilder.compat.check import check as check_question
from envbuilder.compat.question import Question
from envbuilder.controls.control import list_text, listed_of, named
from envbuilder.controls.run import as_text as controls_as_text
from envbuilder.jobs import choose, clean, compatibility, doctor, explain, plan, run
from envbuilder.jobs.fleet import job as fleet_job
from envbuilder.jobs.fleet.run import as_text as fleet_text
from envbuilder.jobs.plan import PlanOptions
from envbuilder.publish import results, verification
from envbuilder.refresh import agreement, propose
from envbuilder.refresh.propose import RefreshDocument
from envbuilder.reproduce import document as reproduce_document
from envbuilder.reproduce import faults
from envbuilder.reproduce.analysis import analyse, with_command
from envbuilder.reproduce.document import NearestRun, ReproduceDocument, Run
from envbuilder.reproduce.report.reported import parse
from envbuilder.support.templates import rendered
from envbuilder.upgrade import bisect, text
from envbuilder.validation import validate_request

CATALOG = load()
CORPUS = Path(__file__).parents[1] / "corpus"
SAMPLES = yaml.safe_load((CORPUS.parent / "golden" / "documents.yaml").read_text())
KINDS = {schema_of(kind): kind for kind in DOCUMENTS}


def sample(name: str) -> Any:
    return msgspec.convert(SAMPLES[name], KINDS[SAMPLES[name]["schema"]])


@dataclass(frozen=True)
class Case:
    command: tuple[str, ...]
    document: Any
    as_text: Callable[[Any], str]


PLANNED = plan.plan_matrix(PlanOptions("tensorflow", ("tf2.20.0-py311-*",)), Path("/nonexistent"), CATALOG)
HOSTS = PlanOptions(driver="535.104.05", gpus=("H100",))
NEWEST = plan.newest_for(HOSTS, CATALOG)
REJECTED = plan.plan_matrix(PlanOptions("negative-controls"), Path("/nonexistent"), CATALOG)


def refusing(folder: Path) -> plan.PlanDocument:
    """Plan a matrix with an environment, a rejection and an exclusion, for two hosts."""
    matrix, fleet = folder / "matrix.yaml", folder / "fleet.yaml"
    matrix.write_text(
        "name: mixed\n"
        "include:\n"
        "  - {tensorflow: 2.20.0, flavor: gpu}\n"
        "  - {tensorflow: 2.20.0, flavor: cpu}\n"
        "  - {tensorflow: 2.4.1, python: '3.11', flavor: cpu}\n"
        "targets: {drivers: [535.104.05], gpus: [H100]}\n"
    )
    fleet.write_text("- {name: new, driver: 535.104.05, gpus: [H100]}\n- {name: old, driver: 450.80.02, gpus: [T4]}\n")
    return plan.plan_matrix(PlanOptions(str(matrix), (), fleet), folder, CATALOG)


def judged(**given: Any) -> Any:
    return check_question(Question(**given), CATALOG)


def predicted(name: str) -> ReproduceDocument:
    path = next(CORPUS.glob(f"{name}*.txt"))
    return with_command(analyse(path.read_text(), CATALOG).document)


def followed(name: str) -> ReproduceDocument:
    document = predicted(name)
    assert document.nearest is not None
    proof = NearestRun(proven=None, needs="a GPU")
    return replace(
        document,
        run=Run(reproduced=False, needs="a GPU", verdict="FAILED", simulated=True),
        nearest=replace(document.nearest, proof=proof),
    )


FLEET = tuple(("fleet", child) for child in ("plan", "status", "run", "export"))


def cases(folder: Path) -> Iterator[Case]:
    yield Case(("run",), sample("run"), run.run_text)
    yield Case(("build",), sample("run"), run.run_text)
    yield Case(("plan",), PLANNED, plan.plan_text)
    yield Case(("plan",), refusing(folder), plan.plan_text)
    yield Case(("plan",), REJECTED, plan.plan_text)
    yield Case(("plan",), NEWEST, plan.newest_text)
    for asked in (Question(driver="470.57.02", gpus=("V100",)), Question(driver="535", gpus=("K80",))):
        chosen = choose.choose_environment(asked, None, "runtime", folder, CATALOG)
        yield Case(("choose",), chosen, choose.as_text)
    yield Case(("check",), judged(tensorflow="2.20.0", driver="535.104.05", gpus=("H100",)), check_text.as_text)
    yield Case(("check",), judged(tensorflow="2.20.0", driver="470.57.02", gpus=("H100",)), check_text.as_text)
    yield Case(("check",), judged(tensorflow="9.9.9"), check_text.as_text)
    for name in ("PTX_JIT", PLANNED.environments[0].id):
        yield Case(("explain",), explain.explain(name, None, folder, CATALOG), explain.as_text)
    refused = refusing(folder).rejections[0]
    yield Case(("explain",), explain.explain(refused.id, str(folder / "matrix.yaml"), folder, CATALOG), explain.as_text)
    for one in (verdict(), failed_verdict(), inconclusive_verdict(), gpu_verdict(simulated=True)):
        yield Case(("validate",), one, validate_request.as_text)
    yield Case(("controls",), sample("controls"), controls_as_text)
    yield Case(("controls",), listed_of(named(())), list_text)
    yield Case(("publish",), sample("published"), results.as_text)
    yield Case(("publish",), sample("planned tags"), results.as_text)
    yield Case(("verify",), sample("accepted"), verification.as_text)
    yield Case(("verify",), sample("refused"), verification.as_text)
    yield Case(("verify",), sample("refused on host classes"), verification.as_text)
    yield Case(("verify",), sample("accepted on host classes"), verification.as_text)
    for words_ in FLEET:
        yield Case(words_, sample("fleet"), fleet_text)
    for did in (sample("proof that stands"), sample("attached proof")):
        yield Case(("fleet", "prove"), did, fleet_job.as_text)
    yield Case(("upgrade",), sample("upgrade"), text.as_text)
    yield Case(("upgrade",), sample("bisection"), bisect.as_text)
    for document in (predicted("01"), predicted("53"), followed("28")):
        yield Case(("reproduce",), document, reproduce_document.as_text)
    printed = (CORPUS.parent / "golden/diagnose/numpy-2.json").read_text()
    captured = parse(printed)
    assert captured is not None
    yield Case(("diagnose",), faults.diagnose_captured(printed, captured, CATALOG), faults.as_text)
    yield Case(("doctor",), sample("doctor"), doctor.as_text)
    yield Case(("doctor",), sample("doctor on a bare host"), doctor.as_text)
    yield Case(("clean",), sample("clean"), clean.as_text)
    for table in (None, *catalog_listing.TABLES):
        listed = catalog_listing.list_catalog(CATALOG, table)
        yield Case(("catalog", "list"), listed, partial(catalog_listing.as_text, table=table))
    compatible = compatibility.compatibility(CATALOG, "python")
    yield Case(("catalog", "table"), compatible, partial(compatibility.as_text, catalog=CATALOG))
    for everything in (False, True):
        yield Case(
            ("catalog", "verify"), sample("verified catalogue"), partial(agreement.as_text, everything=everything)
        )
    for found in (
        sample("base"),
        msgspec.structs.replace(sample("base"), libraries=(), disagreements=(), refused="it has musl"),
    ):
        yield Case(("catalog", "inspect"), found, lambda facts: rendered("jobs/base", found=facts))
    rows = RefreshDocument(proposals=CATALOG.tensorflow[-2:], cuda=CATALOG.cuda[-1:], cudnn_wheels=CATALOG.cudnn_wheels)
    for proposed in (rows, RefreshDocument(proposals=(), compared=("tensorflow", "cuDNN's lines"))):
        yield Case(("catalog", "refresh"), proposed, propose.as_text)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, ...]:
    return tuple(cases(tmp_path_factory.mktemp("cases")))


def test_every_command_with_json_has_a_case(every: tuple[Case, ...]) -> None:
    assert {case.command for case in every} == set(WITH_JSON)


def test_text_is_made_from_the_json_only(every: tuple[Case, ...]) -> None:
    for case in every:
        read = msgspec.json.decode(as_json(case.document), type=type(case.document))
        assert case.as_text(read) == case.as_text(case.document), case.command


FORGED = "\nFORGED\x1b[2J\u202e and more"
KEYS = {tuple(path.split(".")) for path in beside(__file__)["KEYS"]}
"""Keys between parts of a document: looked up, not shown."""
OF_FACTS = {("catalog", "list"), ("catalog", "table")}
"""Their texts are the catalogue's own."""


def leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    match value:
        case dict():
            for key, one in value.items():
                yield from leaves(one, (*path, key))
        case list():
            for index, one in enumerate(value):
                yield from leaves(one, (*path, index))
        case str():
            yield path


def test_no_text_of_a_document_starts_a_line(every: tuple[Case, ...]) -> None:
    """A line break or control sequence in any text of any document does not reach the terminal.

    Of the rows of a list, the first that has a field is tried: they are written alike.
    """
    tried = 0
    for case in every:
        plain = json.loads(as_json(case.document))
        done = set(KEYS)
        for path in leaves(plain) if case.command not in OF_FACTS else ():
            field = tuple("*" if isinstance(part, int) else part for part in path)
            if field in done:
                continue
            done.add(field)
            holder: Any = plain
            for part in path[:-1]:
                holder = holder[part]
            honest = holder[path[-1]]
            holder[path[-1]] = honest + FORGED
            try:
                document = msgspec.json.decode(json.dumps(plain), type=type(case.document))
            except msgspec.ValidationError:
                continue  # a word of a fixed set
            finally:
                holder[path[-1]] = honest
            text = case.as_text(flattened(document))
            assert not [line for line in text.splitlines() if line.startswith("FORGED")], (case.command, path)
            assert not {"\x1b", "\u202e"} & set(text), (case.command, path)
            tried += 1
    assert tried > 800


def test_flattening_changes_only_texts_with_line_breaks(every: tuple[Case, ...]) -> None:
    for case in every:
        if "\\n" not in as_json(case.document):
            assert flattened(case.document) is case.document, case.command
    assert any("\\n" in as_json(case.document) for case in every)
    run = sample("run")
    assert flattened(run).rows[0] is run.rows[0]
    assert flattened(run).rows[1].error == "the engine failed"


ROOT = Path(__file__).parents[2]
CACHES = (Path("cache"), Path("cache/envbuilder"))


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """List everything below a folder with its mode, time of change and content.

    The parsed catalogue may come and go in the user's cache, so that folder's own times are left out.
    """
    return {
        str(path.relative_to(root)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (root, *root.rglob("*"))
        if not path.match("envbuilder/catalog-*.msgpack") and path.relative_to(root) not in CACHES
    }


@rows
def test_answer_writes_nothing(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders are as they were, to the time of their last change, and stay usable where nothing may be written."""
    for name in ("here", "home", "cache", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").chmod(0o555)
    before = tree(tmp_path)
    words = shlex.split(line.replace("ROOT", str(ROOT)))
    done = CliRunner().invoke(root, words)
    assert done.exit_code in {0, 1} or (words[0], done.exit_code) == ("doctor", 5), done.output  # no engine answers
    assert done.stdout.strip()
    assert tree(tmp_path) == before


def error(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema.validate(document, schema("error"))
    assert list(document) == ["schema", "exit_code", "message", "next", "where"]
    assert document["schema"] == "envbuilder/error/v1"
    return document


@pytest.mark.parametrize("words", WITH_JSON, ids=" ".join)
@pytest.mark.parametrize("form", [("--format", "json"), ("--format=json",)], ids=["two words", "one word"])
def test_usage_error_is_a_document(
    words: tuple[str, ...], form: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that no command has gives the document on stdout and the message on stderr, whichever comes first."""
    for line in ((*words, "--no-such", *form), (*words, *form, "--no-such")):
        code, out, err = ran(capsys, *line)
        document = error(out)
        assert (code, document["exit_code"], document["where"]) == (2, 2, None)
        assert "--no-such" in document["message"]
        assert document["next"].partition(";")[0] == f"envbuilder {' '.join(words)} --help"
        assert document["message"] in err


@pytest.mark.parametrize("words", [*WITH_JSON, *((*one, "--format", "json") for one in WITHOUT)], ids=" ".join)
def test_standard_output_stays_empty_without_json(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, *words, "--no-such")
    assert (code, out) == (2, "")
    assert "--" in err


def test_error_in_a_file_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = tmp_path / "wrong.yaml"
    matrix.write_text("name: wrong\naxes:\n  tensorflow: [2.20.0]\n  colour: [red]\n  taste: [sour]\n")
    code, out, err = ran(capsys, "plan", str(matrix), "--format", "json")
    document = error(out)
    assert (code, document["exit_code"]) == (2, 2)
    assert document["where"] == f"{matrix}:4"
    assert "colour" in document["message"]
    assert "taste" in document["message"]
    assert document["message"] in err


def test_each_kind_of_error_keeps_its_code_message_and_next(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (("plan", "-s", "no-such-*"), 3), (("explain", "NO_SUCH_CODE"), 2), (("run", "a.yaml", "b.yaml"), 2)
    for line, wanted in lines:
        code, out, err = ran(capsys, *line, "--format", "json")
        document = error(out)
        assert (code, document["exit_code"]) == (wanted, wanted)
        assert err.strip() == f"error: {document['message']}\n  next: {document['next']}"


@pytest.mark.parametrize(("raised", "code"), [(ZeroDivisionError("division by zero"), 70), (KeyboardInterrupt(), 130)])
def test_bug_and_an_interrupt_are_documents_too(
    raised: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that reads JSON gets a document whatever ends the command; a bug's traceback is on standard error."""

    def fail() -> None:
        raise raised

    monkeypatch.setattr(store, "load", fail)
    ended, out, err = ran(capsys, "check", "--tensorflow", "2.20.0", "--format", "json")
    document = error(out)
    assert (ended, document["exit_code"]) == (code, code)
    assert ("Traceback" in err) is (code == 70)
    assert ("ZeroDivisionError: division by zero" in document["message"]) is (code == 70)


@rows
def test_whether_json_is_wanted(line: str, wanted: bool) -> None:  # noqa: FBT001
    """The last --format before ``--`` counts, for a command that has one; never what follows ``--``."""
    assert wants_json(root, line.split()) is wanted


def test_output_is_written_through_links_and_devices(tmp_path: Path) -> None:
    for target in (tmp_path / "file", Path("/dev/null")):
        link = tmp_path / f"to-{target.name}"
        link.symlink_to(target)
        write_output("text", link)
        assert link.readlink() == target
    assert (tmp_path / "file").read_text() == "text"
    assert Path("/dev/null").is_char_device()
