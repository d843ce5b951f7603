# One image for the web processes, the worker and all commands. See docs/how-to/deploy.md.
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS build
ARG REQUIREMENTS=requirements.txt
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
WORKDIR /src
COPY ${REQUIREMENTS} .
RUN python3 -m venv /opt/palimpsest && \
    /opt/palimpsest/bin/pip install --no-cache-dir --require-hashes --requirement ${REQUIREMENTS}
COPY . .
RUN /opt/palimpsest/bin/pip install --no-cache-dir --no-deps . && \
    /opt/palimpsest/bin/pip uninstall --yes setuptools pip

FROM ${BASE}
RUN apt-get update && \
    apt-get install --yes --no-install-recommends ca-certificates python3 && \
    rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* && \
    useradd --system --uid 10001 --home-dir /data palimpsest && \
    install --directory --owner palimpsest --mode 700 /data /keys
COPY --from=build /opt/palimpsest /opt/palimpsest
ENV PATH=/opt/palimpsest/bin:/usr/bin:/bin KEYS_DIR=/keys VAR_DIR=/data
USER palimpsest
WORKDIR /data
VOLUME /data /keys
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python3", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=9)"]
ENTRYPOINT ["palimpsest"]
CMD ["serve", "--bind", "0.0.0.0:8000"]
