#!/bin/sh
# Makes an environment with the agent frameworks that workers under examples/workers use, on top of ours: it has our
# packages and those. Without it the tests of these workers are skipped, with the reason.
place="$1"
python="$(dirname "$place")/bin/python"
wanted="langgraph==1.2.20 openai-agents==0.24.0"

[ "$(cat "$place/requirements" 2>/dev/null)" = "$wanted" ] && exit 0
echo "installing $wanted into $place"
rm -rf "${place:?}"
# shellcheck disable=SC2086,SC2015 # a list of names; each step may fail
"$python" -m venv --without-pip "$place" \
    && "$python" -c "import site; print(f'import site; site.addsitedir({site.getsitepackages()[0]!r})')" \
        >"$("$place/bin/python" -c 'import site; print(site.getsitepackages()[0])')/ours.pth" \
    && "$place/bin/python" -m pip install --quiet --disable-pip-version-check --prefix "$place" $wanted \
    && echo "$wanted" >"$place/requirements" \
    || { echo "could not install $wanted; the tests that need it are skipped" >&2; rm -rf "${place:?}"; }
exit 0
