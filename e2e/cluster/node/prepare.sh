#!/bin/sh
# Runs while the node image is built: makes Debian boot as a kind node does.
set -eu
kubernetes=$1

chmod 755 /usr/local/bin/* /kind /kind/bin /kind/bin/*

# systemd starts what kind needs and nothing else: no consoles, no udev, no clean-up of /tmp
units=/lib/systemd/system
rm -f "$units"/multi-user.target.wants/* "$units"/local-fs.target.wants/* "$units"/basic.target.wants/* \
  "$units"/sockets.target.wants/*udev* "$units"/sockets.target.wants/*initctl* \
  "$units"/sysinit.target.wants/systemd-tmpfiles-setup.service /etc/systemd/system/*.wants/*
echo ReadKMsg=no >>/etc/systemd/journald.conf
systemctl enable kubelet.service containerd.service undo-mount-hacks.service
systemctl mask systemd-binfmt.service
[ -e /sbin/init ] || ln -s /usr/lib/systemd/systemd /sbin/init

mkdir -p /etc/kubernetes/manifests /etc/cni/net.d /opt/cni/bin
for plugin in host-local loopback ptp portmap; do
  cp "/usr/lib/cni/$plugin" /opt/cni/bin/
done

# containerd's base of every container: kind's hook, and no limits that would have to be raised
ctr oci spec |
  jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
    >/etc/containerd/cri-base.json

echo "$kubernetes" >/kind/version
