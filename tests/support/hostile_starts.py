"""Images in which other code is loaded where Python, the loader, OpenSSL or a shell starts, and forged witnesses for it."""

from __future__ import annotations

from hostile_row import CONFIGURED, FILES, SECRET, SITE, Hostile, row

_DIGEST = (
    'import base64,hashlib,sys; print(base64.urlsafe_b64encode(hashlib.sha256(open(sys.argv[1],"rb").read()).digest())'
    '.decode().rstrip("="))'
)
_ARCH = "/usr/lib/x86_64-linux-gnu"
_LIBZ = f"f=$(readlink -f {_ARCH}/libz.so.1) && cp $f /opt/z && printf x >> /opt/z"


def _vouched(place: str, path: str, content: str) -> str:
    """Write a file, and below a folder the RECORD of a distribution of no Python that says so."""
    return (
        f"RUN mkdir -p {place}/mine-1.dist-info && {content} > {path} && printf 'Name: mine\\nVersion: 1\\n' > "
        f"{place}/mine-1.dist-info/METADATA && h=$(python -ISc '{_DIGEST}' {path}) && "
        f'echo "{path},sha256=$h," > {place}/mine-1.dist-info/RECORD'
    )


START_IMAGES: tuple[Hostile, ...] = (
    # Witnesses that nobody asked.
    row("record-of-a-folder-that-no-python-reads", _vouched("/srv/x-site-packages", f"{SITE}/zz.pth", "echo 'import os'"), FILES, fast=True),
    row("record-beside-the-packages", _vouched("/opt/venv/lib/python3.11/dist-packages", "/opt/venv/bin/dirname", "cat /usr/bin/dirname")
        + " && chmod 755 /opt/venv/bin/dirname", FILES),
    row("record-that-calls-a-secret-public", _vouched("/srv/x-site-packages", "/root/.netrc", "echo 'machine a.example login b password hunter2'"), SECRET),
    # Which Python it is.
    row("interpreter-and-its-note-written-anew", "RUN cd /opt/venv/bin && cp $(readlink -f python3) new && printf x >> new && rm -f python python3 "
        "python3.11 && mv new python3.11 && ln -s python3.11 python && ln -s python3.11 python3 && cp ../pyvenv.cfg /opt/n && cat /opt/n > "
        "../pyvenv.cfg", FILES),
    row("python3-is-another-program", "RUN ln -sf /usr/bin/perl /opt/venv/bin/python3", FILES),
    row("home-in-capitals", "RUN mkdir -p /opt/home/bin /opt/home/lib && cp -r /usr/lib/python3.11 /opt/home/lib/ && ln -s /usr/bin/python3.11 "
        "/opt/home/bin/python3.11 && sed -i '1i HOME = /opt/home/bin' /opt/venv/pyvenv.cfg", FILES),
    row("standard-library-moved-and-changed", "RUN mv /usr/lib/python3.11 /opt/p && ln -s /opt/p /usr/lib/python3.11 && echo '#' >> /opt/p/hmac.py", FILES),
    row("standard-library-moved", "RUN mv /usr/lib/python3.11 /opt/p && ln -s /opt/p /usr/lib/python3.11"),
    row("list-of-conda-s-vouches", f"RUN mkdir /conda-meta && echo '{{\"files\": [\"{SITE[1:]}/zz.pth\"]}}' > /conda-meta/mine-1.json && echo 'import os' > "
        f"{SITE}/zz.pth", FILES),
    row("libraries-of-a-conda-in-front", f"RUN mkdir -p /opt/conda/lib /opt/conda/conda-meta && cp {_ARCH}/libz.so.1 /opt/conda/lib/ && "
        "echo '{\"files\": [\"lib/libz.so.1\"]}' > /opt/conda/conda-meta/zlib-1.json\nENV LD_LIBRARY_PATH=/opt/conda/lib", FILES),
    row("record-of-pip-vouches", f"RUN cd {SITE} && mkdir -p pip-99.dist-info && echo 'import os' > zz.pth && printf 'Name: pip\\nVersion: 99\\n' > "
        f"pip-99.dist-info/METADATA && h=$(python -ISc '{_DIGEST}' zz.pth) && printf \"zz.pth,sha256=$h,\\npip-99.dist-info/METADATA,,\\n"
        "pip-99.dist-info/RECORD,,\\n\" > pip-99.dist-info/RECORD", FILES),
    row("byte-code-with-a-hash", f"RUN cd {SITE} && python -Ic \"import py_compile, importlib.util as u; f = py_compile.compile('six.py', "
        "invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH); open(f, 'ab').write(b'x')\"", FILES),
    row("source-touched-with-its-byte-code", f"RUN cd {SITE} && touch six.py && python -Ic \"import py_compile; f = py_compile.compile('six.py'); "
        "open(f, 'ab').write(b'x')\"", FILES),
    # What Python imports first.
    row("package-in-the-standard-library", f"RUN mkdir /usr/lib/python3.11/six && cp {SITE}/six.py /usr/lib/python3.11/six/__init__.py", FILES),
    row("packages-of-another-folder-in-front", f"RUN d=/opt/extra/site-packages && mkdir -p $d && cp -r {SITE}/six.py {SITE}/six-*.dist-info $d/\n"
        "ENV PYTHONPATH=/opt/extra/site-packages", FILES),
    row("customisation-by-pythonpath", "RUN mkdir /opt/v && echo x=1 > /opt/v/usercustomize.py\nENV PYTHONPATH=/opt/v", FILES),
    row("python-path-behind-a-link", f"RUN mkdir /opt/real && cp {SITE}/six.py /opt/real/ && ln -s /opt/real /opt/v\nENV PYTHONPATH=/opt/v", FILES),
    row("package-of-byte-code-in-front", f"RUN mkdir -p /opt/v/six && python -Ic \"import py_compile; py_compile.compile('{SITE}/six.py', "
        "'/opt/v/six/__init__.pyc')\"\nENV PYTHONPATH=/opt/v", FILES),
    # What the loader, the C library and OpenSSL take.
    row("library-behind-another-link", f"RUN {_LIBZ} && ln -sf /opt/z {_ARCH}/libz.so.1", FILES),
    row("library-changed-twice", f"RUN {_LIBZ} && cat /opt/z > $f\nRUN cat /opt/z > $(readlink -f {_ARCH}/libz.so.1)", FILES),
    row("library-for-newer-processors-of-the-system", f"RUN mkdir -p /usr/lib/glibc-hwcaps/x86-64-v2 && cp {_ARCH}/libz.so.1 /usr/lib/glibc-hwcaps/x86-64-v2/", FILES),
    row("loader-s-cache-names-another-file", f"RUN mkdir /opt/mineminemin && cp {_ARCH}/libz.so.1 /opt/mineminemin/libcudamine.so && python -ISc \"p = "
        "'/etc/ld.so.cache'; b = open(p, 'rb').read(); n = b.replace(b'/lib/x86_64-linux-gnu/libz.so.1', b'/opt/mineminemin/libcudamine.so'); "
        "assert n != b; open(p, 'wb').write(n)\"", FILES),
    row("charset-of-ones-own", f"RUN mkdir -p {_ARCH}/gconv && cp {_ARCH}/libz.so.1 {_ARCH}/gconv/MINE.so", FILES),
    row("settings-of-openssl-where-it-looks", "RUN mkdir -p /usr/lib/ssl && rm -f /usr/lib/ssl/openssl.cnf && printf '[engine]\\n' > /usr/lib/ssl/openssl.cnf", FILES),
    row("folder-by-a-word-of-the-loader", f"RUN mkdir -p /opt/x/lib/x86_64-linux-gnu && cp {_ARCH}/libz.so.1 /opt/x/lib/x86_64-linux-gnu/\n"
        "ENV LD_LIBRARY_PATH=/opt/x/\\$LIB", CONFIGURED),
    row("library-into-every-program-of-cuda", f"ENV CUDA_INJECTION64_PATH={_ARCH}/libz.so.1", CONFIGURED),
    # What a shell runs.
    row("function-in-the-place-of-python", "ENV BASH_FUNC_python%%=\"() { exit 0; }\"", CONFIGURED, fast=True),
    row("file-that-every-bash-runs", "ENV BASH_ENV=/opt/nowhere.sh", warns=(CONFIGURED,)),
)  # fmt: skip
