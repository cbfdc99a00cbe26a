# tersense on CPUs: the command line and the web page.
#
#     docker build -t tersense .
#     docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" tersense demo -o demo
#     docker run --rm -p 127.0.0.1:7860:7860 tersense app --host 0.0.0.0
#
# Where there is no Docker, `make container` runs these steps in a fresh virtual environment.
FROM python:3.11-slim-bookworm

# PyTorch's own index has builds for CPUs; that of PyPI brings gigabytes for GPUs along.
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG LOCKED="pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: --requirement"
# Kernels are compiled below, once; any user may read them, and keep others beside them.
ENV NUMBA_CACHE_DIR=/var/cache/tersense HOME=/tmp

WORKDIR /opt/tersense
COPY locks locks
# The lock for CPUs is that of x86-64; others take PyPI's build, with the libraries that it wants.
RUN $LOCKED locks/cpu.txt || echo "taking PyPI's build of torch"
RUN $LOCKED locks/app.txt
RUN if pip show torch | grep -q '^Requires:.*nvidia'; then $LOCKED locks/cuda.txt; fi
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --no-deps --no-build-isolation . && pip check

WORKDIR /work
RUN tersense demo -o tried && rm -r tried && chmod -R a+rwX . "$NUMBA_CACHE_DIR"

EXPOSE 7860
USER nobody
ENTRYPOINT ["tersense"]
CMD ["--help"]
