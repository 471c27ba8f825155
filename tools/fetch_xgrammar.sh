#!/usr/bin/env bash
# Fetches the source of xgrammar, which constrains output to grammars, checks it and unpacks what the build needs. Does
# nothing when it is there. Only this uses the network; cmake/Xgrammar.cmake finds what it left.
# usage: tools/fetch_xgrammar.sh
set -euo pipefail
version=0.2.9
sum=87b466bca2475e29bb0323abc62c6c33cbcbcff47e5fb800a3e2099ac9620b90
target=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/xgrammar-$version
[ -e "$target/include/xgrammar/compiler.h" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "Fetching xgrammar $version"
python3 -m venv "$work/venv"
# The archive's own build tools come along, for pip asks it for its name.
"$work/venv/bin/pip" download --quiet --retries 1 --timeout 20 --no-deps --no-binary xgrammar --dest "$work" "xgrammar==$version" ||
  { echo "xgrammar could not be fetched: output cannot be constrained to grammars in this build" >&2; exit 1; }
archive=$work/xgrammar-$version.tar.gz
echo "$sum  $archive" | sha256sum --check --quiet || { echo "$archive is not the archive that is expected" >&2; exit 1; }
mkdir -p "$(dirname "$target")"
tar -xzf "$archive" -C "$work" --wildcards "xgrammar-$version/LICENSE" "xgrammar-$version/NOTICE" "xgrammar-$version/cpp/*" \
  "xgrammar-$version/include/*" "xgrammar-$version/3rdparty/picojson/*" "xgrammar-$version/3rdparty/dlpack/include/*"
rm -rf "$target"
mv "$work/xgrammar-$version" "$target"
