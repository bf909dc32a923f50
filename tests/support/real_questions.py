"""Questions over the real catalogue: every field has values that are known, unknown and left open."""

from hypothesis import strategies as st

from envbuilder.catalog.store import load
from envbuilder.compat.question import Question

CATALOG = load()

VERSIONS = [row.version for row in CATALOG.tensorflow if row.package == "tensorflow"]
DRIVERS = [row.releases[-1] if row.releases else row.first for row in CATALOG.drivers]
GPUS = list({row.compute_capability: row.name for row in CATALOG.gpus}.values())

questions = st.builds(
    Question,
    tensorflow=st.sampled_from(VERSIONS),
    package=st.sampled_from((None, None, "tensorflow-gpu", "tensorflow-cpu")),
    python=st.sampled_from((None, "2.7", "3.6", "3.8", "3.9", "3.11", "3.13")),
    cuda=st.sampled_from((None, None, "10.1", "11.2", "11.8", "12.3", "12.5", "12.9", "13.0")),
    cudnn=st.sampled_from((None, None, "7", "7.6.5", "8.1", "8.9.7", "9.1.0", "9.3", "9.11.0", "9.99")),
    driver=st.sampled_from((None, *DRIVERS, "999.1")),
    gpus=st.lists(st.sampled_from((*GPUS, "Voodoo 2")), max_size=3, unique=True).map(tuple),
    capabilities=st.sampled_from(((), (), ("8.6",), ("15.0",))),
    install=st.sampled_from((None, None, "and-cuda", "plain", "system")),
    base_image=st.sampled_from((None, None, *(row.name for row in CATALOG.images[::9]))),
    os=st.sampled_from((None, "debian-bullseye", "debian-trixie", "beos")),
    arch=st.sampled_from(("x86_64", "x86_64", "aarch64")),
    packages=st.lists(
        st.sampled_from(("numpy==2.0.0", "numpy==1.23.5", "protobuf==7.0.0", "keras==2.15.0", "h5py==3.15.0")),
        max_size=2,
        unique=True,
    ).map(tuple),
    avx=st.sampled_from((True, True, False)),
    as_of=st.sampled_from((None, "2020-01-01", "2026-11-20")),
)
