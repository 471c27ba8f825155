#!/usr/bin/env bash
# Installs what Lockstep needs from the distribution's own packages (Debian 12, Ubuntu 24.04), and only what is missing.
# usage: tools/install_packages.sh [build|web|asan|format|lint|bench]...      (default: build)
#   build   compiler, libraries, GoogleTest, and python3, which runs the tests of the tree itself
#   web     a browser and its driver, for the test of the chat page, which is skipped without them (Debian only: Ubuntu's
#           packages of both are snaps)
#   asan (fuzz too), format, lint, bench   what the make goal of that name needs
# Prints nothing when all is there. With LOCKSTEP_SKIP_INSTALL=1 it installs nothing and only says what is missing.
set -euo pipefail

# tool:package means that any program of that name on the PATH will do; a plain name is a package.
build=(g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config make:make ccache:ccache curl:curl python3:python3 python3-venv
  nlohmann-json3-dev libfmt-dev libspdlog-dev libcli11-dev libpcre2-dev libutf8proc-dev libhwy-dev libgtest-dev libgmock-dev)
declare -A sets=(
  [build]="${build[*]}"
  [web]="chromium:chromium chromedriver:chromium-driver"
  [asan]="${build[*]} clang++-19:clang-19 libclang-rt-19-dev"
  [format]="clang-format-19:clang-format-19"
  [lint]="${build[*]} clang-tidy-19:clang-tidy-19"
  [bench]="${build[*]} libbenchmark-dev"
)

distribution() {  # "debian 12", "ubuntu 24.04", "fedora 41"
  if [ -r /etc/os-release ]; then (. /etc/os-release && echo "${ID:-unknown} ${VERSION_ID:-}"); else echo unknown; fi
}

boost_package() {  # Lockstep needs Boost 1.81; where the default is older, the distribution has a newer one beside it
  case "$(distribution)" in
    "debian 12") echo libboost1.81-dev ;;
    "ubuntu 24.04") echo libboost1.83-dev ;;
    *) echo libboost-dev ;;
  esac
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

wanted=()
for set in "${@:-build}"; do
  [ "$set $(distribution)" != "web ubuntu 24.04" ] || continue
  [ -n "${sets[$set]:-}" ] || { echo "install_packages.sh: no set called '$set'; there are: ${!sets[*]}" >&2; exit 2; }
  read -ra more <<<"${sets[$set]}"
  wanted+=("${more[@]}")
  [ "$set" = format ] || [ "$set" = web ] || wanted+=("$(boost_package)")
done

missing=()
tools_missing=()
for entry in "${wanted[@]}"; do
  package=${entry#*:}
  case " ${missing[*]} " in *" $package "*) continue ;; esac
  if [ "$entry" != "$package" ]; then
    command -v "${entry%%:*}" >/dev/null && continue
    tools_missing+=("${entry%%:*}")
    missing+=("$package")
  elif command -v dpkg-query >/dev/null; then
    installed "$package" || missing+=("$package")
  else
    missing+=("$package")
  fi
done
# Not a package of the distribution; the build does without it where it cannot be fetched.
asked=" ${*:-build} "
fetch_sources() {
  case "$asked" in *" build "* | *" bench "* | *" lint "*) ;; *) return 0 ;; esac
  [ -n "${LOCKSTEP_SKIP_INSTALL:-}" ] || "$(dirname "$0")/fetch_xgrammar.sh" || true
}
[ ${#missing[@]} -gt 0 ] || { fetch_sources; exit 0; }

stop() {
  echo "$1" >&2
  exit 1
}

case "$(distribution)" in
  "debian 12" | "ubuntu 24.04") ;;
  *)
    # Another system may well have everything under other names: CMake will say what it cannot find.
    echo "This is $(distribution); Lockstep installs packages on Debian 12 and Ubuntu 24.04 only." \
      "Make sure that you have what these hold: ${missing[*]}" >&2
    [ ${#tools_missing[@]} -eq 0 ] || stop "Not found on the PATH: ${tools_missing[*]}. Install them and run this again."
    exit 0
    ;;
esac

[ -z "${LOCKSTEP_SKIP_INSTALL:-}" ] || stop "Missing packages (LOCKSTEP_SKIP_INSTALL is set): ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null ||
    stop "Missing packages, and you are neither root nor have sudo. As root: apt-get install -y ${missing[*]}"
  as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@" </dev/null >>"$log" 2>&1; }
install() { apt install -y --no-install-recommends --no-remove "${missing[@]}"; }

echo "Installing packages with apt-get: ${missing[*]}"
if [ ${#as_root[@]} -gt 0 ]; then
  sudo -v || stop "sudo was refused. As root: apt-get install -y ${missing[*]}"
fi
if ! install; then
  # The list of packages may be old or absent.
  apt update || { tail -n 5 "$log" >&2; stop "apt-get update failed (above); is the network there?"; }
  install || { tail -n 8 "$log" >&2; stop "apt-get could not install (its words are above): ${missing[*]}"; }
fi
fetch_sources
