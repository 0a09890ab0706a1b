#!/usr/bin/env bash
# Prints the first Python of the wanted version: python3.11, then python3 where it is 3.11 or newer.
set -euo pipefail

for name in python3.11 python3; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        echo "$name"
        exit 0
    fi
done
echo "No Python 3.11 or newer found as python3.11 or python3. Name one: make PYTHON=/path/to/python" >&2
exit 1
