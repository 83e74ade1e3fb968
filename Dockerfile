# An A2A agent that serves the apcore modules in /app/extensions and stores its tasks in /data.
#
#   docker build -t keelbolt .
#   docker run -p 127.0.0.1:8000:8000 -v ./extensions:/app/extensions:ro -v tasks:/data -e JWT_KEY keelbolt
#
# Environment variables configure it (docs/howto/apcore.md). The program reads them itself, without a shell.

# The build is reproducible: the base image is pinned by its digest (Python 3.12.14 on Debian trixie, all platforms), and
# every package by version and hash. `make lock` updates the packages; docs/howto/apcore.md explains how to update the
# base image.

ARG BASE=python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

# hadolint ignore=DL3006
FROM ${BASE} AS build
WORKDIR /build
COPY deploy/requirements.lock deploy/build.lock ./
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes --requirement build.lock \
    && /opt/build/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir wheels . \
    && python -m venv /opt/keelbolt \
    && /opt/keelbolt/bin/pip install --no-cache-dir --require-hashes --only-binary :all: --requirement requirements.lock \
    && /opt/keelbolt/bin/pip install --no-cache-dir --no-deps --no-index wheels/*.whl

# hadolint ignore=DL3006
FROM ${BASE}
COPY --from=build /opt/keelbolt /opt/keelbolt
RUN useradd --system --uid 10001 --home-dir /app --create-home keelbolt \
    && install --directory --owner=keelbolt /app/extensions /data
WORKDIR /app
ENV PATH=/opt/keelbolt/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    EXTENSIONS_DIR=/app/extensions \
    HOST=0.0.0.0 \
    PORT=8000 \
    LOG_LEVEL=info \
    KEELBOLT_LOG_FORMAT=json \
    KEELBOLT_STORAGE=sqlite:////data/keelbolt.db
USER 10001
VOLUME ["/data"]
EXPOSE 8000
# The check does not depend on the storage, because an unhealthy container is restarted. Proxies use /ready.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen(f'http://127.0.0.1:{os.environ[\"PORT\"]}/live', timeout=4)"]
CMD ["keelbolt", "serve"]
