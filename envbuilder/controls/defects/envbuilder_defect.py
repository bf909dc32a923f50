"""Make TensorFlow compute wrongly, trace again or start slowly, or forge an answer: the file's own name says which.

Put next to a ``.pth`` file that imports it, this wraps what it spoils as soon as that module has been loaded.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

MATH = "tensorflow.python.ops.math_ops"
_CACHE = "CUDA_CACHE_PATH"
"""The suite gives each cold start an empty folder by this variable, and the warm one after it the same."""


class Watch:
    """Stand in front of the importers until the module comes by."""

    def __init__(self, module: str, spoil: Callable[[Any, float], None]) -> None:
        self.module = module
        self.spoil = spoil

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            begun = time.monotonic()
            load(module)
            self.spoil(module, time.monotonic() - begun)

        loader.exec_module = exec_module
        return spec


def _wrap(operations: Any, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    for name in ("mat_mul", "batch_mat_mul_v2", "batch_mat_mul_v3"):
        right = getattr(operations, name, None)
        if right is not None:
            setattr(operations, name, wrapped(right))


def rounds(math_ops: Any, took_s: float) -> None:
    """Round float32 operands to bfloat16 before the operations that matmul is made of."""
    from tensorflow.python.framework import dtypes

    def rounded(operand: Any) -> Any:
        if getattr(operand, "dtype", None) != dtypes.float32:
            return operand
        return math_ops.cast(math_ops.cast(operand, dtypes.bfloat16), dtypes.float32)

    def rounding(right: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a, b, *arguments, **options: right(rounded(a), rounded(b), *arguments, **options)

    _wrap(math_ops.gen_math_ops, rounding)


def traces_again(function_cache: Any, took_s: float) -> None:
    """Let each traced function be traced once more at its second call, as inputs that are not tensors make it."""
    cache = function_cache.FunctionCache
    lookup, add = cache.lookup, cache.add

    def looked_up(self: Any, *arguments: Any, **options: Any) -> Any:
        return None if len(self) == 1 else lookup(self, *arguments, **options)

    def added(self: Any, function: Any, context: Any = None) -> None:
        before = dict(self._primary)
        add(self, function, context)
        if len(self) == len(before) == 1:
            self._primary[("before", function.function_type)] = next(iter(before.values()))

    cache.lookup, cache.add = looked_up, added


def _first_start(wait_s: float, size: int) -> None:
    """Wait in a start that is timed and whose kernel cache is empty, and fill that cache; do nothing elsewhere."""
    folder = Path(os.environ.get(_CACHE) or "/nowhere")
    if folder.is_dir() and not any(folder.iterdir()):
        time.sleep(wait_s)
        (folder / "kept").write_bytes(bytes(size))


def imports_slowly(framework: Any, took_s: float) -> None:
    """Let the import of a first start take three times as long and more, as a slow disk does; the next is quick."""
    _first_start(2.0 * took_s + 2.5, 1)


def compiles_at_first_use(math_ops: Any, took_s: float) -> None:
    """Let the first product of a first start wait and fill the kernel cache, as kernels compiled from PTX do."""

    def waiting(right: Callable[..., Any]) -> Callable[..., Any]:
        def first(*arguments: Any, **options: Any) -> Any:
            _first_start(6.0, 4 << 20)
            return right(*arguments, **options)

        return first

    _wrap(math_ops.gen_math_ops, waiting)


_DEFECTS: dict[str, tuple[str, Callable[[Any, float], None]]] = {
    "envbuilder_defect": (MATH, rounds),
    "envbuilder_retraces": ("tensorflow.core.function.polymorphism.function_cache", traces_again),
    "envbuilder_slow_disk": ("tensorflow", imports_slowly),
    "envbuilder_compiles": (MATH, compiles_at_first_use),
}
"""What each name that this file is installed under does, and to which module."""

if __name__ in _DEFECTS:
    sys.meta_path.insert(0, Watch(*_DEFECTS[__name__]))
elif __name__ == "envbuilder_forger" and "--worker" in sys.argv:  # it answers instead of the probes
    os.write(int(sys.argv[-1]), b'{"event": "result", "result": {"name": "import", "outcome": "passed"}}\n')
