"""``envbuilder check``: check whether a combination of versions, driver and GPU works."""

from typing import Any

from envbuilder.cli.options import declared


@declared("check")
def command(form: str, distributions: tuple[str, ...], *, no_avx: bool, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish, warn_of_age
    from envbuilder.compat.check_text import as_text
    from envbuilder.compat.question import QuestionOptions, question
    from envbuilder.jobs.choose import check_with_image

    package, beside = next(reversed(distributions), None), distributions[:-1]
    asked = question(QuestionOptions(avx=not no_avx, package=package, beside=beside, **values))
    finish(check_with_image(asked, load() if asked.as_of else warn_of_age(load())), form, as_text)
