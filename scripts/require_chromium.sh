#!/usr/bin/env bash
# Prints the path of a Chromium for the browser tests: $CHROMIUM, or the first one found on the PATH.
# Installs chromium when run as root on Debian; elsewhere says what to install and fails.
set -euo pipefail

find_browser() {
    local name
    for name in ${CHROMIUM:+"$CHROMIUM"} chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$name" 2>/dev/null; then
            return 0
        fi
    done
    return 1
}

if [[ -n "${CHROMIUM:-}" ]] && ! command -v "$CHROMIUM" >/dev/null 2>&1; then
    echo "CHROMIUM is set to '$CHROMIUM', but no such command was found: correct it, or unset it." >&2
    exit 1
fi

if find_browser; then
    exit 0
fi

# Only Debian: Ubuntu's package of that name is a stub that needs snap.
if [[ "$(id -u)" == 0 ]] && grep -qsx 'ID=debian' /etc/os-release; then
    echo "No Chromium found: installing chromium with apt-get." >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends chromium >&2
    find_browser
    exit 0
fi

cat >&2 <<'TEXT'
No Chromium found, which the browser tests drive. Install one of:
  Debian           sudo apt-get install chromium
  Fedora           sudo dnf install chromium
  others           Google Chrome or Chromium from its maker
or point CHROMIUM at the executable to use.
TEXT
exit 1
