"""Real TensorFlow in the real GPU image meets simulated drivers, and says what it would say on those hosts."""

import pytest
from table_rows import beside, rows

from envbuilder.catalog.store import load
from envbuilder.controls.run import Controller
from envbuilder.engine.port import ContainerSpec, Engine
from envbuilder.image.build import Built
from envbuilder.simulated import compiler
from envbuilder.simulated import profile as profiles

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(1800)]

HOSTS = beside(__file__)["hosts"]


@pytest.fixture(scope="module")
def gpu(controller: Controller) -> Built:
    return controller.good("gpu")


@pytest.fixture(scope="module")
def said(engine: Engine, gpu: Built) -> dict[str, str]:
    """Let TensorFlow in the image meet every host; return all that it prints on each."""
    hosts = {name: profiles.parse(text, load()) for name, text in HOSTS.items()}
    simulation = compiler.simulation(hosts["one"])
    image = engine.image(gpu.record.reference)
    out, err = bytearray(), bytearray()
    spec = ContainerSpec(
        image=gpu.record.reference,
        command=("python", "-c", beside(__file__)["program"], *HOSTS),
        env={"HOME": "/tmp", **simulation.environment(image.env)},
        files={
            **simulation.files,
            **{f"simulated/{name}": profiles.statements(host).encode() for name, host in hosts.items()},
        },
        time_limit=600,
    )
    assert engine.run(spec, out.extend, err.extend).exit_code == 0, err.decode(errors="replace")
    parts = out.decode(errors="replace").split("HOST ")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


@rows
def test_tensorflow_names_the_drivers_error(host: str, message: str, said: dict[str, str]) -> None:
    assert "failed call to cuInit" in said[host]
    assert message in said[host]
    assert "GPUS 0\n" in said[host]


def test_old_driver_is_refused_by_the_cuda_runtime_itself(said: dict[str, str]) -> None:
    """TensorFlow lists the GPU, and the CUDA runtime refuses the driver with its own message."""
    message = "ERROR cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version"
    assert "GPUS 1\n" in said["old-driver"]
    assert message in said["old-driver"]


@pytest.mark.parametrize(("host", "count"), [("one", 1), ("eight", 8)])
def test_every_gpu_is_enumerated(host: str, count: int, said: dict[str, str]) -> None:
    assert f"GPUS {count}\n" in said[host]
    assert said[host].count("GPU NVIDIA H100 PCIe 9 0\n") == count


def test_simulation_ends_where_the_runtime_asks_for_the_real_driver(said: dict[str, str]) -> None:
    """With a driver that is new enough, the runtime reads private tables that only a real driver has."""
    assert "ERROR cudaGetDevice() failed. Status: named symbol not found" in said["one"]
