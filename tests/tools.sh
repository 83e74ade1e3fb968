#!/bin/sh
# Usage: tools.sh VENV. Installs the optional tools of the tests: Debian packages (as root), an old SDK, third-party
# servers, and a package without its 900 MB of dependencies. Tests whose tools are missing are skipped with the reason.
venv="${1:-.venv}"
sh "$(dirname "$0")/old_sdk.sh" "$venv/a2a-0.3"
sh "$(dirname "$0")/peers.sh" "$venv/peers"
sh "$(dirname "$0")/apcore_versions.sh" "$venv/peers/apcore_versions"

# The dependencies that the tests need are installed already.
"$venv/bin/python" -c 'import penguiflow' 2>/dev/null \
    || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps 'penguiflow==3.11.2' \
    || echo "could not install penguiflow; the tests that need it are skipped" >&2

missing=""
for tool in strace faketime pgbouncer chromium prometheus; do
    PATH="$PATH:/usr/sbin" command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # a list of names
    apt-get install -y -qq $missing >/dev/null 2>&1 \
        || { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq $missing >/dev/null 2>&1; } \
        || echo "could not install$missing; the tests that need them are skipped" >&2
    case "$missing" in
        # Debian starts them as services; the tests start their own processes.
        *pgbouncer* | *prometheus*)
            command -v systemctl >/dev/null 2>&1 && systemctl disable --quiet --now pgbouncer prometheus >/dev/null 2>&1
            ;;
    esac
else
    echo "not installed:$missing; the tests that need them are skipped" >&2
fi
exit 0
