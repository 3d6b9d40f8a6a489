#!/usr/bin/env bash
# Pins what pyproject.toml asks for: versions and hashes, no address.
set -euo pipefail
cd "$(dirname "$0")/.."
flags=(-q --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate)
pin() { # output extras...
  local out=$1; shift
  uv pip compile "${flags[@]}" \
    "${@/#/--extra=}" pyproject.toml -o "requirements/$out.txt"
}
pin dev operator cli dev sim simulate bench router sidecar modelserver
pin operator operator
pin sim sim
pin train operator cli dev sim simulate bench router sidecar modelserver train
pin dataplane router sidecar
pin modelserver modelserver
pin clients clients
uv pip compile "${flags[@]}" -o requirements/build.txt - <<<'hatchling>=1.27'

# What the serving benchmark compares with: an environment each.
pin_peer() { # name requirements...
  local name=$1; shift
  printf '%s\n' "$@" | uv pip compile "${flags[@]}" -o "operator/slimscale/bench/serving/peers/$name.txt" -
}
pin_peer litserve litserve==0.2.19 onnxruntime==1.32.0 numpy
pin_peer bentoml bentoml==1.4.40 onnxruntime==1.32.0 numpy
pin_peer ray 'ray[serve]==2.60.0' onnxruntime==1.32.0 numpy
pin_peer mlperf mlcommons-loadgen==6.0.17 numpy
