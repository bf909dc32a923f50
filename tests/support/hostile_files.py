"""Images with files swapped, spoilt, added or gone, and images that say of themselves what is not so."""

from __future__ import annotations

from hostile_row import CLAIM, CONFIGURED, CRASHED, FILES, SECRET, SITE, TIMEOUT, Hostile, row

_STRANGER = 'LABEL org.envbuilder.environment="" org.envbuilder.lock=""\nRUN rm -r /opt/envbuilder'

FILE_IMAGES: tuple[Hostile, ...] = (
    row("nothing-done", "RUN true", fast=True),
    # Files under unchanged metadata.
    row("numpy-says-another-version", f"RUN sed -i 's/2[.]/1./' {SITE}/numpy/version.py", FILES, fast=True),
    row("h5py-deleted", f"RUN rm -r {SITE}/h5py", FILES),
    row("one-page-of-tensorflow-zeroed", f"RUN dd if=/dev/zero of={SITE}/tensorflow/libtensorflow_framework.so.2 "
         "bs=4096 seek=9000 count=1 conv=notrunc", FILES),
    row("one-bit-of-numpy-flipped", f"RUN f=$(ls {SITE}/numpy/_core/_multiarray_umath*.so) && printf X | "
         "dd of=$f bs=1 seek=500000 conv=notrunc", FILES, fast=True),
    row("shared-object-truncated", f"RUN truncate -s -4096 $(ls {SITE}/h5py/h5d.c*.so)", FILES),
    row("shared-object-empty", f"RUN f=$(ls {SITE}/h5py/h5d.c*.so) && : > $f", FILES),
    row("shared-object-is-text", f"RUN f=$(ls {SITE}/h5py/h5d.c*.so) && echo '<html>404</html>' > $f", FILES),
    row("file-is-a-link", f"RUN mv {SITE}/six.py /opt/six.py && ln -s /opt/six.py {SITE}/six.py && echo '#' >> /opt/six.py",
         FILES),
    row("record-deleted", f"RUN rm {SITE}/six-*.dist-info/RECORD", FILES),
    row("record-rewritten", f"RUN cd {SITE} && echo '# mine' >> six.py && h=$(python -ISc 'import base64,hashlib; "
         "print(base64.urlsafe_b64encode(hashlib.sha256(open(\"six.py\",\"rb\").read()).digest()).decode().rstrip(\"=\"))') && "
         "sed -i \"s|^six.py,sha256=[^,]*|six.py,sha256=$h|\" six-*.dist-info/RECORD", FILES, fast=True),
    row("record-without-a-row", f"RUN cd {SITE} && sed -i '/^six.py/d' six-*.dist-info/RECORD", FILES),
    row("package-without-metadata", f"RUN mkdir {SITE}/helper && echo x=1 > {SITE}/helper/__init__.py", FILES),
    row("loose-module", f"RUN echo x=1 > {SITE}/helper.py", FILES),
    row("pth-runs-code", f"RUN echo 'import os' > {SITE}/zz.pth", FILES),
    row("sitecustomize-in-site", f"RUN echo x=1 > {SITE}/sitecustomize.py", FILES),
    row("sitecustomize-in-stdlib", "RUN rm -f /usr/lib/python3.11/sitecustomize.py && "
         "echo x=1 > /usr/lib/python3.11/sitecustomize.py", FILES),
    row("usercustomize-at-home", "RUN d=/home/envbuilder/.local/lib/python3.11/site-packages && mkdir -p $d && "
         "echo x=1 > $d/usercustomize.py", FILES),
    row("stdlib-module-edited", "RUN echo '#' >> /usr/lib/python3.11/json/__init__.py", FILES),
    row("stdlib-module-added", "RUN echo x=1 > /usr/lib/python3.11/antigravity2.py", FILES),
    row("ssl-removed", "RUN rm /usr/lib/python3.11/lib-dynload/_ssl*.so", FILES),
    row("libssl-removed", "RUN rm /usr/lib/x86_64-linux-gnu/libssl.so.3", FILES),
    row("egg-link", f"RUN echo /src > {SITE}/mine.egg-link", FILES),
    row("pythonpath-in-front", "RUN mkdir -p /opt/vendor/numpy && echo > /opt/vendor/numpy/__init__.py\n"
         "ENV PYTHONPATH=/opt/vendor", FILES, fast=True),
    row("workdir-in-front", "RUN mkdir -p /srv/app/tensorflow && echo > /srv/app/tensorflow/__init__.py\nWORKDIR /srv/app", FILES),
    row("stdlib-in-front", "RUN mkdir -p /opt/vendor && echo > /opt/vendor/json.py\nENV PYTHONPATH=/opt/vendor", FILES, fast=True),
    row("byte-code-swapped", f"RUN cd {SITE} && python -Ic \"import py_compile, os, shutil; s=os.stat('six.py'); "
         "b=open('six.py','rb').read(); open('/tmp/six.py','wb').write(b.replace(b'1.',b'9.')); "
         "os.utime('/tmp/six.py',(s.st_mtime,s.st_mtime)); py_compile.compile('/tmp/six.py','__pycache__/six.cpython-311.pyc')\" "
         "&& rm /tmp/six.py", FILES),
    row("unchecked-byte-code", f"RUN cd {SITE} && python -Ic \"import py_compile; py_compile.compile('six.py', "
         "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)\"", FILES),
    row("library-in-usr-local", "RUN cp /usr/lib/x86_64-linux-gnu/libz.so.1 /usr/local/lib/libz.so.1", FILES),
    row("library-by-ld-so-conf", "RUN mkdir /opt/x && cp /usr/lib/x86_64-linux-gnu/libz.so.1 /opt/x/ && "
         "echo /opt/x > /etc/ld.so.conf.d/x.conf", FILES),
    row("ld-so-preload", "RUN echo /usr/lib/x86_64-linux-gnu/libz.so.1 > /etc/ld.so.preload", FILES),
    # What it says of itself.
    row("document-removed", "RUN rm /opt/envbuilder/environment.json", CLAIM, fast=True),
    row("document-garbage", "RUN echo '{' > /opt/envbuilder/environment.json", CLAIM),
    row("lock-removed", "RUN rm /opt/envbuilder/requirements.lock", CLAIM),
    row("lock-edited", "RUN echo '# more' >> /opt/envbuilder/requirements.lock", CLAIM),
    row("document-and-lock-removed", "RUN rm -r /opt/envbuilder", CLAIM),
    row("document-of-another", "RUN sed -i 's/tf2.20.0-py311/tf2.19.0-py311/' /opt/envbuilder/environment.json", CLAIM),
    row("id-with-a-path", "RUN sed -i 's|\"id\": *\"[^\"]*\"|\"id\": \"../../../../tmp/pwned\"|' "
         "/opt/envbuilder/environment.json\nLABEL org.envbuilder.environment=../../../../tmp/pwned", CLAIM, fast=True),
    row("label-of-another", "LABEL org.envbuilder.environment=tf2.19.0-py311-cpu-bookworm", CLAIM),
    row("label-of-another-lock", f"LABEL org.envbuilder.lock=sha256:{'0' * 64}", CLAIM),
    row("label-of-another-version", "LABEL org.opencontainers.image.version=2.19.0", CLAIM),
    row("document-says-gpu", "RUN sed -i 's/\"flavor\": *\"cpu\"/\"flavor\": \"gpu\"/' /opt/envbuilder/environment.json",
         CLAIM),
    # Files of other kinds, and names that nobody expects.
    row("source-replaced-by-byte-code", f"RUN cd {SITE} && python -Ic \"import py_compile; py_compile.compile('six.py', 'six.pyc')\" "
        "&& rm six.py", FILES, fast=True),
    row("folder-in-place-of-a-module", f"RUN cd {SITE} && rm six.py && mkdir six.py", FILES, fast=True),
    row("pipe-in-place-of-a-pth", f"RUN mkfifo {SITE}/zz.pth && chmod 644 {SITE}/zz.pth", FILES, TIMEOUT),
    row("name-starts-a-line-of-the-log", f"RUN touch \"{SITE}/$(printf 'a\\n::error::x').py\"", FILES),
    row("archive-on-the-path", f"RUN cd /opt && echo x=1 > m.py && python -Ic \"import zipfile; zipfile.ZipFile('/opt/m.zip','w')"
        f".write('m.py')\" && echo /opt/m.zip > {SITE}/m.pth", FILES),
    row("framework-moved-away", f"RUN mv {SITE}/tensorflow /opt/tensorflow && ln -s /opt/tensorflow {SITE}/tensorflow"),
    row("framework-deleted", f"RUN rm -r {SITE}/tensorflow", FILES),
    row("metadata-deleted", f"RUN rm -r {SITE}/six-*.dist-info", FILES, "LOCK_MISMATCH", "PACKAGE_CONFLICT"),
    row("metadata-of-another-version", f"RUN cd {SITE} && sed -i 's/^Version: .*/Version: 0.0.1/' termcolor-*.dist-info/METADATA",
        FILES, "LOCK_MISMATCH", "PACKAGE_CONFLICT"),
    row("metadata-twice", f"RUN cd {SITE} && cp -r termcolor-*.dist-info termcolor-0.1.dist-info && sed -i 's/^Version: .*/Version: 0.1/' "
        "termcolor-0.1.dist-info/METADATA", "LOCK_MISMATCH"),
    row("second-framework-by-its-name", f"RUN mkdir {SITE}/tf_nightly-2.21.0.dist-info && printf 'Metadata-Version: 2.1\\nName: "
        f"tf-nightly\\nVersion: 2.21.0\\n' > {SITE}/tf_nightly-2.21.0.dist-info/METADATA", FILES, "LOCK_MISMATCH"),
    row("system-packages-let-in", "RUN sed -i 's/include-system-site-packages = .*/include-system-site-packages = true/' "
        "/opt/venv/pyvenv.cfg && mkdir -p /usr/local/lib/python3.11/dist-packages && echo x=1 > "
        "/usr/local/lib/python3.11/dist-packages/helper.py", FILES),
    row("python-is-a-script", "RUN rm /opt/venv/bin/python && printf '#!/bin/sh\\nexec /usr/bin/python3.11 \"$@\"\\n' > "
        "/opt/venv/bin/python && chmod 755 /opt/venv/bin/python", FILES),
    row("standard-library-swapped", "RUN cp /usr/lib/python3.11/token.py /usr/lib/python3.11/hmac.py", FILES),
    row("libstdcxx-in-front", "RUN mkdir /opt/lib && cp /usr/lib/x86_64-linux-gnu/libstdc++.so.6 /opt/lib/\nENV LD_LIBRARY_PATH=/opt/lib",
        FILES),
    row("libz-truncated", "RUN f=$(readlink -f /usr/lib/x86_64-linux-gnu/libz.so.1) && truncate -s 4000 $f", FILES),
    row("link-that-ends-nowhere", f"RUN cd {SITE} && rm six.py && ln -s /nowhere/six.py six.py", FILES, fast=True),
    row("link-to-itself", f"RUN cd {SITE} && rm six.py && ln -s six.py six.py", FILES, fast=True),
    row("zip-of-the-standard-library", "RUN cd /usr/lib/python3.11 && python -Ic \"import zipfile; zipfile.ZipFile("
        "'/usr/lib/python311.zip','w').write('token.py')\"", FILES),
    row("customisation-behind-a-link", "RUN mkdir -p /etc/python3.11 && echo x=1 >> /etc/python3.11/sitecustomize.py && "
        "ln -sf /etc/python3.11/sitecustomize.py /usr/lib/python3.11/sitecustomize.py", FILES),
    row("loader-cache-led-astray", "RUN mkdir /opt/astray && cp /usr/lib/x86_64-linux-gnu/libz.so.1 /opt/astray/ && ldconfig /opt/astray", FILES),
    row("machine-of-another-kind", "RUN printf '\\177ELF\\002\\001\\001\\000\\000\\000\\000\\000\\000\\000\\000\\000\\003\\000\\267\\000' > "
        "/opt/venv/bin/tool && head -c 100 /dev/zero >> /opt/venv/bin/tool && chmod 755 /opt/venv/bin/tool", CLAIM),
    # What is odd and breaks nothing: told, and no more.
    row("runs-as-root", "USER root", warns=(CONFIGURED,)),
    row("shell-with-its-owners-rights", "RUN chmod u+s /bin/bash", warns=(CONFIGURED,)),
    row("code-that-anybody-may-change", f"RUN chmod o+w {SITE}/six.py {SITE}", warns=(CONFIGURED,)),
    row("volume-over-the-environment", "VOLUME /opt/venv"),
    row("health-check-that-kills", "HEALTHCHECK --interval=1s CMD kill -9 -1", CRASHED),
    row("start-that-needs-a-shell", "SHELL [\"/no/such/shell\"]\nSTOPSIGNAL SIGKILL"),
    # Without its labels and documents: judged as an image of others, by its distributions' own records.
    row("stranger-nothing-done", _STRANGER, fast=True),
    row("stranger-with-one-bit-flipped", f"{_STRANGER}\nRUN f=$(ls {SITE}/numpy/_core/_multiarray_umath*.so) && printf X | "
        "dd of=$f bs=1 seek=500000 conv=notrunc", FILES),
    row("stranger-without-h5py", f"{_STRANGER}\nRUN rm -r {SITE}/h5py", FILES),
    row("stranger-with-a-secret", f"{_STRANGER}\nRUN echo 'machine a.example login b password hunter2' > /root/.netrc", SECRET),
    row("stranger-of-another-version", f"{_STRANGER}\nRUN cd {SITE} && sed -i 's/^Version: .*/Version: 1.21.0/' numpy-*.dist-info/METADATA",
        FILES, "NUMPY_ABI"),
    row("stranger-with-a-module-in-front", f"{_STRANGER}\nRUN mkdir -p /opt/v && echo > /opt/v/numpy.py\nENV PYTHONPATH=/opt/v", FILES, fast=True),
)  # fmt: skip
