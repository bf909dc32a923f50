"""Every command that takes ``--format``: its table is made from its JSON only, and no text of a document adds a line.

The samples that need an engine or a registry are in `golden/documents.yaml`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from command_line import WITH_JSON
from factories import failed_verdict, gpu_verdict, inconclusive_verdict, verdict
from msgspec.structs import replace

from envbuilder.catalog.store import load
from envbuilder.cli.output import as_json, flattened
from envbuilder.cli.schema_command import DOCUMENTS, schema_of
from envbuilder.compat import check_text
from envbuilder.compat.check import check as check_question
from envbuilder.compat.question import Question
from envbuilder.controls import text as controls_text
from envbuilder.controls.control import named
from envbuilder.jobs import base, choose, clean, compatibility, doctor, explain, listing, plan, run
from envbuilder.jobs.fleet import prove
from envbuilder.jobs.fleet.survey import as_text as fleet_text
from envbuilder.jobs.plan import PlanOptions
from envbuilder.publish import results, verification
from envbuilder.refresh import agreement, propose
from envbuilder.refresh.propose import RefreshDocument
from envbuilder.reproduce import faults, render
from envbuilder.reproduce.analysis import analyse, with_command
from envbuilder.reproduce.document import NearestRun, ReproduceDocument, Run
from envbuilder.reproduce.report.captured import parse
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
    yield Case(("controls",), sample("controls"), controls_text.as_text)
    yield Case(("controls",), controls_text.listed(named(())), controls_text.list_text)
    yield Case(("publish",), sample("published"), results.as_text)
    yield Case(("publish",), sample("planned tags"), results.as_text)
    yield Case(("verify",), sample("accepted"), verification.as_text)
    yield Case(("verify",), sample("refused"), verification.as_text)
    yield Case(("verify",), sample("refused on host classes"), verification.as_text)
    yield Case(("verify",), sample("accepted on host classes"), verification.as_text)
    for words_ in FLEET:
        yield Case(words_, sample("fleet"), fleet_text)
    for did in (sample("proof that stands"), sample("attached proof")):
        yield Case(("fleet", "prove"), did, prove.as_text)
    yield Case(("upgrade",), sample("upgrade"), text.as_text)
    yield Case(("upgrade",), sample("bisection"), bisect.as_text)
    for document in (predicted("01"), predicted("53"), followed("28")):
        yield Case(("reproduce",), document, render.as_text)
    printed = (CORPUS.parent / "golden/diagnose/numpy-2.json").read_text()
    captured = parse(printed)
    assert captured is not None
    yield Case(("diagnose",), faults.diagnose_captured(printed, captured, CATALOG), faults.as_text)
    yield Case(("doctor",), sample("doctor"), doctor.as_text)
    yield Case(("doctor",), sample("doctor on a bare host"), doctor.as_text)
    yield Case(("clean",), sample("clean"), clean.as_text)
    for table in (None, *listing.TABLES):
        listed = listing.list_catalog(CATALOG, table)
        yield Case(("catalog", "list"), listed, partial(listing.as_text, table=table))
    compatible = compatibility.compatibility(CATALOG, None)
    yield Case(("catalog", "table"), compatible, partial(compatibility.as_text, catalog=CATALOG))
    for everything in (False, True):
        yield Case(
            ("catalog", "verify"), sample("verified catalogue"), partial(agreement.as_text, everything=everything)
        )
    for found in (
        sample("base"),
        msgspec.structs.replace(sample("base"), libraries=(), disagreements=(), refused="it has musl"),
    ):
        yield Case(("catalog", "inspect"), found, base.as_text)
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
KEYS = {
    ("result", "first_bad"),
    ("answers", "*", "candidate"),
    ("environments", "*", "id"),
    ("cells", "*", "environment"),
    ("cells", "*", "host"),
    ("kinds", "*", "host"),
}
"""Keys between parts of a document: looked up, not shown."""
ROWS = 4
"""Rows of a list that are tried."""


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

    Of the rows of a list, the first few are tried: they are written alike.
    """
    tried = 0
    for case in every:
        plain = json.loads(as_json(case.document))
        rows: Counter[tuple[str, ...]] = Counter()
        for path in leaves(plain) if case.command not in OF_FACTS else ():
            field = tuple("*" if isinstance(part, int) else part for part in path)
            rows[field] += 1
            if field in KEYS or rows[field] > ROWS:
                continue
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
