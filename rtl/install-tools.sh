#!/bin/sh
# Installs Icarus Verilog, the simulator that the RTL tests use, where that needs no password; says how elsewhere.
if command -v iverilog >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -q && apt-get install -y -q iverilog
else
    echo "The RTL tests need Icarus Verilog: 'sudo apt-get install iverilog' on Debian or Ubuntu, 'brew install icarus-verilog' on a Mac."
fi
