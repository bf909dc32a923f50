"""What a table shows, the JSON holds: for every command that takes ``--format``.

Two laws, for each command's document:

1. the text is a function of the JSON: who has the JSON alone, decoded by its schema's type, writes the same text;
2. every word of the text stands in the JSON, but for what is listed here: the headings and fixed phrases of that
   command's text (`PHRASES`), numbers that are a JSON number in another unit or rounding, or the length of a JSON list,
   and the few sums that `TOTALS` names.

And, where no engine is needed, the command itself prints in both forms what these laws are about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import WITH_JSON, ran
from factories import (
    digest,
    failed_verdict,
    finding,
    gpu_verdict,
    inconclusive_verdict,
    upgrade,
    verdict,
)
from msgspec.structs import replace

from envbuilder.attest.requirements import Refusal, RefusalReason, Requirement
from envbuilder.catalog.base_facts import BaseFacts, Disagreement, FoundLibrary, FoundPython
from envbuilder.catalog.store import load
from envbuilder.cli.output import as_json, flattened
from envbuilder.compat import check_text
from envbuilder.compat.check import CheckDocument
from envbuilder.compat.check import check as check_question
from envbuilder.compat.fleet import Cell
from envbuilder.compat.question import Question
from envbuilder.controls import text as controls_text
from envbuilder.controls.control import named
from envbuilder.controls.run import ControlRow, ControlsDocument
from envbuilder.environment import Combination
from envbuilder.finding import Code
from envbuilder.jobs import (
    base,
    clean,
    doctor,
    explain,
    listing,
    plan,
    plan_text,
    run,
)
from envbuilder.jobs.clean import CleanDocument, ImageGone
from envbuilder.jobs.doctor import Diagnosis, Disk, EngineFacts, Tool, Trouble
from envbuilder.jobs.fleet import prove
from envbuilder.jobs.fleet.document import FleetDocument, FleetRow
from envbuilder.jobs.fleet.document import as_text as fleet_text
from envbuilder.jobs.plan import NewestOptions, PlanOptions
from envbuilder.jobs.run import RunDocument, RunRow
from envbuilder.publish import results, verification
from envbuilder.publish.results import PublishDocument, PublishRow, Tag
from envbuilder.publish.verification import Verification
from envbuilder.refresh import agreement, propose
from envbuilder.refresh.agreement import Comparison, VerifyDocument
from envbuilder.refresh.propose import RefreshDocument
from envbuilder.reproduce import render
from envbuilder.reproduce.analysis import analyse, with_command
from envbuilder.reproduce.document import Proof, ReproduceDocument, Run
from envbuilder.upgrade import bisect, text
from envbuilder.upgrade.bisect import BisectDocument, BisectParameters
from envbuilder.upgrade.bisect_search import Answer, Result
from envbuilder.upgrade.document import (
    Differences,
    FactChange,
    HostChange,
    LayerChange,
    MemberChange,
    NumericChange,
    OutcomeChange,
    PackageChange,
    SetChange,
    SignatureChange,
    SurfaceChange,
)
from envbuilder.upgrade.statistics import Interval, RatioResult
from envbuilder.validation import validate_request
from envbuilder.verdict import HostRef, ImageRef, KindStanding

CATALOG = load()
CORPUS = Path(__file__).parents[1] / "corpus"


@dataclass(frozen=True)
class Case:
    """One command's document and what writes its text."""

    command: tuple[str, ...]
    document: Any
    as_text: Callable[[Any], str]


RUN = RunDocument(
    matrix="quickstart",
    rows=(
        RunRow(
            environment="tf2.20.0-py311-cpu-bookworm",
            image="envbuilder/tensorflow:tf2.20.0-py311-cpu-bookworm",
            verdict="PASSED",
            level="cpu",
            built="built",
            validated="validated",
            size=1_754_321_000,
            path="out/tf2.20.0-py311-cpu-bookworm/verdict.json",
        ),
        RunRow(environment="tf2.19.1-py311-cpu-bookworm", error="the engine\nfailed", built="failed", exit_code=5),
    ),
)
PLANNED = plan.plan_matrix(PlanOptions("tensorflow", ("tf2.20.0-py311-*",)), Path("/nonexistent"), CATALOG)
HOSTS = NewestOptions(driver="535.104.05", gpus=("H100",))
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
    """Judge a combination."""
    return check_question(Question(**given), CATALOG)


