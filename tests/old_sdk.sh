#!/bin/sh
# Creates an environment for the last 0.3 version of the official SDK, which conflicts with version 1.0. If that fails,
# the tests that need it are skipped with the reason.
place="$1"
version="0.3.26"

"$place/bin/python" -c "from importlib.metadata import version; assert version('a2a-sdk') == '$version'" \
    2>/dev/null && exit 0

echo "installing a2a-sdk $version into $place"
rm -rf "$place"
python="$(dirname "$place")/bin/python"
"$python" -m venv "$place" \
    && "$place/bin/python" -m pip install --quiet --disable-pip-version-check "a2a-sdk==$version" \
    || { echo "could not install a2a-sdk $version; the tests that need it are skipped" >&2; rm -rf "$place"; }
exit 0
