#!/bin/sh
# Makes the environment of the official SDK's last 0.3, whose client the tests run beside the one of 1.0: the two do not
# fit into one. Without it those tests are skipped, with the reason.
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
