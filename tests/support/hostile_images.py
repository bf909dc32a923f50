"""Broken and hostile images, one row each: how it is made from a good one, and the codes that must be errors in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SITE = "/opt/venv/lib/python3.11/site-packages"
_AWS = "AKIA" + "QWERTYUIOPASDFGH"
_GITHUB = "ghp_" + "a1B2" * 9
_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE\\n"


@dataclass(frozen=True)
class Hostile:
    """One image: ``lines`` of a Dockerfile below the good image (as root), and the only codes that may be errors."""

    name: str
    lines: str
    codes: frozenset[str]
    base: Literal["cpu", "gpu"] = "cpu"
    fast: bool = False


def _row(name: str, lines: str, *codes: str, base: Literal["cpu", "gpu"] = "cpu", fast: bool = False) -> Hostile:
    return Hostile(name, lines, frozenset(codes), base, fast)


_FILES, _SECRET, _CLAIM, _CONFIGURED = "FILES_DIFFER", "SECRET_IN_IMAGE", "IMAGE_CLAIM", "IMAGE_CONFIGURATION"

HOSTILE: tuple[Hostile, ...] = (
    _row("nothing-done", "RUN true", fast=True),
    # Files under unchanged metadata.
    _row("numpy-says-another-version", f"RUN sed -i 's/2[.]/1./' {SITE}/numpy/version.py", _FILES, fast=True),
    _row("h5py-deleted", f"RUN rm -r {SITE}/h5py", _FILES, fast=True),
    _row("one-page-of-tensorflow-zeroed", f"RUN dd if=/dev/zero of={SITE}/tensorflow/libtensorflow_framework.so.2 "
         "bs=4096 seek=9000 count=1 conv=notrunc", _FILES),
    _row("one-bit-of-numpy-flipped", f"RUN f=$(ls {SITE}/numpy/_core/_multiarray_umath*.so) && printf X | "
         "dd of=$f bs=1 seek=500000 conv=notrunc", _FILES, fast=True),
    _row("shared-object-truncated", f"RUN f=$(ls {SITE}/h5py/_hl/../h5d*.so) && truncate -s -4096 $f", _FILES),
    _row("shared-object-empty", f"RUN f=$(ls {SITE}/h5py/h5d*.so) && : > $f", _FILES),
    _row("shared-object-is-text", f"RUN f=$(ls {SITE}/h5py/h5d*.so) && echo '<html>404</html>' > $f", _FILES),
    _row("file-is-a-link", f"RUN mv {SITE}/six.py /opt/six.py && ln -s /opt/six.py {SITE}/six.py && echo '#' >> /opt/six.py",
         _FILES),
    _row("record-deleted", f"RUN rm {SITE}/six-*.dist-info/RECORD", _FILES, fast=True),
    _row("record-rewritten", f"RUN cd {SITE} && echo '# mine' >> six.py && h=$(python -ISc 'import base64,hashlib; "
         "print(base64.urlsafe_b64encode(hashlib.sha256(open(\"six.py\",\"rb\").read()).digest()).decode().rstrip(\"=\"))') && "
         "sed -i \"s|^six.py,sha256=[^,]*|six.py,sha256=$h|\" six-*.dist-info/RECORD", _FILES, fast=True),
    _row("record-without-a-row", f"RUN cd {SITE} && sed -i '/^six.py/d' six-*.dist-info/RECORD", _FILES),
    _row("package-without-metadata", f"RUN mkdir {SITE}/helper && echo x=1 > {SITE}/helper/__init__.py", _FILES),
    _row("loose-module", f"RUN echo x=1 > {SITE}/helper.py", _FILES),
    _row("pth-runs-code", f"RUN echo 'import os' > {SITE}/zz.pth", _FILES, fast=True),
    _row("sitecustomize-in-site", f"RUN echo x=1 > {SITE}/sitecustomize.py", _FILES),
    _row("sitecustomize-in-stdlib", "RUN rm -f /usr/lib/python3.11/sitecustomize.py && "
         "echo x=1 > /usr/lib/python3.11/sitecustomize.py", _FILES),
    _row("usercustomize-at-home", "RUN d=/home/envbuilder/.local/lib/python3.11/site-packages && mkdir -p $d && "
         "echo x=1 > $d/usercustomize.py", _FILES),
    _row("stdlib-module-edited", "RUN echo '#' >> /usr/lib/python3.11/json/__init__.py", _FILES, fast=True),
    _row("stdlib-module-added", "RUN echo x=1 > /usr/lib/python3.11/antigravity2.py", _FILES),
    _row("ssl-removed", "RUN rm /usr/lib/python3.11/lib-dynload/_ssl*.so", _FILES, fast=True),
    _row("libssl-removed", "RUN rm /usr/lib/x86_64-linux-gnu/libssl.so.3", _FILES),
    _row("egg-link", f"RUN echo /src > {SITE}/mine.egg-link", _FILES),
    _row("pythonpath-in-front", "RUN mkdir -p /opt/vendor/numpy && echo > /opt/vendor/numpy/__init__.py\n"
         "ENV PYTHONPATH=/opt/vendor", _FILES, fast=True),
    _row("workdir-in-front", "RUN mkdir -p /srv/app/tensorflow && echo > /srv/app/tensorflow/__init__.py\nWORKDIR /srv/app", _FILES),
    _row("stdlib-in-front", "RUN mkdir -p /opt/vendor && echo > /opt/vendor/json.py\nENV PYTHONPATH=/opt/vendor", _FILES),
    _row("byte-code-swapped", f"RUN cd {SITE} && python -Ic \"import py_compile, os, shutil; s=os.stat('six.py'); "
         "b=open('six.py','rb').read(); open('/tmp/six.py','wb').write(b.replace(b'1.',b'9.')); "
         "os.utime('/tmp/six.py',(s.st_mtime,s.st_mtime)); py_compile.compile('/tmp/six.py','__pycache__/six.cpython-311.pyc')\" "
         "&& rm /tmp/six.py", _FILES),
    _row("unchecked-byte-code", f"RUN cd {SITE} && python -Ic \"import py_compile; py_compile.compile('six.py', "
         "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)\"", _FILES),
    _row("library-in-usr-local", "RUN cp /usr/lib/x86_64-linux-gnu/libz.so.1 /usr/local/lib/libz.so.1", _FILES),
    _row("library-by-ld-so-conf", "RUN mkdir /opt/x && cp /usr/lib/x86_64-linux-gnu/libz.so.1 /opt/x/ && "
         "echo /opt/x > /etc/ld.so.conf.d/x.conf", _FILES),
    _row("ld-so-preload", "RUN echo /usr/lib/x86_64-linux-gnu/libz.so.1 > /etc/ld.so.preload", _FILES),
    # What it says of itself.
    _row("document-removed", "RUN rm /opt/envbuilder/environment.json", _CLAIM, fast=True),
    _row("document-garbage", "RUN echo '{' > /opt/envbuilder/environment.json", _CLAIM, fast=True),
    _row("lock-removed", "RUN rm /opt/envbuilder/requirements.lock", _CLAIM),
    _row("lock-edited", "RUN echo '# more' >> /opt/envbuilder/requirements.lock", _CLAIM),
    _row("document-and-lock-removed", "RUN rm -r /opt/envbuilder", _CLAIM, fast=True),
    _row("document-of-another", "RUN sed -i 's/tf2.20.0-py311/tf2.19.0-py311/' /opt/envbuilder/environment.json", _CLAIM),
    _row("id-with-a-path", "RUN sed -i 's|\"id\": *\"[^\"]*\"|\"id\": \"../../../../tmp/pwned\"|' "
         "/opt/envbuilder/environment.json\nLABEL org.envbuilder.environment=../../../../tmp/pwned", _CLAIM, fast=True),
    _row("label-of-another", "LABEL org.envbuilder.environment=tf2.19.0-py311-cpu-bookworm", _CLAIM),
    _row("label-of-another-lock", f"LABEL org.envbuilder.lock=sha256:{'0' * 64}", _CLAIM),
    _row("label-of-another-version", "LABEL org.opencontainers.image.version=2.19.0", _CLAIM),
    _row("document-says-gpu", "RUN sed -i 's/\"flavor\": *\"cpu\"/\"flavor\": \"gpu\"/' /opt/envbuilder/environment.json",
         _CLAIM, "CONTAINER_REQUIREMENT"),
    # Secrets.
    _row("netrc-of-root", "RUN echo 'machine a.example login b password hunter2' > /root/.netrc && chmod 700 /root",
         _SECRET, fast=True),
    _row("ssh-key-of-root", f"RUN mkdir -m 700 -p /root/.ssh && printf -- '{_KEY}' > /root/.ssh/id_rsa", _SECRET),
    _row("ssh-key-of-a-user", f"RUN mkdir -m 700 /home/envbuilder/.ssh && printf -- '{_KEY}' > /home/envbuilder/.ssh/work",
         _SECRET, fast=True),
    _row("dotenv", "RUN mkdir /app && echo AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYzzzz > /app/.env", _SECRET),
    _row("apt-auth", "RUN mkdir -p /etc/apt/auth.conf.d && echo 'machine a.example login b password hunter2' > "
         "/etc/apt/auth.conf.d/a.conf", _SECRET),
    _row("pip-conf-token", f"RUN printf '[global]\\nindex-url = https://{_GITHUB}@example.com/s\\n' > /etc/pip.conf", _SECRET),
    _row("variable-password", "ENV PGPASSWORD=hunter2", _SECRET, fast=True),
    _row("variable-holds-aws-key", f"ENV NOTHING_SPECIAL={_AWS}", _SECRET),
    _row("history-holds-token", "ARG PIP_TOKEN=hunter2hunter2\nRUN true", _SECRET, fast=True),
    _row("label-holds-token", f"LABEL note={_GITHUB}", _SECRET),
    _row("command-holds-token", "CMD [\"serve\", \"--token=hunter2hunter2\"]", _SECRET, _CONFIGURED),
    _row("secret-deleted-later", f"RUN echo {_GITHUB} > /srv/t\nRUN rm /srv/t", _SECRET, fast=True),
    _row("secret-in-a-script", f"RUN echo 'curl -H \"Authorization: Bearer {_GITHUB}\"' > /usr/local/bin/fetch", _SECRET),
    _row("gcloud-key", "RUN printf '{\"private_key\": \"-----BEGIN PRIVATE KEY-----\\\\\\\\nMIIEvQIBADANBgkqhkiG9w0B\"}' > "
         "/srv/sa.json", _SECRET),
    _row("git-config", "RUN mkdir -p /srv/.git && printf '[remote]\\n url = https://me:hunter2@example.com/x\\n' > "
         "/srv/.git/config", _SECRET),
    _row("authority-of-the-host", "RUN cp /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates/mine.crt || "
         "(mkdir -p /usr/local/share/ca-certificates && echo x > /usr/local/share/ca-certificates/mine.crt)", _SECRET),
    # Configuration.
    _row("pythonhome", "ENV PYTHONHOME=/nowhere", _CONFIGURED, fast=True),
    _row("pythonhashseed", "ENV PYTHONHASHSEED=soup", _CONFIGURED),
    _row("pythonwarnings", "ENV PYTHONWARNINGS=error", _CONFIGURED),
    _row("ld-preload-missing", "ENV LD_PRELOAD=/opt/nowhere.so", _CONFIGURED, fast=True),
    _row("ld-audit", "ENV LD_AUDIT=/usr/lib/x86_64-linux-gnu/libz.so.1", _CONFIGURED),
    _row("keras-backend", "ENV KERAS_BACKEND=torch", _CONFIGURED),
    _row("xla-flags-broken", "ENV XLA_FLAGS=--no_such_flag", _CONFIGURED),
    _row("tf-xla-flags-broken", "ENV TF_XLA_FLAGS=banana", _CONFIGURED),
    _row("legacy-keras-absent", "ENV TF_USE_LEGACY_KERAS=1", _CONFIGURED),
    _row("entry-point-missing", "ENTRYPOINT [\"/no/such/program\"]", _CONFIGURED, fast=True),
    _row("path-without-venv", "ENV PATH=/usr/bin:/bin", _CONFIGURED, fast=True),
    _row("user-missing", "USER nobodyknows", _CONFIGURED),
    # GPU images.
    _row("gpu-nothing-done", "RUN true", base="gpu"),
    _row("cudnn-engines-removed", f"RUN rm {SITE}/nvidia/cudnn/lib/libcudnn_engines_*", "MISSING_LIBRARY", base="gpu"),
    _row("cudnn-adv-truncated", f"RUN truncate -s 100000 {SITE}/nvidia/cudnn/lib/libcudnn_adv.so.9", _FILES, base="gpu"),
    _row("nvrtc-removed", f"RUN rm -r {SITE}/nvidia/cuda_nvrtc/lib", "MISSING_LIBRARY", base="gpu"),
    _row("cufft-is-libm", f"RUN ln -sf /usr/lib/x86_64-linux-gnu/libm.so.6 {SITE}/nvidia/cufft/lib/libcufft.so.11",
         _FILES, "CUDA_MISMATCH", base="gpu"),
    _row("cublas-page-flipped", f"RUN printf XXXX | dd of={SITE}/nvidia/cublas/lib/libcublas.so.12 bs=1 seek=9000000 "
         "conv=notrunc", _FILES, base="gpu"),
    _row("ptxas-is-ls", f"RUN cp /bin/ls {SITE}/nvidia/cuda_nvcc/bin/ptxas", _FILES, base="gpu"),
    _row("libdevice-empty", f"RUN : > {SITE}/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", _FILES, "XLA_TOOLS_MISSING",
         base="gpu"),
    _row("nvidia-deleted", f"RUN rm -r {SITE}/nvidia", _FILES, "MISSING_LIBRARY", "XLA_TOOLS_MISSING", base="gpu"),
    _row("gpu-says-cpu", "RUN sed -i 's/\"flavor\": *\"gpu\"/\"flavor\": \"cpu\"/' /opt/envbuilder/environment.json",
         _CLAIM, base="gpu"),
    _row("build-info-says-cpu", "RUN sed -i 's/\"is_cuda_build\": *True/\"is_cuda_build\": False/' "
         f"{SITE}/tensorflow/python/platform/build_info.py", _FILES, _CLAIM, base="gpu"),
    _row("cuda-visible-devices", "ENV CUDA_VISIBLE_DEVICES=-1", "GPU_NOT_VISIBLE", base="gpu"),
    _row("nvidia-visible-devices", "ENV NVIDIA_VISIBLE_DEVICES=void", "GPU_NOT_VISIBLE", base="gpu"),
    _row("capabilities-graphics", "ENV NVIDIA_DRIVER_CAPABILITIES=graphics", "GPU_NOT_VISIBLE", base="gpu"),
    _row("require-words", "ENV NVIDIA_REQUIRE_CUDA=cuda>=twelve", "CONTAINER_REQUIREMENT", base="gpu"),
    _row("require-upper-bound", "ENV NVIDIA_REQUIRE_CUDA=cuda<12.0", "CONTAINER_REQUIREMENT", base="gpu"),
    _row("require-driver", "ENV NVIDIA_REQUIRE_CUDA=driver>=9999", "CONTAINER_REQUIREMENT", base="gpu"),
    _row("require-brand", "ENV NVIDIA_REQUIRE_CUDA=brand=nosuch", "CONTAINER_REQUIREMENT", base="gpu"),
    _row("require-nothing", "ENV NVIDIA_REQUIRE_CUDA=", "CONTAINER_REQUIREMENT", base="gpu"),
    _row("xla-data-dir", "ENV XLA_FLAGS=--xla_gpu_cuda_data_dir=/nowhere", "XLA_TOOLS_MISSING", base="gpu"),
)  # fmt: skip
"""Every row, by subject. The first of each base is the good image with one layer more: nothing may be red in it."""
