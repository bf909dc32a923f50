"""Images with credentials in them, and images whose variables, entry point or user break them."""

from __future__ import annotations

from hostile_row import CONFIGURED, SECRET, Hostile, row

_AWS = "AKIA" + "QWERTYUIOPASDFGH"
_GITHUB = "ghp_" + "a1B2" * 9
_HUGGING = "hf_" + "aBcDeFgH" * 4
_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE\\n"

SETTING_IMAGES: tuple[Hostile, ...] = (
    # Secrets.
    row("netrc-of-root", "RUN echo 'machine a.example login b password hunter2' > /root/.netrc && chmod 700 /root",
         SECRET, fast=True),
    row("ssh-key-of-root", f"RUN mkdir -m 700 -p /root/.ssh && printf -- '{_KEY}' > /root/.ssh/id_rsa", SECRET),
    row("ssh-key-of-a-user", f"RUN mkdir -m 700 /home/envbuilder/.ssh && printf -- '{_KEY}' > /home/envbuilder/.ssh/work",
         SECRET),
    row("dotenv", "RUN mkdir /app && echo AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYzzzz > /app/.env", SECRET),
    row("apt-auth", "RUN mkdir -p /etc/apt/auth.conf.d && echo 'machine a.example login b password hunter2' > "
         "/etc/apt/auth.conf.d/a.conf", SECRET),
    row("pip-conf-token", f"RUN printf '[global]\\nindex-url = https://{_GITHUB}@example.com/s\\n' > /etc/pip.conf", SECRET),
    row("variable-password", "ENV PGPASSWORD=hunter2", SECRET),
    row("variable-holds-aws-key", f"ENV NOTHING_SPECIAL={_AWS}", SECRET),
    row("history-holds-token", "ARG PIP_TOKEN=hunter2hunter2\nRUN true", SECRET, fast=True),
    row("label-holds-token", f"LABEL note={_GITHUB}", SECRET),
    row("command-holds-token", "CMD [\"serve\", \"--token=hunter2hunter2\"]", SECRET, CONFIGURED),
    row("secret-deleted-later", f"RUN echo {_GITHUB} > /srv/t\nRUN rm /srv/t", SECRET, fast=True),
    row("secret-in-a-script", f"RUN echo 'curl -H \"Authorization: Bearer {_GITHUB}\"' > /usr/local/bin/fetch", SECRET),
    row("gcloud-key", "RUN printf '{\"private_key\": \"-----BEGIN PRIVATE KEY-----\\\\\\\\nMIIEvQIBADANBgkqhkiG9w0B\"}' > "
         "/srv/sa.json", SECRET),
    row("git-config", "RUN mkdir -p /srv/.git && printf '[remote]\\n url = https://me:hunter2@example.com/x\\n' > "
         "/srv/.git/config", SECRET),
    row("authority-of-the-host", "RUN cp /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates/mine.crt || "
         "(mkdir -p /usr/local/share/ca-certificates && echo x > /usr/local/share/ca-certificates/mine.crt)", SECRET),
    row("npm-token", "RUN echo '//registry.example.com/:_authToken=0123456789abcdef0123' > /root/.npmrc", SECRET),
    row("registry-password", "RUN mkdir /root/.docker && echo '{\"auths\":{\"r.example.com\":{\"auth\":\"bWU6aHVudGVyMmh1bnRlcjI=\"}}}' > "
        "/root/.docker/config.json", SECRET),
    row("token-in-shell-history", "RUN echo 'export API_TOKEN=hunter2hunter2' > /root/.bash_history", SECRET),
    row("database-address", "ENV DATABASE_URL=postgres://me:hunter2hunter2@db.example.com/x", SECRET),
    row("entry-point-holds-token", f"ENTRYPOINT [\"/usr/bin/env\", \"HF_TOKEN={_HUGGING}\"]", SECRET),
    row("token-in-a-module", f"RUN mkdir /srv/app && echo 'TOKEN = \"{_HUGGING}\"' > /srv/app/settings.py", SECRET),
    row("key-in-a-large-log", f"RUN head -c 30000000 /dev/zero | tr '\\0' 'x\\n' > /srv/build.log && echo {_GITHUB} >> /srv/build.log",
        SECRET),
    row("kube-config", "RUN mkdir /root/.kube && printf 'users:\\n- user:\\n    token: abcdefabcdefabcdefabcdef\\n' > /root/.kube/config",
        SECRET),
    row("secret-in-history-by-curl", "RUN true || curl --password=hunter2hunter2 https://example.com", SECRET),
    row("secret-in-a-zip", "RUN python -ISc \"import zipfile; zipfile.ZipFile('/srv/a.zip','w',8).writestr('app/.env', 'DB_PASSWORD=correct-horse')\"", SECRET, fast=True),
    row("secret-in-an-archive-of-xz", f"RUN python -ISc \"import lzma; lzma.open('/srv/a.tar.xz','w').write(b'{_GITHUB}')\"", SECRET),
    row("dotenv-of-two-bytes-a-letter", "RUN mkdir /app && python -ISc \"open('/app/.env','w',encoding='utf-16').write('DB_PASSWORD=correct-horse')\"", SECRET),
    row("variable-emptied-later", "ENV API_TOKEN=hunter2hunter2\nENV API_TOKEN=", SECRET, fast=True),
    row("password-of-an-account", "RUN sed -i 's|^root:[^:]*|root:$6$abcdefgh$0123456789abcdef|' /etc/shadow", SECRET),
    row("key-of-kaggle", "RUN mkdir /root/.kaggle && echo '{\"username\":\"a\",\"key\":\"0123456789abcdef0123456789abcdef\"}' > /root/.kaggle/kaggle.json", SECRET),
    row("store-of-keys", "RUN printf '0\\202\\012\\001\\002\\001\\003\\060\\000\\000' > /opt/server.p12", SECRET),
    row("authority-among-the-certificates", "RUN echo x > /etc/ssl/certs/corp.pem", SECRET),
    row("secret-for-curl-in-the-history", "RUN true || curl -u me:hunter2 https://example.com", SECRET),
    # Configuration.
    row("pythonhome", "ENV PYTHONHOME=/nowhere", CONFIGURED, fast=True),
    row("pythonhashseed", "ENV PYTHONHASHSEED=soup", CONFIGURED, fast=True),
    row("pythonwarnings", "ENV PYTHONWARNINGS=error", CONFIGURED),
    row("ld-preload-missing", "ENV LD_PRELOAD=/opt/nowhere.so", CONFIGURED, fast=True),
    row("ld-audit", "ENV LD_AUDIT=/usr/lib/x86_64-linux-gnu/libz.so.1", CONFIGURED),
    row("keras-backend", "ENV KERAS_BACKEND=torch", CONFIGURED),
    row("xla-flags-broken", "ENV XLA_FLAGS=--no_such_flag", CONFIGURED),
    row("tf-xla-flags-broken", "ENV TF_XLA_FLAGS=banana", CONFIGURED),
    row("legacy-keras-absent", "ENV TF_USE_LEGACY_KERAS=1", CONFIGURED),
    row("entry-point-missing", "ENTRYPOINT [\"/no/such/program\"]", CONFIGURED),
    row("path-without-venv", "ENV PATH=/usr/bin:/bin", CONFIGURED, fast=True),
    row("user-missing", "USER nobodyknows", CONFIGURED),
    row("pythonpath-to-nowhere", "ENV PYTHONPATH=/nowhere"),
    row("threads-that-are-no-number", "ENV OMP_NUM_THREADS=many", CONFIGURED),
    row("certificates-that-are-not-there", "ENV REQUESTS_CA_BUNDLE=/opt/nowhere.pem", CONFIGURED),
    row("command-is-not-there", "ENTRYPOINT []\nCMD [\"/opt/start.sh\"]", CONFIGURED),
    row("entry-point-may-not-run", "RUN echo true > /opt/start.sh && chmod 644 /opt/start.sh\nENTRYPOINT [\"/opt/start.sh\"]", CONFIGURED),
    row("home-of-python-is-of-a-user", "ENV PYTHONUSERBASE=/srv/base", CONFIGURED),
    row("docstrings-taken-away", "ENV PYTHONOPTIMIZE=2", CONFIGURED),
    row("assertions-taken-away", "ENV PYTHONOPTIMIZE=1", warns=(CONFIGURED,)),
    row("memory-allocator-preloaded", "ENV LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libz.so.1", CONFIGURED),
)  # fmt: skip
