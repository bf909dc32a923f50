# ruff: noqa: BLE001, PLC0415, S310, T201 - a program: a part imports what it needs, and its failure is printed
"""A program that asks the framework for much of what it offers, part by part: run in an image, by its Python.

    python exercise.py FOLDER

Prints a line for each part: its name, then ``ok`` or the class of the exception that ended it; exits 0. The folder is
written to. It needs what a container of no network, no GPU and two processors has. What it opened is followed from
outside (`tests/integration/test_exercise.py`), so it asks for what is imported, read or started late; kernels are all
in one library, and a few of each kind stand for them.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

PARTS: list[Callable[[Path], None]] = []


def part(function: Callable[[Path], None]) -> Callable[[Path], None]:
    PARTS.append(function)
    return function


def needs(held: object) -> None:
    """Raise ValueError where something does not hold: `assert` goes with -O."""
    if not held:
        raise ValueError


def small_model() -> tf.keras.Model:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 3)),
            tf.keras.layers.Conv2D(4, 3, activation="relu"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


PICTURES = np.random.default_rng(1).random((16, 8, 8, 3), dtype=np.float32)
CLASSES = np.arange(16) % 2


@part
def operations(_: Path) -> None:
    from tensorflow.experimental import numpy as tnp
    from tensorflow.python.ops.linalg.sparse import sparse  # noqa: F401 - nothing else imports it

    matrix = tf.eye(4) * 2.0
    needs(float(tf.linalg.det(matrix @ tf.linalg.inv(matrix))) == 1)
    wave = tf.random.stateless_normal((2, 1024), (1, 2))
    needs(tf.signal.irfft(tf.signal.rfft(wave)).shape == wave.shape)
    needs(float(tf.sparse.sparse_dense_matmul(tf.sparse.eye(4), matrix)[0, 0]) == 2)
    needs(float(tnp.sum(tnp.arange(4))) == 6)
    needs(int(tf.audio.decode_wav(tf.audio.encode_wav(tf.zeros((100, 1)), 8000)).sample_rate) == 8000)
    capsule = tf.experimental.dlpack.to_dlpack(tf.ones(3))
    needs(tf.experimental.dlpack.from_dlpack(capsule).shape == (3,))
    needs(tf.image.decode_image(tf.io.encode_png(tf.zeros((4, 4, 3), tf.uint8))).shape == (4, 4, 3))
    needs(tf.strings.split("a b").shape == (2,))
    tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).run(lambda: tf.constant(1.0))
    layers = tf.keras.layers
    layers.Conv2DTranspose(2, 3)(layers.Conv2D(2, 3)(PICTURES))
    layers.MultiHeadAttention(2, 4)(layers.LSTM(4, return_sequences=True)(wave[..., None]), tf.ones((2, 1, 4)))
    for name in ("SGD", "Adam", "Ftrl"):
        getattr(tf.keras.optimizers, name)(0.1).apply_gradients([(tf.constant(1.0), tf.Variable(1.0))])


@part
def training(folder: Path) -> None:
    callbacks = tf.keras.callbacks
    small_model().fit(
        PICTURES,
        CLASSES,
        epochs=2,
        batch_size=4,
        validation_split=0.25,
        verbose=0,
        callbacks=[
            callbacks.TensorBoard(str(folder / "fit"), histogram_freq=1, profile_batch=(1, 2)),
            callbacks.CSVLogger(str(folder / "fit.csv")),
            callbacks.EarlyStopping(patience=1),
            callbacks.ModelCheckpoint(str(folder / "fit.weights.h5"), save_weights_only=True),
        ],
    )


@part
def compiled(_: Path) -> None:
    @tf.function(jit_compile=True)
    def body(image: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            image = tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "SAME"))
        folded = tf.signal.rfft(tf.sort(tf.reshape(image, (-1,)))[:64])
        return tf.reduce_sum(tf.abs(folded)) + tf.reduce_sum(tf.random.stateless_normal((4,), (1, 2)))

    arguments = tf.ones((1, 8, 8, 3)), tf.ones((3, 3, 3, 3))
    body(*arguments)
    for stage in ("hlo", "optimized_hlo"):
        needs(body.experimental_get_compiler_ir(*arguments)(stage=stage))
    tf.function(tf.linalg.cholesky, jit_compile=True)(tf.eye(4))
    model = small_model()
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy", jit_compile=True)
    model.train_on_batch(PICTURES, CLASSES)


@part
def graphs(_: Path) -> None:
    @tf.function
    def counted(limit: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0)
        while total < limit:
            if total % 2 == 0:
                total += 1
            else:
                total += 2
        return total + tf.numpy_function(lambda: np.int32(1), [], tf.int32)

    needs(int(counted(tf.constant(9))) > 9)
    tf.py_function(lambda: 1, [], tf.int32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        held = tf.compat.v1.placeholder(tf.float32, (2,))
        needs(session.run(held * 2, {held: [1.0, 2.0]})[1] == 4)
    tf.map_fn(lambda each: each * 2, tf.range(3))
    tf.vectorized_map(lambda each: each * 2, tf.range(3))
    tf.autograph.to_code(counted.python_function)


@part
def profiled(folder: Path) -> None:
    with tf.profiler.experimental.Profile(str(folder / "profile")):
        tf.function(lambda a: a @ a)(tf.ones((64, 64)))
    needs(list((folder / "profile").rglob("*.xplane.pb")))


@part
def saved(folder: Path) -> None:
    model = small_model()
    for name in ("model.keras", "model.h5"):
        model.save(str(folder / name))
        tf.keras.models.load_model(str(folder / name)).predict(PICTURES, verbose=0)
    model.export(str(folder / "exported")) if hasattr(model, "export") else tf.saved_model.save(
        model, str(folder / "exported")
    )
    tf.saved_model.load(str(folder / "exported"))

    class Doubled(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None,), tf.float32)])
        def __call__(self, given: tf.Tensor) -> tf.Tensor:
            return given * 2

    tf.saved_model.save(Doubled(), str(folder / "module"))
    needs(float(tf.saved_model.load(str(folder / "module"))(tf.constant([2.0]))[0]) == 4)
    checkpoint = tf.train.Checkpoint(value=tf.Variable(1.0))
    manager = tf.train.CheckpointManager(checkpoint, str(folder / "checkpoints"), 1)
    manager.save()
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    tf.train.list_variables(manager.latest_checkpoint)
    model.to_json(), model.summary(print_fn=lambda *_, **__: None)


@part
def converted(folder: Path) -> None:
    model = small_model()

    def examples() -> object:
        for picture in PICTURES[:4]:
            yield [picture[None]]

    for whole in (False, True):
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
        if whole:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = examples
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        content = converter.convert()
        (folder / f"model-{whole}.tflite").write_bytes(content)
        interpreter = tf.lite.Interpreter(model_content=content)
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], PICTURES[:1])
        interpreter.invoke()
    tf.lite.experimental.Analyzer.analyze(model_content=content)


@part
def data(folder: Path) -> None:
    names = str(folder / "records")
    with tf.io.TFRecordWriter(names, "GZIP") as writer:
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
        writer.write(tf.train.Example(features=tf.train.Features(feature={"a": feature})).SerializeToString())
    for record in tf.data.TFRecordDataset(names, "GZIP"):
        tf.io.parse_single_example(record, {"a": tf.io.FixedLenFeature((), tf.int64)})
    (folder / "texts").write_text("a,b\n1,2\n3,4\n")
    list(tf.data.TextLineDataset(str(folder / "texts")))
    list(tf.data.experimental.make_csv_dataset(str(folder / "texts"), 1, num_epochs=1, shuffle=False))
    rows = tf.data.Dataset.range(20).map(lambda each: each * 2, tf.data.AUTOTUNE).shuffle(4).batch(4).prefetch(2)
    rows = rows.cache(str(folder / "cache")).interleave(tf.data.Dataset.from_tensor_slices, num_parallel_calls=2)
    needs(len(list(rows)) == 20)
    rows.save(str(folder / "saved"))
    needs(len(list(tf.data.Dataset.load(str(folder / "saved")))) == 20)
    list(tf.data.Dataset.range(4).snapshot(str(folder / "snapshot")))
    list(tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec((), tf.int32)))
    list(tf.data.Dataset.range(9).window(3).flat_map(lambda each: each.batch(3)))


@part
def data_service(_: Path) -> None:
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1]))
    shared = service.distribute("parallel_epochs", dispatcher.target)
    needs(len(list(tf.data.Dataset.range(5).apply(shared))) == 5)
    del worker


@part
def servers(_: Path) -> None:
    server = tf.distribute.Server.create_local_server()
    with tf.Graph().as_default(), tf.compat.v1.Session(server.target) as session:
        needs(session.run(tf.constant(2) * 3) == 6)


@part
def summaries(folder: Path) -> None:
    logs = str(folder / "logs")
    with tf.summary.create_file_writer(logs).as_default():
        tf.summary.scalar("a", 1.0, 1), tf.summary.histogram("b", tf.ones(3), 1), tf.summary.text("c", "d", 1)
        tf.summary.image("e", PICTURES[:1], 1), tf.summary.audio("f", tf.zeros((1, 10, 1)), 8000, 1)
        tf.summary.trace_on(graph=True, profiler=False)
        tf.function(lambda: tf.constant(1))()
        tf.summary.trace_export("g", 1)
    from tensorboard import program
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    needs(EventAccumulator(logs).Reload().Tags()["tensors"])
    board = program.TensorBoard()
    board.configure(argv=[None, "--logdir", logs, "--port", "0", "--load_fast", "false"])
    address = board.launch()
    for path in ("", "data/plugins_listing", "data/environment", "data/plugin/scalars/tags", "index.js"):
        with urllib.request.urlopen(address + path, timeout=60) as answer:
            needs(answer.read())


@part
def debugged(folder: Path) -> None:
    tf.debugging.experimental.enable_dump_debug_info(str(folder / "dump"), tensor_debug_mode="FULL_HEALTH")
    try:
        tf.function(lambda a: a + 1)(tf.ones(2))
    finally:
        tf.debugging.experimental.disable_dump_debug_info()
    tf.debugging.enable_check_numerics()
    tf.debugging.disable_check_numerics()
    tf.sysconfig.get_build_info(), tf.sysconfig.get_link_flags(), tf.sysconfig.get_lib()


@part
def numpys_own(_: Path) -> None:
    import google.protobuf.json_format
    import h5py
    import opt_einsum

    needs(opt_einsum.contract("ij,jk->ik", np.eye(2), np.eye(2)).shape == (2, 2))
    np.linalg.svd(np.random.default_rng(1).random((4, 4))), np.fft.fft(np.ones(4)), np.polynomial.Polynomial([1, 2])
    np.testing.assert_allclose(np.ones(2), np.ones(2))
    needs(h5py.version.info)
    google.protobuf.json_format.MessageToJson(tf.train.Example())


@part
def programs(folder: Path) -> None:
    place = Path(sys.executable).parent
    show = ["show", "--dir", str(folder / "module"), "--all"]
    run = ["run", "--dir", str(folder / "module"), "--tag_set", "serve", "--signature_def", "serving_default"]
    for words in (
        ["saved_model_cli", *show],
        ["saved_model_cli", *run, "--input_exprs", "given=[1.0,2.0]"],
        ["tensorboard", "--inspect", "--logdir", str(folder / "logs")],
        ["tensorboard", "--version_tb"],
        ["tf_upgrade_v2", "--help"],
        ["tflite_convert", "--help"],
        ["markdown_py", "--version"],
        ["f2py", "-v"],
    ):
        if (place / words[0]).exists():
            subprocess.run([str(place / words[0]), *words[1:]], check=True, capture_output=True, timeout=600)


def main(folder: Path) -> int:
    """Run all parts, each whether or not those before it ended well."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    for each in PARTS:
        place = folder / each.__name__
        place.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                each(folder if each in (saved, summaries, programs) else place)
        except Exception as error:  # whatever a part raises is its answer
            print(each.__name__, type(error).__name__, str(error)[:300].replace("\n", " "), flush=True)
        else:
            print(each.__name__, "ok", flush=True)
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)  # servers of TensorBoard and the profiler do not end by themselves
