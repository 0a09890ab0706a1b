#!/usr/bin/env bash
# Makes sure of a C++ compiler, which Inductor needs to build code for the CPU.
# Installs g++ when run as root on Debian or Ubuntu; elsewhere says what to install and fails.
set -euo pipefail

case "$(uname -s)" in
    Darwin) default=clang++ ;;
    *) default=g++ ;;
esac
compiler="${CXX:-$default}"

# CXX may hold arguments; the command is its first word, as torch reads it.
if command -v "${compiler%% *}" >/dev/null 2>&1; then
    exit 0
fi

if [[ -n "${CXX:-}" ]]; then
    echo "CXX is set to '$CXX', but no such command was found: correct it, or unset it to use $default." >&2
    exit 1
fi

if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null 2>&1; then
    echo "No C++ compiler found: installing g++ with apt-get." >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends g++ >&2
    command -v g++ >/dev/null
    exit 0
fi

cat >&2 <<'TEXT'
No C++ compiler found. Inductor needs one to compile code for the CPU. Install one of:
  Debian, Ubuntu   sudo apt-get install g++
  Fedora           sudo dnf install gcc-c++
  macOS            xcode-select --install
  conda            conda install -c conda-forge cxx-compiler
or point CXX at the compiler to use.
TEXT
exit 1
