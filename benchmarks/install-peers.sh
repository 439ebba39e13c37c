#!/usr/bin/env bash
# Installs the brokers that the benchmarks compare with. What is already there is left as it is; a service that the
# installation itself started is stopped and kept from starting, because the benchmarks start their own processes.
set -euo pipefail

packages=(nats-server mosquitto redis-server etcd-server rabbitmq-server)
missing=()
for package in "${packages[@]}"; do
    program=${package/etcd-server/etcd}  # the others' programs are called as their packages
    if PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v "$program" >/dev/null; then
        echo "$package: present"
    else
        missing+=("$package")
    fi
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "This is not Debian or Ubuntu: install ${missing[*]} in your system's way and put them on the PATH." >&2
    echo "The benchmarks run without them, report them as absent, and then print no ratio against them." >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Installing needs root. As root, run: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "Installing ${missing[*]} …"
"${as_root[@]}" apt-get update
for package in "${missing[@]}"; do
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$package"; then
        echo "$package: not installed; the benchmarks will report it as absent" >&2
        continue
    fi
    "${as_root[@]}" systemctl disable --now "${package/#etcd-server/etcd}" >/dev/null 2>&1 ||
        "${as_root[@]}" service "${package/#etcd-server/etcd}" stop >/dev/null 2>&1 || true  # no service manager here: nothing was started
    echo "$package: installed"
done
