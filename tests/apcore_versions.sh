#!/bin/sh
# Unpacks other versions of apcore: the oldest supported one, and the one before it. Tests put one of them first on
# Python's path. apcore-mcp is needed by modules that were written for it. If an installation fails, the tests that need
# it are skipped with the reason.
place="$1"
python="$(dirname "$(dirname "$place")")/bin/python"

unpack() {
    name="$1"
    shift
    [ -d "$place/$name" ] && return
    echo "unpacking $name into $place"
    "$python" -m pip install --quiet --disable-pip-version-check --target "$place/$name" "$@" 2>/dev/null \
        || { echo "could not install $name; the tests that need it are skipped" >&2; rm -rf "${place:?}/$name"; }
}

unpack apcore-0.32.0 --no-deps 'apcore==0.32.0'
unpack apcore-0.31.0 --no-deps 'apcore==0.31.0'
unpack apcore-mcp-0.23.3 'apcore-mcp==0.23.3'
exit 0
