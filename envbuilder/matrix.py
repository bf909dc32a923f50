"""A matrix: the environments to build, as read from ``matrices/*.yaml``."""

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from envbuilder.environment import WHOLE, Additions, Combination, Flavor, Variant
from envbuilder.versions import DOTTED, RELEASE, SPEC
from envbuilder.workspace import packaged_yaml


def _text(pattern: str, description: str) -> msgspec.Meta:
    return msgspec.Meta(pattern=rf"^{pattern}\Z", description=description)


TEXTS = {name: _text(*row) for name, row in packaged_yaml("texts.yaml", dict[str, tuple[str, str]]).items()}
"""What a text in a file of the user has to be, by its kind."""

ReleaseText = Annotated[str, _text(RELEASE, "a release, such as 2.20.0")]
SpecText = Annotated[str, _text(SPEC, "a release such as 2.20.0, `latest`, or a range such as ~=2.19")]
DottedText = Annotated[str, _text(DOTTED, "a dotted number, such as 12.5")]
NameText = Annotated[str, TEXTS["name"]]
OsText = Annotated[str, TEXTS["system"]]
Arch = Literal["x86_64", "aarch64"]
DriverText = Annotated[str, TEXTS["driver"]]
GpuText = Annotated[str, TEXTS["gpu"]]
RequirementText = Annotated[str, TEXTS["requirement"]]
ReasonText = Annotated[str, msgspec.Meta(min_length=3, description="why, in a sentence")]
BaseImageText = Annotated[str, TEXTS["base image"]]
PrintableText = Annotated[str, TEXTS["printable"]]
PathText = Annotated[str, TEXTS["path"]]
PlaceText = Annotated[str, TEXTS["place"]]
SystemPackageText = Annotated[str, TEXTS["system package"]]
VariableText = Annotated[str, TEXTS["variable"]]
LabelText = Annotated[str, TEXTS["label"]]
UserText = Annotated[str, TEXTS["user"]]
IndexText = Annotated[str, TEXTS["index"]]
TemplateText = Annotated[str, TEXTS["template"]]
TagText = Annotated[str, TEXTS["tag"]]
Amount = Annotated[float, msgspec.Meta(gt=0, description="a positive number")]
FORM = msgspec.Meta(extra_json_schema={"alias": "form"})
"""The older name of the key `variant`, which is still read."""


class MatrixBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Your own base: an image by its digest, and the one of its Pythons to use (default: the newest)."""

    image: BaseImageText
    python: DottedText | None = None


class MatrixAdditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Additions to TensorFlow: of a matrix, or of one of its rows, which adds to them and precedes them.

    ``requirements`` is a file of the workspace with one requirement a line; `choice` reads it into ``packages``.
    """

    packages: tuple[RequirementText, ...] = ()
    requirements: PathText | None = None
    indexes: tuple[IndexText, ...] = ()
    system_packages: tuple[SystemPackageText, ...] = ()
    env: dict[VariableText, PrintableText] = {}
    labels: dict[LabelText, PrintableText] = {}
    user: UserText | None = None
    workdir: PlaceText | None = None
    entrypoint: tuple[PrintableText, ...] = ()
    files: dict[PathText, PlaceText] = {}
    certificates: tuple[PathText, ...] = ()
    template: TemplateText | None = None


class Axes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that are combined with each other; an axis that is absent is chosen from the catalogue."""

    tensorflow: Annotated[tuple[SpecText, ...], msgspec.Meta(min_length=1)]
    python: tuple[DottedText, ...] = ()
    os: tuple[OsText, ...] = ()
    flavor: tuple[Flavor, ...] = ("cpu",)
    cuda: tuple[DottedText, ...] = ()
    cudnn: tuple[DottedText, ...] = ()
    variant: Annotated[tuple[Variant, ...], FORM] = (WHOLE,)


class Include(MatrixAdditions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One combination in addition to the product of the axes."""

    tensorflow: SpecText
    package: NameText | None = None
    python: DottedText | None = None
    os: OsText | None = None
    flavor: Flavor = "cpu"
    cuda: DottedText | None = None
    cudnn: DottedText | None = None
    controls: tuple[NameText, ...] = ()
    variant: Annotated[Variant, FORM] = WHOLE


