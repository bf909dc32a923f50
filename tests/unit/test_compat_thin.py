"""Thin environments: which machine code is left by the catalogue's account, and which GPUs are refused for it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from envbuilder.catalog import gpu_code
from envbuilder.catalog.store import load
from envbuilder.choice import choose, read_known
from envbuilder.compat.check import answer
from envbuilder.compat.fleet import findings_on
from envbuilder.compat.plan import plan
from envbuilder.compat.words import Words, question
from envbuilder.environment import Environment
from envbuilder.errors import InputError, UsageError
from envbuilder.finding import Code, Severity
from envbuilder.matrix import Axes, Matrix, Targets
from envbuilder.workspace import Workspace

AXES = Axes(tensorflow=("2.19.1", "2.20.0"), os=("debian-bookworm",), flavor=("cpu", "gpu"), form=("devel", "runtime"))


def planned(*gpus: str, thin: bool = True) -> tuple[Environment, ...]:
    """Plan a thin matrix for these GPUs."""
    return plan(Matrix(name="m", axes=AXES, targets=Targets(gpus=gpus), thin=thin), load()).environments


def test_only_runtime_environments_for_gpus_are_thin() -> None:
    """Each says for which capabilities, in its id too; every other environment is as it is without the wish."""
    found, plain = planned("A100", "NVIDIA A100-SXM4-80GB"), planned("A100", thin=False)
    assert {one.form or "devel" for one in plain} == {"devel", "runtime"}
    for thin, whole in zip(found, plain, strict=True):
        if thin.flavor == "gpu" and thin.form == "runtime":
            assert (thin.id, thin.thinned_to, thin.cubins) == (f"{whole.id}-thin8.0", ("8.0",), ("8.0",))
            assert thin.ptx == whole.ptx != ()
        else:
            assert thin == whole


def test_the_order_of_gpus_and_their_names_do_not_matter() -> None:
    """The same capabilities are one environment, whoever names the GPUs."""
    assert planned("H100", "A100") == planned("NVIDIA A100-SXM4-40GB", "H100 PCIe")
    assert planned("H100", "A100")[-1].id.endswith("-runtime-thin8.0-9.0")


@pytest.mark.parametrize("version", ["2.17.1", "2.18.1", "2.19.1", "2.20.0"])
@pytest.mark.parametrize("gpu", ["6.0", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "12.0"])
def test_thinning_for_a_gpu_changes_nothing_for_it(version: str, gpu: str) -> None:
    """What the rules say of a GPU's kernels is the same before and after, but for what is held besides."""
    release = load().release(version, "tensorflow")
    assert release is not None
    thin = gpu_code.thinned(release, (gpu,))
    for before, after in zip(release.kernels, thin.kernels, strict=True):
        best = [one for one in before.cubins if gpu_code.runs_cubin(one, gpu)][-1:]
        assert list(after.cubins) == best
        assert (after.ptx, after.fat_binaries) == (before.ptx, before.fat_binaries)
    asked = Words(tensorflow=version, driver="570.86.10", capabilities=(gpu,))
    whole, left = (answer(question(msgspec.structs.replace(asked, thin=kept)), load()) for kept in ((), (gpu,)))
    assert whole.compatible == left.compatible
    assert [one.code for one in whole.findings] == [one.code for one in left.findings]


def test_another_gpu_is_refused() -> None:
    """Whoever asks about a GPU whose code is gone hears NO_KERNEL_IMAGE, and what to do."""
    found = answer(question(Words(tensorflow="2.20.0", gpus=("V100",), thin=("8.0",))), load())
    assert found.compatible is False
    (one,) = (row for row in found.findings if row.severity is Severity.ERROR)
    assert (one.code, one.subject) == (Code.NO_KERNEL_IMAGE, "V100")
    assert "thinned for 8.0" in one.message
    assert "targets" in one.fix
    environment = next(one for one in planned("A100") if one.thinned_to)
    codes = {
        gpu: [
            row.code
            for row in findings_on(environment, "570.86.10", (gpu,), load())
            if row.severity is not Severity.INFO
        ]
        for gpu in ("V100", "A100", "A10", "H100")
    }
    assert codes["V100"] == [Code.NO_KERNEL_IMAGE]
    assert codes["A100"] == codes["A10"] == []
    assert codes["H100"] == [Code.PTX_JIT], "PTX stays, for GPUs to come"


def test_a_capability_is_written_as_one() -> None:
    """Anything else is refused with the option's name."""
    with pytest.raises(UsageError, match="--thin"):
        question(Words(tensorflow="2.20.0", thin=("sm_80",)))


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("form: [runtime]\ntargets: {}", "targets.gpus", "it needs the GPUs"),
        ("form: [runtime]\ntargets: {gpus: [Voodoo 2]}", "targets.gpus", "no GPU Voodoo 2"),
        ("form: [devel]\ntargets: {gpus: [A100]}", "thin", "form devel"),
    ],
)
def test_a_thin_matrix_says_for_which_gpus(tmp_path: Path, text: str, where: str, said: str) -> None:
    """Without GPUs that are known, or with nothing that can be thin, a matrix is refused where it is wrong."""
    form, targets = text.split("\n")
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "m.yaml").write_text(
        f"name: m\nthin: true\naxes:\n  tensorflow: ['2.20.0']\n  flavor: [gpu]\n  {form}\n{targets}\n"
    )
    with pytest.raises(InputError) as wrong:
        read_known("m", tmp_path, load())
    assert [(one.key, said in one.message) for one in wrong.value.problems] == [(where, True)]


def test_a_thin_matrix_is_read_and_chosen(tmp_path: Path) -> None:
    """`thin: true` with form and targets gives the thin environment, as `plan` does."""
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "m.yaml").write_text(
        "name: m\nthin: true\naxes:\n  tensorflow: ['2.20.0']\n  os: [debian-bookworm]\n  flavor: [gpu]\n"
        "  form: [runtime]\ntargets:\n  gpus: [A100]\n"
    )
    (one,) = choose("m", (), Workspace(tmp_path), load()).environments
    assert one == planned("A100")[-1]
