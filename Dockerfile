# An A2A agent of the apcore modules in /app/extensions; its tasks are in /data.
#
#   docker build -t keelbolt .
#   docker run -p 8000:8000 -v ./extensions:/app/extensions:ro -v tasks:/data keelbolt
#
# Everything is set by variables (docs/howto/apcore.md): the program reads them itself, no shell is needed for it.

FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN python -m venv /opt/keelbolt \
    && /opt/keelbolt/bin/pip install --no-cache-dir '.[apcore,auth,grpc,postgres,redis]'

FROM python:3.12-slim
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
    KEELBOLT_LOG_JSON=true \
    KEELBOLT_STORAGE=sqlite:////data/keelbolt.db
USER 10001
VOLUME ["/data"]
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen(f'http://127.0.0.1:{os.environ[\"PORT\"]}/health', timeout=4)"]
CMD ["keelbolt", "serve"]