CONTROLLED = ControlsDocument(
    rows=(
        ControlRow(
            control="older-cudnn",
            environment="tf2.20.0-py311-cu12.5-cudnn9.3-bookworm",
            broken="cuDNN 8",
            expected=Code.CUDNN_MISMATCH,
            found=(Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY),
            red=("load",),
            verdict="FAILED",
            simulated=False,
            right=False,
            wrong="also MISSING_LIBRARY",
            build_s=4.0,
            validate_s=8.0,
        ),
        ControlRow(
            control="good",
            environment="x",
            broken="",
            expected=None,
            found=(),
            red=(),
            verdict="PASSED",
            simulated=True,
            right=True,
            validate_s=7.0,
        ),
    )
)


def published(**given: Any) -> PublishRow:
    """Make a row of a publish."""
    return PublishRow(environment="tf2.20.0-py311-cpu-bookworm", repository="registry/ml", **given)


PUBLISHED = PublishDocument(
    rows=(
        published(
            published=True,
            digest=digest("manifest"),
            verdict="INCONCLUSIVE",
            level="load",
            allowed=("inconclusive",),
            tags=(Tag(name="tf2.20.0-py311-cpu-bookworm", moving=True), Tag(name="latest", moving=True)),
        ),
        published(verdict="FAILED", error="the verdict is FAILED", exit_code=1),
        published(error="the registry does not answer\nat all", exit_code=5),
    )
)
LOOKED = BaseFacts(
    image="registry/base@" + digest("base"),
    digest=digest("base"),
    architecture="x86_64",
    system="debian",
    release="12",
    libc="glibc",
    libc_version="2.36",
    packages="apt",
    pythons=(FoundPython(version="3.11", path="/usr/bin/python3.11", venv=True),),
    cuda="11.8",
    cudnn="8.6.0",
    libraries=(FoundLibrary(soname="libcudart.so.11.0", path="/usr/lib/libcudart.so.11.8.89", version="11.8"),),
    require_cuda="cuda>=11.8",
    disagreements=(Disagreement(field="cuda", catalog="11.2", image="11.8"),),
)
PLANNED_TAGS = PublishDocument(
    dry_run=True,
    rows=(published(tags=(Tag(name="a", moving=True, before=digest("b")), Tag(name="fixed", moving=False))),),
)
ACCEPTED = Verification(
    image="registry/ml:tag",
    digest=digest("manifest"),
    accepted=True,
    demanded=Requirement(),
    verdict="PASSED",
    level="gpu",
    environment="x",
    driver="535.104.05",
    gpus=("NVIDIA H100 80GB HBM3",),
    finished="2026-11-20T10:03:00+00:00",
    signed_by="ed25519:abc",
)
REFUSED = Verification(
    image="registry/ml:tag",
    digest=digest("manifest"),
    accepted=False,
    demanded=Requirement(),
    refusals=(Refusal(reason=RefusalReason.EXPIRED, message="the verdict is 91 days old"),),
)
ON_KINDS = Verification(
    image="registry/ml:tag",
    digest=digest("manifest"),
    accepted=False,
    demanded=Requirement(level="gpu"),
    refusals=(
        Refusal(reason=RefusalReason.KIND_MISSING, message="A100/550: no real verdict is from this kind of host"),
    ),
    notes=(Refusal(reason=RefusalReason.FAILED, message="the verdict is FAILED (550.54.15, NVIDIA L4)"),),
    kinds=(
        KindStanding(
            kind="H100/535",
            gpu="H100",
            driver="535",
            state="passed",
            level="gpu",
            ran_on="535.104.05",
            finished="2026-11-20T10:03:00+00:00",
            age_s=90.0,
            signers=("ed25519:abc",),
        ),
        KindStanding(
            kind="A100/550", gpu="A100", driver="550", state="missing", why="no real verdict is from this kind"
        ),
    ),
)
PROVEN = replace(
    ON_KINDS,
    accepted=True,
    verdict="PASSED",
    level="gpu",
    environment="x",
    kinds=ON_KINDS.kinds[:1],
    refusals=(),
    notes=(),
)
STOOD = prove.ProofDocument(
    image=f"registry.example.org/ml/tensorflow@{digest('image')}",
    environment="x",
    kind="any host",
    did="stands",
    state="passed",
)
ATTACHED = replace(STOOD, kind="H100/535", did="attached", driver="535.104.05", verdict="PASSED", state=None)

