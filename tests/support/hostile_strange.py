"""Images with strange files and links, things that only the kernel or the C library notices, and hangs of every kind."""

from __future__ import annotations

from hostile_liars import IN_WORKERS, framework, start
from hostile_row import CONFIGURED, CRASHED, FILES, MISMATCH, SECRET, SITE, START, TIMEOUT, WRONG, Hostile, row

_GITHUB = "ghp_" + "a1B2" * 9
_SLEEP = "import tensorflow as _t, time as _time\ndef _no(*a, **k): _time.sleep(3000)\n"

_FORKS = IN_WORKERS + "\n    while 1:\n        try: os.fork()\n        except OSError: time.sleep(0.01)"
_FILLS = (
    "import os as _os\n_f = _os.open('/tmp/full', 66, 384)\ntry:\n    while 1: _os.write(_f, bytes(1 << 20))\n"
    "except OSError: pass"
)
_TAKES = "import mmap as _m\n_all = []\nwhile 1: _all.append(_m.mmap(-1, 1 << 28, flags=_m.MAP_PRIVATE | _m.MAP_ANONYMOUS | _m.MAP_POPULATE))"
_OPENS = "_all = []\ntry:\n    while 1: _all.append(open('/dev/null'))\nexcept OSError: pass"

STRANGE_IMAGES: tuple[Hostile, ...] = (
    row("folder-moved-to-where-anybody-may-write", f"RUN mv {SITE}/six.py /var/tmp/six.py && chmod 666 /var/tmp/six.py && ln -s /var/tmp/six.py {SITE}/six.py", warns=(CONFIGURED,)),
    row("name-that-differs-in-case", f"RUN echo x=1 > {SITE}/Numpy.py", FILES),
    row("hard-link-over-a-file", f"RUN ln -f {SITE}/six.py {SITE}/h5py/version.py", FILES),
    row("folder-emptied-and-filled-again", f"RUN cp -a {SITE}/numpy /opt/n && rm -r {SITE}/numpy && cp -a /opt/n {SITE}/numpy && rm -r /opt/n"),
    row("name-that-is-no-text", f"RUN touch \"/srv/$(printf '\\377').py\" \"{SITE}/$(printf '\\377')\""),
    row("file-of-holes", "RUN truncate -s 2G /var/holes"),
    row("path-that-is-too-long", "RUN python3 -c \"import os; os.chdir('/srv'); [(os.mkdir('d' * 200), os.chdir('d' * 200)) for _ in range(30)]; open('x.py', 'w').close()\""),
    row("device-in-place-of-a-module", f"RUN rm {SITE}/six.py && mknod {SITE}/six.py c 1 3", FILES),
    row("whiteout-in-place-of-a-module", f"RUN rm {SITE}/six.py && mknod {SITE}/six.py c 0 0 || true", FILES),
    row("capabilities-on-python", "RUN python3 -c \"import os, struct; os.setxattr('/usr/bin/python3.11', 'security.capability', struct.pack('<5I', 0x02000001, 1 << 21, 0, 0, 0))\"", CONFIGURED, fast=True),
    row("python-wrapped-in-front", "RUN printf '#!/bin/sh\\nexec /opt/venv/bin/python \"$@\"\\n' > /usr/local/bin/python && chmod 755 /usr/local/bin/python\nENV PATH=/usr/local/bin:/opt/venv/bin:/usr/bin:/bin", CONFIGURED),
    row("egg-on-the-path", f"RUN cd {SITE} && python -Ic \"import zipfile; zipfile.ZipFile('mine-1-py3.11.egg','w').write('six.py','mine.py')\" && echo ./mine-1-py3.11.egg > easy-install.pth", FILES),
    row("pth-imports-from-a-namespace", f"RUN mkdir -p {SITE}/google && echo x=1 > {SITE}/google/helper.py && echo 'import google.helper' > {SITE}/zz.pth", FILES),
    row("tunables-of-the-c-library", "ENV GLIBC_TUNABLES=glibc.malloc.check=3", warns=(CONFIGURED,)),
    row("name-service-of-ones-own", "RUN cp /usr/lib/x86_64-linux-gnu/libz.so.1 /usr/lib/x86_64-linux-gnu/libnss_mine.so.2 && sed -i 's/^passwd:.*/passwd: mine files/' /etc/nsswitch.conf", FILES),
    row("locale-that-is-not-there", "ENV LC_ALL=xx_YY.UTF-8"),
    row("encoding-that-is-not-there", "ENV PYTHONIOENCODING=utf-99", CONFIGURED, fast=True),
    row("allocator-that-is-not-there", "ENV PYTHONMALLOC=nosuch", CONFIGURED),
    row("path-that-is-safe", "ENV PYTHONSAFEPATH=1"),
    row("no-threads-at-all", "ENV OMP_NUM_THREADS=0", CONFIGURED),
    row("memory-arenas", "ENV MALLOC_ARENA_MAX=1 TF_ENABLE_ONEDNN_OPTS=0"),
    row("header-of-the-framework-changed", f"RUN echo '//' >> {SITE}/tensorflow/include/tensorflow/core/public/version.h", FILES),
    row("flags-from-a-file", "RUN echo '--no_such_flag=1' > /opt/flags\nENV XLA_FLAGS=/opt/flags", CONFIGURED),
    row("entry-point-forgets-variables", "ENTRYPOINT [\"/usr/bin/env\", \"-i\"]", START),
    row("home-that-is-not-there", "ENV HOME=/nowhere"),
    row("instructions-for-later", "ONBUILD RUN rm -r /opt/venv"),
    row("no-room-for-temporary-files", "RUN chmod 755 /tmp", CONFIGURED),
    row("secret-in-byte-code", f"RUN mkdir -p /srv/app && echo 'TOKEN = \"{_GITHUB}\"' > /srv/app/s.py && python -Ic \"import py_compile; py_compile.compile('/srv/app/s.py', '/srv/app/s.pyc')\" && rm /srv/app/s.py", SECRET),
    row("secret-in-a-database", f"RUN python -Ic \"import sqlite3; c=sqlite3.connect('/srv/a.db'); c.execute('create table t (k)'); c.execute('insert into t values (?)', ['{_GITHUB}']); c.commit()\"", SECRET),  # noqa: S608 - of this table alone
    row("secret-in-a-packed-log", f"RUN (yes x | head -n 9999; echo {_GITHUB}) | gzip > /srv/build.log.gz", SECRET),
    row("secret-in-a-packed-archive", f"RUN mkdir /srv/w && echo {_GITHUB} > /srv/w/t && tar -czf /srv/w.tgz -C /srv w && rm -r /srv/w", SECRET),
    row("secret-in-a-git-object", f"RUN python -Ic \"import zlib,os; os.makedirs('/srv/r/.git/objects/ab'); open('/srv/r/.git/objects/ab/' + 'c' * 38, 'wb').write(zlib.compress(b'blob 41' + bytes(1) + b'{_GITHUB}'))\"", SECRET, fast=True),
    row("secret-of-a-notebook-server", "RUN mkdir /root/.jupyter && echo \"c.ServerApp.token = 'abcdef0123456789'\" > /root/.jupyter/jupyter_server_config.py", SECRET),
    row("netrc-for-new-users", "RUN mkdir -p /etc/skel && echo 'machine a.example login b password hunter2' > /etc/skel/.netrc", SECRET),
    row("pip-conf-of-the-environment", "RUN printf '[global]\\nindex-url = https://me:hunter2@example.com/s\\n' > /opt/venv/pip.conf", SECRET),
    row("no-shell", "RUN [\"/opt/venv/bin/python\", \"-c\", \"import os; os.remove('/bin/sh')\"]", CRASHED, fast=True),
    row("everybody-is-stopped", start(IN_WORKERS + "os.kill(-1, 19)"), FILES, TIMEOUT),
    row("workers-fork-for-ever", start(_FORKS), FILES, TIMEOUT),
    row("scratch-space-is-filled", framework(_FILLS), FILES, WRONG),
    row("import-takes-all-memory", framework(_TAKES), FILES),
    row("descriptors-are-all-taken", framework(_OPENS), FILES),
    row("matmul-hangs", framework(_SLEEP + "_t.matmul = _t.linalg.matmul = _no"), FILES, TIMEOUT),
    row("convolution-hangs", framework(_SLEEP + "_t.nn.conv2d = _no\n_t.sort = _no\n_t.io.decode_jpeg = _no"), FILES, TIMEOUT),
    row("pictures-never-end", framework("import tensorflow as _t\ndef _no(*a, **k):\n    while True: pass\n_t.io.decode_jpeg = _t.cumsum = _no"), FILES, TIMEOUT),
    row("preload-behind-a-link", "RUN echo /usr/lib/x86_64-linux-gnu/libz.so.1 > /opt/preload && ln -s /opt/preload /etc/ld.so.preload", FILES),
    row("loader-replaced", "RUN f=$(readlink -f /lib64/ld-linux-x86-64.so.2) && cp $f /opt/ld && printf x >> /opt/ld && mv /opt/ld $f", FILES),
    row("interpreter-of-the-environment-patched", "RUN cd /opt/venv/bin && cp --remove-destination $(readlink -f python3.11) python3.11.new && printf x >> python3.11.new && rm -f python3.11 python python3 && mv python3.11.new python3.11 && ln -s python3.11 python && ln -s python3.11 python3", FILES),
    row("archive-in-pythonpath", f"RUN cd {SITE} && python -Ic \"import zipfile; zipfile.ZipFile('/opt/m.zip','w').write('six.py')\"\nENV PYTHONPATH=/opt/m.zip", FILES),
    row("byte-code-from-elsewhere", f"RUN mkdir -p /opt/cache{SITE} && cd {SITE} && python -Ic \"import py_compile; py_compile.compile('six.py','/opt/cache{SITE}/six.cpython-311.pyc')\"\nENV PYTHONPYCACHEPREFIX=/opt/cache", CONFIGURED, FILES),
    row("log-of-everything", "ENV TF_CPP_MAX_VLOG_LEVEL=3", warns=(CONFIGURED,)),
    row("older-cuda-by-the-loaders-configuration", f"RUN mkdir -p /opt/cuda && cp {SITE}/nvidia/cuda_runtime/lib/libcudart.so.12 /opt/cuda/ && printf x >> /opt/cuda/libcudart.so.12 && echo /opt/cuda > /etc/ld.so.conf.d/000.conf && ldconfig", "TWO_CUDA_STACKS", base="gpu"),
    row("heuristics-of-cudnn-swapped", f"RUN cd {SITE}/nvidia/cudnn/lib && cp libcudnn_graph.so.9 libcudnn_heuristic.so.9", FILES, MISMATCH, base="gpu"),
)  # fmt: skip
