# The image of all services, from any image with Python 3.11 or newer, venv and glibc; docs/image.md.
#
#   docker build --build-arg BASE=python:3.11-slim --tag kai .
#
# Both stages start from the same base, so the interpreter that the virtual environment links to is in both.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1
WORKDIR /build
COPY requirements-build.lock requirements-image.lock ./
# Wheels only, each with a hash of the lock: nothing is compiled, and no script of a package runs.
RUN python3 -m venv tools \
    && tools/bin/pip install --require-hashes --only-binary :all: --requirement requirements-build.lock \
    && python3 -m venv --without-pip /opt/kai \
    && tools/bin/pip --python /opt/kai install --require-hashes --only-binary :all: --requirement requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
# The root is read-only when it runs, so the modules are compiled now.
RUN tools/bin/python -m hatchling build --target wheel --directory wheel \
    && tools/bin/pip --python /opt/kai install --no-deps --no-index --find-links wheel pykai \
    && /opt/kai/bin/python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/kai/lib

FROM ${BASE}
COPY --from=build /opt/kai /opt/kai
ENV PATH=/opt/kai/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /
USER 10000:10000
ENTRYPOINT ["kai"]