class Exclude(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Combinations to leave out: those that match every key given; ``reason`` is shown in the plan."""

    reason: ReasonText
    tensorflow: ReleaseText | None = None
    python: DottedText | None = None
    os: OsText | None = None
    flavor: Flavor | None = None
    cuda: DottedText | None = None
    cudnn: DottedText | None = None
    variant: Annotated[Variant | None, FORM] = None


class Targets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hosts that every GPU environment has to serve: drivers (or their branches) and GPUs."""

    drivers: tuple[DriverText, ...] = ()
    gpus: tuple[GpuText, ...] = ()


class Budgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Upper bounds that a verdict holds an image to: size in gigabytes (10^9 bytes), times in seconds."""

    size_gb: Amount | None = None
    import_s: Amount | None = None
    first_op_s: Amount | None = None
    context_s: Amount | None = None


class Matrix(MatrixAdditions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A complete matrix file."""

    name: NameText
    id: TagText | None = None
    bases: dict[NameText, MatrixBase] = {}
    axes: Axes | None = None
    include: tuple[Include, ...] = ()
    exclude: tuple[Exclude, ...] = ()
    targets: Targets = Targets()
    budgets: Budgets = Budgets()
    description: str = ""


class Excluded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A combination that the matrix leaves out, and the user's reason."""

    combination: Combination
    reason: str


_AXES = ("tensorflow", "python", "os", "flavor", "cuda", "cudnn", "variant")


def expand(matrix: Matrix) -> tuple[tuple[Combination, ...], tuple[Excluded, ...]]:
    """List a matrix's combinations in the order of its axes, each once, and those that it excludes."""
    wanted: list[Combination] = []
    left_out: list[Excluded] = []
    rules = [(_asked(rule), rule.reason) for rule in matrix.exclude]
    rows = (_included(row, matrix) for row in matrix.include)
    for combination in dict.fromkeys(itertools.chain(_product(matrix), rows)):
        reason = next((why for asked, why in rules if _matches(asked, combination)), None)
        if reason is None:
            wanted.append(combination)
        else:
            left_out.append(Excluded(combination=combination, reason=reason))
    return tuple(wanted), tuple(left_out)


def _product(matrix: Matrix) -> Iterator[Combination]:
    """Yield every combination of the axes; of CPU combinations that differ in CUDA, `expand` keeps the first."""
    added, values = _added(matrix), [getattr(matrix.axes, name, ()) or (None,) for name in _AXES]
    for chosen in itertools.product(*values) if matrix.axes else ():
        named = {name: value for name, value in zip(_AXES, chosen, strict=True) if value is not None}
        if named.get("flavor", "cpu") == "cpu":
            named = {name: value for name, value in named.items() if name not in {"cuda", "cudnn"}}
        yield Combination(**named, additions=added)


def _included(row: Include, matrix: Matrix) -> Combination:
    # A row's own packages are part of its id; those of the matrix are not.
    own = (name for name in Combination.__struct_fields__ if name in Include.__struct_fields__)
    return Combination(
        **{name: getattr(row, name) for name in own},
        additions=_added(matrix, msgspec.structs.replace(row, packages=())),
    )


def _added(*given: MatrixAdditions) -> Additions:
    """Join the additions of a matrix and a row: lists grow, of single values and equal names the last counts."""
    joined: dict[str, Any] = {}
    for name in Additions.__struct_fields__:
        values = [value for one in given if (value := getattr(one, name))]
        if values and name in _REPLACED:
            joined[name] = values[-1]
        elif values and isinstance(values[0], dict):
            joined[name] = tuple(sorted(dict(itertools.chain.from_iterable(map(dict.items, values))).items()))
        elif values:
            joined[name] = tuple(dict.fromkeys(itertools.chain.from_iterable(values)))
    return Additions(**joined)


_REPLACED = ("user", "workdir", "template", "entrypoint")


def _asked(rule: Exclude) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name in _AXES if (value := getattr(rule, name)) is not None)


def _matches(asked: tuple[tuple[str, str], ...], combination: Combination) -> bool:
    return bool(asked) and all(getattr(combination, name) == value for name, value in asked)
