#!/bin/sh
# Runs in a container of the node image: puts the control plane's images into its containerd.
set -eu
containerd >/var/log/containerd-build.log 2>&1 &
pid=$!
tries=0
until ctr version >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt 120 ] || { cat /var/log/containerd-build.log; exit 1; }
  sleep 0.5
done
for archive in /archives/*.tar; do
  ctr -n k8s.io images import --no-unpack "$archive"
done
kill "$pid"
wait "$pid" || true
rm -f /var/log/containerd-build.log