PROOFS = FleetDocument(
    asked="status",
    matrix="tensorflow",
    repository="registry.example.org/ml/tensorflow",
    suite=digest("suite"),
    rows=(
        FleetRow(
            environment="x",
            kind="H100/535",
            gpu="H100",
            driver="535",
            hosts=("a", "b"),
            count=200,
            digest=digest("manifest"),
            state="passed",
            level="gpu",
            ran_on="535.104.05",
            finished="2026-11-20T10:03:00+00:00",
            here=True,
        ),
        FleetRow(
            environment="x",
            kind="A100/550",
            hosts=("c",),
            count=1,
            digest=digest("manifest"),
            state="missing",
            left=True,
            why="no real verdict is from this kind of host",
            exit_code=8,
        ),
        FleetRow(
            environment="y",
            kind="any host",
            hosts=("c",),
            count=1,
            state="failed",
            left=True,
            here=True,
            error="no space left on device",
            exit_code=5,
        ),
    ),
    states={"passed": 1, "missing": 1, "failed": 1},
    left=2,
    left_here=1,
    ran=(digest("manifest"),),
)


def interval(value: float) -> Interval:
    """Make an estimate with bounds."""
    return Interval(value, value * 0.9, value * 1.1)


DIFFERENT = replace(
    upgrade("slower start"),
    old=replace(upgrade().old, image=ImageRef(id=digest("old"), size=1_754_000_000), verdict=None, level="none"),
    clauses=(
        replace(upgrade().clauses[0], details=("import: 1.6 times",)),
        replace(upgrade().clauses[0], state="not asked", says="fleet hosts"),
    ),
    differences=Differences(
        packages=(
            PackageChange(
                name="keras",
                change="changed",
                old="2.15.0",
                new="3.15.1",
                old_licence="Apache-2.0",
                new_licence="MIT",
                old_size=1,
                new_size=2,
            ),
        ),
        requirements=(FactChange(name="numpy", old="<2", new=None),),
        platform=(FactChange(name="cuDNN", old="8.9", new="9.3"),),
        sets=(SetChange(name="Pythons", gained=("3.13",), lost=()),),
        hosts=(
            HostChange(host="node7", gpu="H100", driver="535.104.05", old="native", new="lost", findings=(finding(),)),
        ),
        layers=(LayerChange(created_by="RUN uv pip sync", old=620_000_000, new=None),),
        timings=(
            RatioResult(
                name="start.total",
                rounds=12,
                old_s=interval(2.0),
                new_s=interval(3.2),
                ratio=interval(1.6),
                p=0.001,
                p_adjusted=0.002,
                change="slower",
            ),
        ),
        numerics=(NumericChange(operation="matmul", old=1.5e-6, new=None, tolerance=1e-5, outside=True),),
        warnings_new=("oneDNN is on",),
        surface=SurfaceChange(
            removed=("estimator",),
            removed_members=(MemberChange(member="get_config", classes=("keras.Layer",), count=1),),
            added=("newest",),
            signatures=(SignatureChange(name="matmul", old="(a, b)", new="(a)", breaks="b is gone"),),
            newly_deprecated=("compat.v1",),
        ),
        checks=(OutcomeChange(name="import", old="passed", new="failed", message="ImportError"),),
        tests=(OutcomeChange(name="test_x", old="passed", new="failed", message="no estimator"),),
    ),
)
BISECTED = BisectDocument(
    asked=BisectParameters(
        axis="tensorflow",
        candidates=("2.17.1", "2.18.1", "2.19.1", "2.20.0"),
        row=Combination(tensorflow="2.17.1"),
        command=("python", "-c", "import x"),
    ),
    answers=(
        Answer(candidate="2.17.1", outcome="good"),
        Answer(candidate="2.18.1", outcome="unbuildable", reason="no wheel"),
        Answer(candidate="2.20.0", outcome="bad", exit_code=1, line="ImportError: x"),
    ),
    result=Result(last_good="2.17.1", first_bad="2.20.0", between=("2.18.1", "2.19.1")),
    images=2,
    most_images=4,
)


def predicted(name: str) -> ReproduceDocument:
    """Follow a report of the corpus as far as a dry run goes."""
    path = next(CORPUS.glob(f"{name}*.txt"))
    return with_command(analyse(path.read_text(), CATALOG).document)


def followed(name: str) -> ReproduceDocument:
    """Follow a report of the corpus through a run and its proof."""
    document = predicted(name)
    assert document.nearest is not None
    proof = Proof(proven=None, needs="a GPU")
    return replace(
        document,
        run=Run(reproduced=False, needs="a GPU", verdict="FAILED", simulated=True, stand_ins=("libcudart.so.11",)),
        nearest=replace(document.nearest, proof=proof),
    )


