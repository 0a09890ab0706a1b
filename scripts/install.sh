#!/usr/bin/env bash
# Makes a virtual environment and installs the project into it, with a line of progress now and then:
#   scripts/install.sh VENV PYTHON CONSTRAINTS EXTRAS
# What pip says goes to VENV/install.log; its end is shown where the installation fails.
set -euo pipefail
venv=$1 python=$2 constraints=$3 extras=$4
every_s=${INSTALL_PROGRESS_S:-20}

echo "Making $venv with $("$python" --version)."
"$python" -m venv "$venv"
log=$venv/install.log
echo "Installing the versions of ${constraints##*/} (several GB to download; the log is $log)."
"$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
    -c "$constraints" -e ".[$extras]" >"$log" 2>&1 &
pip=$!
trap 'kill "$pip" 2>/dev/null || true' EXIT
began=$SECONDS shown=$SECONDS
while kill -0 "$pip" 2>/dev/null; do
    sleep 1
    if ((SECONDS - shown >= every_s)); then
        shown=$SECONDS
        echo "  $((SECONDS - began)) s: $(du -sh "$venv" 2>/dev/null | cut -f1) installed"
    fi
done
if ! wait "$pip"; then
    echo "The installation failed. The end of $log:" >&2
    tail -n 20 "$log" >&2
    exit 1
fi
echo "Installed in $((SECONDS - began)) s."
