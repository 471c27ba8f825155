#!/usr/bin/env bash
# clang-tidy 19 over sources, two at a time. usage: tools/lint.sh {changed|all|FILE...}
#   changed   what differs from the branch main (of origin where there is one), or is not committed
set -euo pipefail
cd "$(dirname "$0")/.."

changed() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || git rev-list --max-parents=0 HEAD | tail -n 1)
  { git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | sort -u
}

case "${1:-}" in
  changed) mapfile -t files < <(changed | grep -E '^lockstep/.*\.cc$' || true) ;;
  all) mapfile -t files < <(find lockstep -name '*.cc' | sort) ;;
  "") echo "usage: tools/lint.sh {changed|all|FILE...}" >&2; exit 2 ;;
  *) files=("$@") ;;
esac
[ ${#files[@]} -gt 0 ] || { echo "no source differs; ALL=1 make lint looks at every one"; exit 0; }

# clang-tidy reads how each file is compiled; g++'s own warning flags mean nothing to it.
[ -f build/release/compile_commands.json ] || cmake --preset release >build/release-configure.log
printf '%s\0' "${files[@]}" | xargs -0 -P 2 -n 1 clang-tidy-19 -p build/release --quiet \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-error || { echo "clang-tidy found something (above)" >&2; exit 1; }
echo "${#files[@]} sources are free of findings"
