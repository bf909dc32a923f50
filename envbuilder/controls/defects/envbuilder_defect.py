"""Make TensorFlow's matmul wrong: computed in bfloat16, as a build or a setting that trades precision would do.

Put next to a ``.pth`` file that imports it, this wraps the operations as soon as their module has been loaded.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE = "tensorflow.python.ops.math_ops"


class Watch:
    """Stand in front of the importers until the module comes by."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            spoil(module)

        loader.exec_module = exec_module
        return spec


def spoil(math_ops: Any) -> None:
    """Round float32 operands to bfloat16 before the operations that matmul is made of."""
    for name in ("mat_mul", "batch_mat_mul_v2", "batch_mat_mul_v3"):
        right = getattr(math_ops.gen_math_ops, name, None)
        if right is not None:
            setattr(math_ops.gen_math_ops, name, rounding(math_ops, right))


def rounding(math_ops: Any, right: Callable[..., Any]) -> Callable[..., Any]:
    """Return the operation with its operands rounded."""

    def wrong(a: Any, b: Any, *arguments: Any, **options: Any) -> Any:
        return right(rounded(math_ops, a), rounded(math_ops, b), *arguments, **options)

    return wrong


def rounded(math_ops: Any, operand: Any) -> Any:
    """Round a float32 tensor to bfloat16 and back; leave everything else."""
    from tensorflow.python.framework import dtypes

    if getattr(operand, "dtype", None) != dtypes.float32:
        return operand
    return math_ops.cast(math_ops.cast(operand, dtypes.bfloat16), dtypes.float32)


sys.meta_path.insert(0, Watch())
