#!/usr/bin/env bash
# clang-format 19 over every C++ source. usage: tools/format.sh {write|check}
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(find lockstep tests benchmarks -type f \( -name '*.h' -o -name '*.cc' \) 2>/dev/null | sort)
case "${1:-}" in
  write) printf '%s\0' "${files[@]}" | xargs -0 -P 2 -n 16 clang-format-19 -i ;;
  check)
    status=0
    said=$(printf '%s\0' "${files[@]}" | xargs -0 -n 16 clang-format-19 --dry-run -Werror 2>&1) || status=$?
    wrong=$(sed -n 's/^\([^ :]*:[0-9]*\):[0-9]*: error: .*/\1/p' <<<"$said" | sort -t: -k1,1 -u)
    [ "$status" -eq 0 ] || [ -n "$wrong" ] || { printf '%s\n' "$said" >&2; exit "$status"; }
    if [ -n "$wrong" ]; then
      printf '%s\n' "$wrong"
      echo "$(wc -l <<<"$wrong") files are laid out otherwise than .clang-format says (first place of each above); run: make format" >&2
      exit 1
    fi
    echo "${#files[@]} files are laid out as .clang-format says"
    ;;
  *) echo "usage: tools/format.sh {write|check}" >&2; exit 2 ;;
esac
