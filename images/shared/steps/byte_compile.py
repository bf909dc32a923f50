"""Byte-compile all below a folder: ``python byte_compile.py FOLDER``. A source that cannot be compiled is reported."""

import compileall
import sys

if __name__ == "__main__":
    # Pools of processes may hang before Python 3.11: https://github.com/python/cpython/issues/90622
    compileall.compile_dir(sys.argv[1], maxlevels=99, quiet=1, workers=0 if sys.version_info >= (3, 11) else 1)
