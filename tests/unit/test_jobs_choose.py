"""`choose`: the environment of a described host, of this one, and the lines to copy."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from command_line import ran
from factories import A100
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.compat.question import Question
from envbuilder.errors import UsageError
from envbuilder.jobs import choose
from envbuilder.jobs.choose import ChooseDocument, as_text, check_with_image, choose_environment
from envbuilder.publish import verify_request
from envbuilder.verdict import HostRef

CATALOG = load()


def asked(**given: Any) -> ChooseDocument:
    return choose_environment(Question(**given), None, "runtime", Path("/nonexistent"), CATALOG)


def test_newest_release_that_works_is_chosen_with_the_reasons_against_newer_ones() -> None:
    found = asked(driver="470.57.02", gpus=("V100",))
    assert found.environment.tensorflow == "2.14.1"
    assert found.refused[0].tensorflow == CATALOG.final_versions[-1]
    assert {row.code for row in found.refused} == {"DRIVER_FORWARD_COMPAT"}
    why = r"^  2\.\d+\.\d+ to 2\.15\.0: DRIVER_FORWARD_COMPAT: Driver 470\.57\.02 is below 525"
    assert re.search(why, as_text(found), re.MULTILINE)


def test_no_claim_names_the_releases_that_nothing_is_known_about() -> None:
    found = asked(driver="570.124.06", gpus=("RTX 5090",))
    unknown = [row.tensorflow for row in found.refused if row.compatible is None]
    assert 0 < len(unknown) < len(found.refused)
    title, _, *lines = as_text(found).splitlines()
    assert title.startswith("no claim: no environment is known to work")
    assert title.endswith(f" {unknown[0]} to {unknown[-1]}")
    assert len(lines) < 10


def test_release_that_works_on_a_condition_is_no_refusal() -> None:
    found = asked(driver="470.57.02", gpus=("V100",), tensorflow="2.20.0")
    assert (found.environment, found.compatible) == (None, None)
    assert as_text(found).startswith("conditional: ")
    assert list(found.next) == ["tensorflow 2.20.0 → 2.14.1", "driver 470.57.02 → 525.60.13"]


@rows
def test_proposed_change_leads_to_an_environment(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = ran(capsys, "choose", *options.split())
    commands = re.findall(r"^next: .*: envbuilder (.*)$", text, re.MULTILINE)
    assert code
    assert commands
    assert all(ran(capsys, *shlex.split(one))[0] == 0 for one in commands)


def test_range_gets_its_newest_release_and_an_empty_one_no_claim() -> None:
    for spec, why in ((">=2.17,<2.21", "the newest of >=2.17,<2.21 that"), ("2.20.0", "given; it")):
        found = asked(driver="570.124.06", gpus=("A100",), tensorflow=spec)
        assert found.why[0].startswith(f"tensorflow 2.20.0: {why} works on A")
    found = asked(driver="570.124.06", gpus=("A100",), tensorflow=">=9")
    assert (found.environment, found.compatible, found.refused[0].code) == (None, None, "UNKNOWN")
    assert as_text(found).startswith("no claim")


def test_open_driver_gets_the_oldest_that_works() -> None:
    found = asked(gpus=("H100",))
    oldest = re.search(r"on H100 with driver (\S+) or newer", found.why[0])
    assert oldest is not None
    assert "with driver 450.80.02 to 470.256.02" in asked(gpus=("K80",)).why[0]
    below = CATALOG.branch("550")
    for driver, works in ((oldest[1], True), (below.production[-1], False)):
        again = asked(gpus=("H100",), driver=driver, tensorflow=found.environment.tensorflow)
        assert (again.compatible is True) is works


def test_open_gpu_is_any_and_an_unknown_system_one_reason() -> None:
    assert asked(driver="570.124.06").compatible is True
    found = asked(driver="570.124.06", gpus=("T4",), os="plan9")
    assert (found.compatible, [row.code for row in found.refused]) == (None, ["UNKNOWN"])


@pytest.fixture
def this_host(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    here = SimpleNamespace(describe=HostRef, machine=lambda: "x86_64", has_avx=lambda: True)
    monkeypatch.setattr(choose, "this_host", here)
    return here


@pytest.mark.usefixtures("this_host")
def test_this_host_without_a_gpu_gets_a_cpu_image() -> None:
    found = asked()
    assert found.environment.flavor == "cpu"
    assert "--gpus" not in found.commands["run"]
    with pytest.raises(UsageError, match="no NVIDIA driver"):
        choose_environment(Question(), "gpu", "runtime", Path("/nonexistent"), CATALOG)


def test_this_host_with_a_gpu_gets_an_image_for_it(this_host: SimpleNamespace) -> None:
    this_host.describe = lambda: HostRef(driver="470.57.02", gpus=(A100,))
    found = asked()
    assert (found.environment.flavor, found.environment.tensorflow) == ("gpu", "2.14.1")
    assert "docker run --rm -it --gpus all" in found.commands["run"]
    notebook = choose_environment(Question(), None, "notebook", Path("/nonexistent"), CATALOG)
    assert "--gpus all -p 127.0.0.1:8888:8888 envbuilder/" in notebook.commands["run"]
    checked = check_with_image(Question(), CATALOG)
    assert (checked.environment.driver, checked.environment.tensorflow) == ("470.57.02", "2.14.1")


def test_processor_without_avx_gets_nothing(this_host: SimpleNamespace) -> None:
    this_host.has_avx = lambda: False
    found = asked(tensorflow=">=2")
    assert (found.environment, found.compatible) == (None, False)
    assert found.refused[0].code == "CPU_FEATURE_MISSING"


def test_line_that_builds_is_a_plan_with_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for options in ("--gpu A100 --driver 535.104.05", "--gpu A100 --driver 535.104.05 --os ubuntu-22.04"):
        code, text, _ = ran(capsys, "choose", *options.split(), "--format", "json")
        document = msgspec.json.decode(text, type=ChooseDocument)
        assert code == 0
        _, _, *words = shlex.split(document.commands["build"])
        if document.matrix:
            assert not Path(words[0]).exists()
            Path(words[0]).write_text(document.matrix)
        code, text, _ = ran(capsys, "plan", *words, "--format", "json")
        assert [row["id"] for row in msgspec.json.decode(text)["environments"]] == [document.environment.id]


def test_project_s_own_environment_is_named_with_its_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    row = "{tensorflow: 2.20.0, python: '3.11', os: debian-bookworm, flavor: cpu, form: runtime}"
    (tmp_path / "matrix.yaml").write_text(f"name: m\ninclude: [{row}]\nid: 'team-{{flavor}}'\n")
    _, text, _ = ran(capsys, "choose", "--flavor", "cpu", "--tensorflow", "2.20.0", "--python", "3.11")
    assert "image    envbuilder/tensorflow:team-cpu  (not built here)\nbuild    envbuilder run matrix.yaml -s" in text
    _, text, _ = ran(capsys, "choose", "--gpu", "V100", "--driver", "470.57.02")
    assert re.search(r"save this as (tf2.14.1-\S+\.yaml):(.|\n)*\nbuild    envbuilder run \1\n", text)


def test_image_that_verify_refuses_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = SimpleNamespace(reason="NO_STATEMENT", message="it has none")
    answer = SimpleNamespace(accepted=False, refusals=(refusal,))
    monkeypatch.setattr(verify_request, "verify_image", lambda *_: answer)
    found = asked(driver="570.124.06", gpus=("A100",))
    refused = choose.from_registry(found, "registry.example.org/team/tf", (), CATALOG)
    assert (refused.image, refused.commands) == (found.image, found.commands)
    assert re.fullmatch(r"image: not registry\S+, which verify refuses: NO_STATEMENT: it has none", refused.why[-1])


def test_release_without_cuda_wheels_is_chosen_on_an_image_with_its_cuda() -> None:
    found = asked(driver="418.87.00", gpus=("V100",))
    assert found.environment.os.startswith("nvidia/cuda:10.1")
    assert not any("given" in why for why in found.why)
    assert "install" not in found.commands
