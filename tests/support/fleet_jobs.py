"""Jobs of a fleet: the validation of an image on a host class."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from factories import digest

from envbuilder.jobs.fleet.job import Job


def job(image: str = "image", host_class: str = "", **values: Any) -> Job:
    """Return the job for an image on a host class (``A100/550.54.15``; '' any host)."""
    gpu, _, driver = host_class.rpartition("/")
    defaults = {
        "repository": "registry.example.org/ml/tf",
        "digest": digest(image),
        "environment": image,
        "level": "gpu" if gpu else "cpu",
        "arch": "x86_64",
        "gpu": gpu,
        "driver": driver if gpu else "",
        "suite": "s",
        "max_age_s": 1.0,
    }
    return Job(**{**defaults, **values})


def installed_wheel(folder: Path) -> Path:
    """Unpack a wheel of this checkout, as an installer does."""
    words = ("uv", "build", "--wheel", "--quiet", "--out-dir", str(folder), str(Path(__file__).parents[2]))
    subprocess.run((sys.executable, "-m", *words), check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"
