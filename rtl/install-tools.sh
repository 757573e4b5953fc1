#!/bin/sh
# Installs what the tests need and pip does not have, where that needs no password; says how elsewhere:
# Icarus Verilog, the simulator of the RTL tests, and MLIR's tools, which lab 9 lowers its dialect with (40 MB).
missing=""
command -v iverilog >/dev/null 2>&1 || missing="iverilog"
mlir=""
for name in mlir-opt $(seq -f 'mlir-opt-%g' 30 -1 16); do
    command -v "$name" >/dev/null 2>&1 && mlir="$name" && break
done
if [ -z "$missing" ] && [ -n "$mlir" ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -q
    if [ -z "$mlir" ]; then
        for version in 16 17 18 19 20 21; do
            apt-cache show "mlir-$version-tools" >/dev/null 2>&1 && missing="$missing mlir-$version-tools" && break
        done
    fi
    # shellcheck disable=SC2086  # one word a package
    apt-get install -y -q --no-install-recommends $missing
else
    [ -z "$missing" ] || echo "The RTL tests need Icarus Verilog: 'sudo apt-get install iverilog' on Debian or Ubuntu, 'brew install icarus-verilog' on a Mac."
    [ -n "$mlir" ] || echo "Lab 9's native tests need MLIR's tools: 'sudo apt-get install mlir-16-tools' on Debian or Ubuntu, 'brew install llvm' on a Mac."
fi
