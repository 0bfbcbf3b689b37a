#!/usr/bin/env bash
# Writes requirements.lock: one universal lock over the base and the extras that the demo, the tests and the tools use.
# No index address gets into it. Arguments go to `uv pip compile`, for example --upgrade or --upgrade-package torch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=$(command -v uv || echo .tools/uv/bin/uv)
extras=()
for extra in dev bench pusht robosuite robomimic lerobot vla serve formats view; do extras+=(--extra "$extra"); done
"$uv" pip compile --quiet --universal --python-version 3.12 "${extras[@]}" --overrides overrides.txt \
    --no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock "$@" pyproject.toml
echo "lock: $(grep -c '==' requirements.lock) packages; run make again to install them"
