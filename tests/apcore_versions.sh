#!/bin/sh
# Unpacks other versions of apcore beside the one that is installed: the oldest that is supported, and one before it. A
# test puts one of them first on Python's path. apcore-mcp is for modules that were written for it. Without them those
# tests are skipped, with the reason.
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
