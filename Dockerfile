# syntax=docker/dockerfile:1
# Two images from one file:
#   docker build --target gateway -t kvgate:0.1.0 .          the gateway; no torch, about 250 MB
#   docker build --target engine -t kvgate-engine:0.1.0 .    with the embedded engine, for machines with a GPU
#
# A new base: docker buildx imagetools inspect python:3.13-slim
ARG PYTHON=python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${PYTHON} AS source
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY canon canon
COPY engine_adapters engine_adapters
COPY cache_core cache_core
COPY bench bench
RUN python -m venv /opt/kvgate
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

FROM source AS build-gateway
RUN /opt/kvgate/bin/pip install '.[events,jwt,otel,postgres,redis]'

FROM source AS build-engine
RUN /opt/kvgate/bin/pip install '.[embedded,events,jwt,otel,postgres,redis]'

FROM ${PYTHON} AS base
# Numbers and not names: Kubernetes checks `runAsNonRoot` by number.
RUN groupadd --gid 10001 kvgate && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/kvgate kvgate \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/kvgate
ENV PATH=/opt/kvgate/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    XDG_STATE_HOME=/var/lib/kvgate \
    XDG_CACHE_HOME=/var/lib/kvgate/cache
USER 10001:10001
WORKDIR /var/lib/kvgate
EXPOSE 8000 8001
ENTRYPOINT ["kvgate"]
CMD ["serve", "--config", "/etc/kvgate/config/kvgate.yaml"]

FROM base AS engine
# Triton builds the launchers of its kernels with a C compiler, and so do the kernels for CPUs; what is built is kept
# with the models. Without one, attention would be plain torch.
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
USER 10001:10001
ENV TRITON_CACHE_DIR=/var/lib/kvgate/cache/triton \
    CUDA_CACHE_PATH=/var/lib/kvgate/cache/cuda
COPY --from=build-engine /opt/kvgate /opt/kvgate

# The last one is what `docker build .` makes.
FROM base AS gateway
COPY --from=build-gateway /opt/kvgate /opt/kvgate