HOST = HostRef(
    driver="535.104.05", gpus=gpu_verdict().host.gpus, kernel="6.1.0", cpus=8, cpu_model="EPYC", memory=25 << 30
)
CELLS = tuple(
    Cell(host="node7", environment=name, compatible=known, findings=(), why=why)
    for name, known, why in (("a-cpu", True, ""), ("b-gpu", False, "driver too old"), ("c-gpu", None, "no row"))
)
WHOLE = Diagnosis(
    host=HOST,
    avx=True,
    engine=EngineFacts(name="docker", version="20.10.24", builder="buildkit", gpu_runtime=True, storage="overlay2"),
    registry=True,
    tools=(Tool(name="uv", path="/usr/bin/uv", purpose="locks"),),
    disk=(Disk(path="/var/lib/docker", free=123_456_000_000, purpose="images"),),
    troubles=(),
    environments=CELLS,
)
BARE = Diagnosis(
    host=HostRef(kernel="6.1.0", cpus=2, cpu_model="Xeon", memory=1 << 30),
    avx=False,
    engine=None,
    registry=None,
    tools=(Tool(name="mmdebstrap", path=None, purpose="bases"),),
    disk=(),
    troubles=(Trouble(what="no container engine answers", fix="start it"),),
    environments=CELLS[:1],
)
CLEANED = CleanDocument(
    dry_run=False,
    images=(
        ImageGone(reference="envbuilder/control:x", size=3_210_000_000),
        ImageGone(reference="y", size=1, kept="busy"),
    ),
    containers=2,
    freed=12_340_000_000,
)
COMPARED = VerifyDocument(
    comparisons=(
        Comparison(row="tensorflow 2.20.0", field="cuda", outcome="disagrees", catalog="12.5", artefact="11.2"),
        Comparison(
            row="tensorflow 2.20.0", field="cudnn", outcome="recorded", artefact="8", note="build_info is wrong"
        ),
        Comparison(row="tensorflow 2.20.0", field="ptx", outcome="unchecked", note="--binary reads them"),
        Comparison(row="tensorflow 2.19.1", field="wheels", outcome="agrees", artefact="x86_64 3.10"),
    )
)

FLEET = tuple(("fleet", child) for child in ("plan", "status", "run", "export"))


def cases(folder: Path) -> Iterator[Case]:
    """Yield a document or several for every command that takes ``--format``."""
    yield Case(("run",), RUN, run.run_text)
    yield Case(("build",), RUN, run.build_text)
    yield Case(("plan",), PLANNED, plan_text.plan_text)
    yield Case(("plan",), refusing(folder), plan_text.plan_text)
    yield Case(("plan",), REJECTED, plan_text.plan_text)
    yield Case(("plan",), NEWEST, plan_text.newest_text)
    yield Case(("check",), judged(tensorflow="2.20.0", driver="535.104.05", gpus=("H100",)), check_text.as_text)
    yield Case(("check",), judged(tensorflow="2.20.0", driver="470.57.02", gpus=("H100",)), check_text.as_text)
    yield Case(("check",), judged(tensorflow="9.9.9"), check_text.as_text)
    for name in ("PTX_JIT", PLANNED.environments[0].id):
        yield Case(("explain",), explain.explain(name, None, folder, CATALOG), explain.as_text)
    refused = refusing(folder).rejections[0]
    yield Case(("explain",), explain.explain(refused.id, str(folder / "matrix.yaml"), folder, CATALOG), explain.as_text)
    for one in (verdict(), failed_verdict(), inconclusive_verdict(), gpu_verdict(simulated=True)):
        yield Case(("validate",), one, validate_request.as_text)
    yield Case(("controls",), CONTROLLED, controls_text.as_text)
    yield Case(("controls",), controls_text.listed(named(())), controls_text.list_text)
    yield Case(("publish",), PUBLISHED, results.as_text)
    yield Case(("publish",), PLANNED_TAGS, results.as_text)
    yield Case(("verify",), ACCEPTED, verification.as_text)
    yield Case(("verify",), REFUSED, verification.as_text)
    yield Case(("verify",), ON_KINDS, verification.as_text)
    yield Case(("verify",), PROVEN, verification.as_text)
    for words_ in FLEET:
        yield Case(words_, PROOFS, fleet_text)
    for did in (STOOD, ATTACHED):
        yield Case(("fleet", "prove"), did, prove.as_text)
    yield Case(("fleet", "make"), PUBLISHED, results.as_text)
    yield Case(("upgrade",), DIFFERENT, text.as_text)
    yield Case(("upgrade",), BISECTED, bisect.as_text)
    for document in (predicted("01"), predicted("53"), followed("28")):
        yield Case(("reproduce",), document, render.as_text)
    yield Case(("doctor",), WHOLE, doctor.as_text)
    yield Case(("doctor",), BARE, doctor.as_text)
    yield Case(("clean",), CLEANED, clean.as_text)
    for table in (None, *listing.TABLES):
        listed = listing.list_catalog(CATALOG, table)
        yield Case(("catalog", "list"), listed, partial(listing.as_text, table=table))
    for everything in (False, True):
        yield Case(("catalog", "verify"), COMPARED, partial(agreement.as_text, everything=everything))
    for found in (LOOKED, msgspec.structs.replace(LOOKED, libraries=(), disagreements=(), refused="it has musl")):
        yield Case(("catalog", "look"), found, base.as_text)
    rows = RefreshDocument(proposals=CATALOG.tensorflow[-2:], cuda=CATALOG.cuda[-1:], cudnn_wheels=CATALOG.cudnn_wheels)
    for proposed in (rows, RefreshDocument(proposals=(), compared=("tensorflow", "cuDNN's lines"))):
        yield Case(("catalog", "refresh"), proposed, propose.as_text)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, ...]:
    """Make every case once."""
    return tuple(cases(tmp_path_factory.mktemp("cases")))


