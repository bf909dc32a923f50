"""Images as platform teams break them without meaning to, and forgeries of what starts the suite or vouches for a file."""

from __future__ import annotations

from hostile_row import CLAIM, CONFIGURED, FILES, SECRET, SITE, START, Hostile, row

_DIGEST = (
    'import base64,hashlib,sys; print(base64.urlsafe_b64encode(hashlib.sha256(open(sys.argv[1],"rb").read()).digest())'
    '.decode().rstrip("="))'
)


def _recorded(path: str, change: str) -> str:
    """Change a file of a package, and let the package's RECORD say that it always was so."""
    return (
        f"RUN cd {SITE} && {change} && h=$(python -ISc '{_DIGEST}' {path}) && "
        f"sed -i \"s|^{path},sha256=[^,]*|{path},sha256=$h|\" $(grep -l '^{path},' *.dist-info/RECORD)"
    )


MISTAKE_IMAGES: tuple[Hostile, ...] = (
    # What keeps working, and has to stay green.
    row("usual-variables", "ENV PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1 PYTHONFAULTHANDLER=1 TF_CPP_MIN_LOG_LEVEL=3 OMP_NUM_THREADS=2 "
        "TMPDIR=/nowhere LD_LIBRARY_PATH=/usr/local/cuda/lib64"),
    row("user-by-number", "USER 65534:65534"),
    row("documentation-removed", "RUN rm -rf /usr/share/doc /usr/share/man /usr/share/locale /var/lib/apt/lists /var/cache/apt"),
    row("variable-of-two-lines", "ENV NOTE=\"a\\\n::error::x\""),
    row("environment-by-another-name", "RUN ln -s /opt/venv /srv/venv\nENV PATH=/srv/venv/bin:/usr/bin:/bin VIRTUAL_ENV=/srv/venv"),
    row("path-of-the-environment-alone", "ENV PATH=/opt/venv/bin"),
    row("python-ran-as-root", "RUN python -c 'import tensorflow, unittest.mock, wsgiref.simple_server, this'"),
    row("lists-of-packages-removed", "RUN rm -r /var/lib/dpkg"),
    row("folder-closed-to-its-user", "RUN chmod 700 /root\nWORKDIR /root"),
    # As platform teams break them.
    row("python-of-the-environment-leads-nowhere", "RUN ln -sf /usr/bin/python3.12 /opt/venv/bin/python", CONFIGURED),
    row("configuration-of-the-environment-gone", "RUN rm /opt/venv/pyvenv.cfg", FILES),
    row("tests-of-packages-removed", f"RUN find {SITE}/numpy -type d -name tests -prune -exec rm -r {{}} +", FILES),
    row("library-purged-with-its-package", "RUN dpkg --purge --force-all libexpat1", "MISSING_LIBRARY"),
    row("entry-point-of-another-system", "RUN printf '#!/bin/sh\\r\\nexec \"$@\"\\r\\n' > /opt/e && chmod 755 /opt/e\nENTRYPOINT [\"/opt/e\"]", START),
    row("entry-point-in-shell-form", "ENTRYPOINT python", START),
    row("entry-point-waits-for-ever", "RUN printf '#!/bin/sh\\n\"$@\" &\\nexec tail -f /dev/null\\n' > /opt/e && chmod 755 /opt/e\nENTRYPOINT [\"/opt/e\"]", START),
    row("accounts-emptied", "RUN : > /etc/passwd", CONFIGURED),
    row("accounts-are-a-folder", "RUN rm /etc/passwd && mkdir /etc/passwd", CONFIGURED),
    row("settings-of-keras", "RUN mkdir /home/envbuilder/.keras && echo '{\"backend\": \"jax\", \"floatx\": \"float16\"}' > "
        "/home/envbuilder/.keras/keras.json", CONFIGURED),
    row("settings-of-keras-elsewhere", "RUN mkdir /opt/keras && echo '{\"backend\": \"torch\"}' > /opt/keras/keras.json\nENV KERAS_HOME=/opt/keras", CONFIGURED),
    row("encodings-of-python-gone", "RUN rm -r /usr/lib/python3.11/encodings", FILES),
    row("python-refuses-its-numbers", "ENV PYTHONINTMAXSTRDIGITS=99", CONFIGURED),
    row("namespace-taken-over", "RUN mkdir -p /srv/lib/google && touch /srv/lib/google/__init__.py\nENV PYTHONPATH=/srv/lib", FILES),
    row("proxy-with-a-password", "ENV HTTPS_PROXY=http://me:hunter2@proxy.example.com:3128", SECRET),
    row("proxy-of-apt-with-a-password", "RUN printf 'Acquire::http::Proxy \"%s://me:%s\";\\n' http hunter2@proxy.example.com:3128 > /etc/apt/apt.conf.d/01proxy", SECRET),
    row("profile-with-a-token", "RUN printf 'export ARTIFACTORY_%s=%s\\n' TOKEN abcdef0123456789 > /etc/profile.d/build.sh", SECRET),
    row("token-of-poetry", "RUN mkdir -p /root/.config/pypoetry && printf '[http-basic.in]\\nusername = \"me\"\\npassword = \"hunter2hunter2\"\\n' > "
        "/root/.config/pypoetry/auth.toml", SECRET),
    row("list-in-single-quotes", "ENTRYPOINT []\nCMD ['python', 'app.py']", CONFIGURED, fast=True),
    row("user-that-another-s-name-ends-with", "USER builder", CONFIGURED),
    row("certificates-of-curl-that-are-not-there", "ENV CURL_CA_BUNDLE=/opt/nowhere.pem", CONFIGURED),
    row("certificates-in-a-folder", "ENV SSL_CERT_DIR=/etc/ssl/certs"),
    row("zone-that-is-not-there", "RUN rm -r /usr/share/zoneinfo\nENV TZ=Asia/Tokyo", warns=(CONFIGURED,)),
    row("protobuf-in-python", "ENV PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python", warns=(CONFIGURED,)),
    row("hosts-of-a-cluster", "ENV TF_CONFIG='{\"cluster\": {}}'", warns=(CONFIGURED,)),
    # Forgeries of what starts Python, the loader or the suite.
    row("loader-s-cache-beyond-what-is-read", "RUN head -c 17000000 /dev/zero >> /etc/ld.so.cache", FILES),
    row("program-in-front-of-the-system-s", "RUN printf '#!/bin/sh\\nexec /usr/bin/dirname \"$@\"\\n' > /opt/venv/bin/dirname && chmod 755 /opt/venv/bin/dirname", FILES),
    row("shell-replaced", "RUN printf '#!/bin/bash -p\\nexec /bin/bash \"$@\"\\n' > /opt/sh && chmod 755 /opt/sh && mv /opt/sh /usr/bin/sh", FILES),
    row("standard-library-of-another-home", "RUN mkdir -p /opt/home/bin /opt/home/lib && cp -r /usr/lib/python3.11 /opt/home/lib/ && "
        "ln -s /usr/bin/python3.11 /opt/home/bin/python3.11 && sed -i 's|^home = .*|home = /opt/home/bin|' /opt/venv/pyvenv.cfg", FILES),
    row("configuration-nearer-to-python", "RUN cp /opt/venv/pyvenv.cfg /opt/venv/bin/pyvenv.cfg", FILES),
    row("python-as-it-is-being-built", "RUN echo /opt/build > /usr/bin/pybuilddir.txt", FILES),
    row("plugin-of-the-framework", f"RUN mkdir {SITE}/tensorflow-plugins && cp /usr/lib/x86_64-linux-gnu/libz.so.1 {SITE}/tensorflow-plugins/libz.so", FILES),
    row("plugin-by-a-variable", "ENV TF_PLUGGABLE_DEVICE_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/libz.so.1", CONFIGURED),
    row("library-for-newer-processors", "RUN mkdir -p /opt/lib/glibc-hwcaps/x86-64-v2 && cp /usr/lib/x86_64-linux-gnu/libz.so.1 "
        "/opt/lib/glibc-hwcaps/x86-64-v2/\nENV LD_LIBRARY_PATH=/opt/lib", FILES),
    row("modules-of-the-c-library", "ENV GCONV_PATH=/opt/gconv OPENSSL_CONF=/opt/openssl.cnf", warns=(CONFIGURED,)),
    row("engine-of-openssl", "RUN printf '\\n[engine]\\n' >> /etc/ssl/openssl.cnf", FILES),
    row("python-path-that-is-relative", "RUN mkdir -p /srv/vendor && echo x=1 > /srv/vendor/six.py\nWORKDIR /srv\nENV PYTHONPATH=vendor", FILES),
    row("loader-looks-where-it-starts", "RUN mkdir /srv/app && cp /usr/lib/x86_64-linux-gnu/libz.so.1 /srv/app/\nWORKDIR /srv/app\nENV LD_LIBRARY_PATH=:", FILES),
    row("neither-true-nor-false", "ENV TF_DETERMINISTIC_OPS=yes", CONFIGURED),
    # Forgeries of what vouches for a file.
    row("framework-and-its-record-rewritten", _recorded("tensorflow/__init__.py", "echo '#' >> tensorflow/__init__.py"), FILES),
    row("program-of-a-package-and-its-record-rewritten", _recorded("../../../bin/saved_model_cli", "sed -i '1a import os' ../../../bin/saved_model_cli"), FILES),
    row("package-beside-the-lock", f"RUN cd {SITE} && mkdir mine-1.0.dist-info && echo x=1 > mine.py && printf 'Metadata-Version: 2.1\\nName: mine\\n"
        f"Version: 1.0\\n' > mine-1.0.dist-info/METADATA && h=$(python -ISc '{_DIGEST}' mine.py) && printf \"mine.py,sha256=$h,4\\n"
        "mine-1.0.dist-info/METADATA,,\\nmine-1.0.dist-info/RECORD,,\\n\" > mine-1.0.dist-info/RECORD", "LOCK_MISMATCH"),
    row("script-of-a-package-changed", "RUN sed -i '1s|.*|#!/usr/bin/python3|' /opt/venv/bin/saved_model_cli", FILES),
    row("document-without-end", "RUN head -c 300000000 /dev/zero | tr '\\0' ' ' > /opt/envbuilder/environment.json", CLAIM),
    row("record-without-end", f"RUN head -c 100000000 /dev/zero | tr '\\0' 'x' >> {SITE}/six-1.17.0.dist-info/RECORD", FILES),
    row("pipe-in-place-of-a-module", f"RUN rm {SITE}/six.py && mkfifo {SITE}/six.py", FILES),
    row("thirty-thousand-files", "RUN python -ISc \"import os; os.makedirs('/srv/many'); [open(f'/srv/many/{n}.py','w').close() for n in range(30000)]\""),
    # What it says of the system's packages.
    row("list-of-a-package-written-again", "RUN printf X >> $(readlink -f /usr/lib/x86_64-linux-gnu/libz.so.1) && "
        "echo >> /var/lib/dpkg/info/zlib1g:amd64.list && touch /var/lib/dpkg/status", FILES),
    row("system-lock-of-nobody", "RUN printf '%064d  git_1_amd64.deb\\n' 0 > /opt/envbuilder/system.lock", CLAIM, "LOCK_MISMATCH"),
    row("system-lock-that-is-none", "RUN echo git > /opt/envbuilder/system.lock", CLAIM),
    row("cudnn-lock-of-nobody", "RUN echo nvidia-cudnn-cu12==9.3.0.75 > /opt/envbuilder/cudnn.lock", CLAIM, "LOCK_MISMATCH"),
    row("label-of-a-system-lock", f"LABEL org.envbuilder.system=sha256:{'0' * 64}", CLAIM),
)  # fmt: skip
