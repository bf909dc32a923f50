"""What a build's own note says of CUDA is read in every form that releases wrote it in."""

from __future__ import annotations

import pytest
from made_images import SITE, image_of

from envbuilder.validation.image_claims import says_cuda


@pytest.mark.parametrize(
    ("note", "says"),
    [
        ("build_info = collections.OrderedDict([('cuda_version', '12.5.1'), ('is_cuda_build', True)])", True),
        ("build_info = collections.OrderedDict([('is_cuda_build', False), ('is_rocm_build', False)])", False),
        ('build_info = {"cuda_version": "11.2", "is_cuda_build": True}', True),
        ("is_cuda_build = False\n", False),
        ("is_rocm_build = True\n", None),
        ("", None),
    ],
)
def test_the_note_of_every_release(note: str, says: bool | None) -> None:  # noqa: FBT001
    """As 2.0 to 2.3, 2.4 and later wrote it; what says nothing of CUDA is no claim."""
    files = image_of({f"{SITE}/tensorflow/python/platform/build_info.py": note.encode()})
    assert says_cuda(files) is says
