#!/bin/bash
# Says where it runs: sunaba run examples/hello.sh
set -euo pipefail
echo "hello from Bash $BASH_VERSION"
echo "kernel: $(uname -r)  user: $(id -u)  cpus: $(nproc)"
