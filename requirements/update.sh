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
