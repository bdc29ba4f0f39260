# One image for the server and the sites of a federation; docs/containers-and-slurm.md says how to run it.
#   docker build -t fedcompass .
#   docker run -v $PWD/federation:/federation -p 9092:9092 --user $(id -u) fedcompass
#   docker run -v $PWD/south:/federation --user $(id -u) fedcompass deploy site /federation
FROM python:3.12-slim

WORKDIR /opt/fedcompass

# A CPU build of torch. For sites with a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY constraints.txt ./
RUN pip install --no-cache-dir -c constraints.txt torch --index-url ${TORCH_INDEX}

COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt '.[deploy]'

# Whoever runs it: the keys in the folder are readable by their owner alone.
ENV HOME=/tmp
USER 1000
VOLUME /federation
EXPOSE 9092
ENTRYPOINT ["fedcompass"]
CMD ["deploy", "server", "/federation", "--resume-if-begun"]
