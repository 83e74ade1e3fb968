#!/bin/sh
# Creates an environment for each third-party server that the client is tested against, because their dependencies
# conflict. If that fails, the tests that need it are skipped with the reason.
place="$1"
python="$(dirname "$place")/bin/python"

peer() {
    name="$1"
    shift
    [ "$(cat "$place/$name/requirements" 2>/dev/null)" = "$*" ] && return
    echo "installing $* into $place/$name"
    rm -rf "${place:?}/$name"
    # shellcheck disable=SC2015 # either step may fail
    "$python" -m venv "$place/$name" \
        && "$place/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@" \
        && echo "$*" >"$place/$name/requirements" \
        || { echo "could not install $*; the tests that need it are skipped" >&2; rm -rf "${place:?}/$name"; }
}

peer sdk_1 'a2a-sdk[http-server,grpc]==1.3.0' uvicorn
peer sdk_03 'a2a-sdk[http-server,grpc]==0.3.26' uvicorn
peer a2akit 'a2akit==0.0.32' uvicorn
peer fasta2a 'fasta2a==2.1.1' uvicorn
peer apcore_a2a 'apcore-a2a==0.8.5' uvicorn
exit 0