def test_every_command_with_json_has_a_case(every: tuple[Case, ...]) -> None:
    assert {case.command for case in every} == set(WITH_JSON)


def test_the_text_is_made_from_the_json_only(every: tuple[Case, ...]) -> None:
    """The text that is written from the decoded JSON equals the text of the document."""
    for case in every:
        read = msgspec.json.decode(as_json(case.document), type=type(case.document))
        assert case.as_text(read) == case.as_text(case.document), case.command


COMMANDS: tuple[tuple[str, type[msgspec.Struct], Callable[[Any], str]], ...] = (
    ("plan tensorflow -s tf2.20.0-py311-*", plan.PlanDocument, plan_text.plan_text),
    ("plan --newest --driver 470.57.02 --gpu V100", plan.NewestDocument, plan_text.newest_text),
    ("check --tensorflow 2.20.0 --driver 535.104.05 --gpu H100", CheckDocument, check_text.as_text),
    ("check --tensorflow 2.4.1 --cuda 11.2 --driver 460.32.03 --gpu RTX3090", CheckDocument, check_text.as_text),
    ("check --tensorflow 9.9.9", CheckDocument, check_text.as_text),
    ("explain PTX_JIT", explain.ExplainDocument, explain.as_text),
    ("explain tf2.20.0-py311-cpu-bookworm", explain.ExplainDocument, explain.as_text),
    ("controls --list", controls_text.ControlListDocument, controls_text.list_text),
    ("catalog list", listing.CatalogDocument, partial(listing.as_text, table=None)),
    ("catalog list gpus", listing.CatalogDocument, partial(listing.as_text, table="gpus")),
    (f"reproduce {next(CORPUS.glob('01-*.txt'))} --dry-run", ReproduceDocument, render.as_text),
)


@pytest.mark.parametrize(("line", "kind", "as_text"), COMMANDS, ids=[line.split("/")[0] for line, _, _ in COMMANDS])
def test_table_and_json_of_a_command_agree(
    line: str,
    kind: type[msgspec.Struct],
    as_text: Callable[[Any], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    table_code, table, _ = ran(capsys, *line.split())
    json_code, document, _ = ran(capsys, *line.split(), "--format", "json")
    written = as_text(msgspec.json.decode(document, type=kind))
    assert table.rstrip() == written.rstrip()
    assert table_code == json_code


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


def leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every text in a JSON value."""
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
    """A line break or control sequence in any text of any document does not reach the terminal."""
    tried = 0
    for case in every:
        plain = json.loads(as_json(case.document))
        for path in leaves(plain) if case.command[:2] != ("catalog", "list") else ():
            if tuple("*" if isinstance(part, int) else part for part in path) in KEYS:
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
    assert flattened(RUN).rows[0] is RUN.rows[0]
    assert flattened(RUN).rows[1].error == "the engine failed"
