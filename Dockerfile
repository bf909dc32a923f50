# envbuilder as a container image. It uses the engine of the host by its socket, and writes to the mounted folder only:
#   docker build -t envbuilder https://…/envbuilder.git
#   docker run --rm -v "$PWD:/work" -v /var/run/docker.sock:/var/run/docker.sock \
#     --group-add "$(stat -c %g /var/run/docker.sock)" --user "$(id -u):0" envbuilder run
ARG BASE=python:3.12-slim
FROM ${BASE}
USER root
COPY . /src
RUN pip install --no-cache-dir '/src[publish]' && rm -rf /src
ENV HOME=/tmp
WORKDIR /work
USER 1000:0
ENTRYPOINT ["envbuilder"]
