#!/usr/bin/env bash
# Builds Lockstep, serves a small checkpoint of this repository on four ranks, asks it one question, and stays until Ctrl-C.
# usage: [PORT=8000] [RUN_ONCE=1] tools/run.sh
#   RUN_ONCE=1   stops after the answer: exit 0 when it was right, 1 when not
set -euo pipefail
cd "$(dirname "$0")/.."

# On a terminal Ctrl-C goes to the whole foreground job, and `make` would end with an error before us. As a job of its own
# this script gets it alone.
if [ -t 0 ] && [ -z "${LOCKSTEP_OWN_JOB:-}" ]; then
  set -m
  status=0
  LOCKSTEP_OWN_JOB=1 bash tools/run.sh || status=$?
  exit "$status"
fi

port=${PORT:-8000}
model=models/tutor-deepseek-v3
binary=build/release/bin/lockstep
flags=(--tp-size 4 --dp-size 2 --enable-dp-attention --ep-size 4 --moe-a2a-backend in_process --moe-dense-tp-size 1)
question="Ann has 12 boxes with 4 pens in each. Ann gives 9 to Ben. How many pens does Ann have now?"
right="The answer is 39."

stop() {
  echo "$1" >&2
  exit 1
}

[[ $port =~ ^[0-9]{1,5}$ ]] && [ "$port" -ge 1 ] && [ "$port" -le 65535 ] ||
  stop "PORT is '$port'; it must be a number from 1 to 65535"

# True when something accepts connections at our port.
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
! answers || stop "Port $port is in use by another program. Take another one: PORT=$((port < 65535 ? port + 1 : 8000)) make run"

tools/install_packages.sh build
tools/build.sh release lockstep

# post PATH JSON: the body of the reply.
post() {
  if command -v curl >/dev/null; then
    curl --silent --show-error --max-time 120 -H 'Content-Type: application/json' -d "$2" "http://127.0.0.1:$port$1"
  else
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n' "$1" "${#2}" >&3
    printf 'Connection: close\r\n\r\n%s' "$2" >&3
    sed '1,/^\r*$/d' <&3
    exec 3<&-
  fi
}

healthy() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
  local version status rest
  read -r -t 5 version status rest <&3 || status=none
  exec 3<&-
  [ "$status" = 200 ]
}

# The server gets a process group of its own too: this script stops it, in order.
set -m
echo "\$ $binary serve --model $model --port $port ${flags[*]}"
"$binary" serve --model "$model" --port "$port" "${flags[@]}" </dev/null &
server=$!
set +m

end() {  # stops the server and exits with the given status, or with the server's own when that is worse
  trap '' INT TERM
  local status=0
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" || status=$?
  [ "$status" -eq 0 ] || echo "the server ended with status $status" >&2
  [ "$1" -eq 0 ] || status=$1
  exit "$status"
}
trap 'echo; echo "stopping"; end 0' INT TERM

waited=0
until { healthy; } 2>/dev/null; do
  kill -0 "$server" 2>/dev/null || { wait "$server" || status=$?; stop "The server stopped (status ${status:-0}); what it says is above."; }
  [ "$waited" -lt 600 ] || { echo "The server is not healthy after 60 s." >&2; end 1; }
  waited=$((waited + 1))
  sleep 0.1
done

request='{"model": "tutor-deepseek-v3", "messages": [{"role": "user", "content": "'$question'"}]}'
printf '\nLockstep serves %s on four ranks at http://127.0.0.1:%s\n' "$model" "$port"
printf 'There is a chat page at / and the OpenAI API under /v1, for example:\n\n'
printf '$ curl http://127.0.0.1:%s/v1/chat/completions -H "Content-Type: application/json" -d '"'%s'"'\n' "$port" "$request"
reply=$(post /v1/chat/completions "$request") || { echo "The request failed." >&2; end 1; }
printf '%s\n\n' "$reply"

if [[ $reply =~ \"content\":\ ?\""$right"\" ]]; then
  echo "The answer is right."
  [ -z "${RUN_ONCE:-}" ] || end 0
else
  echo "That does not say: $right" >&2
  [ -z "${RUN_ONCE:-}" ] || end 1
fi
echo "Ctrl-C stops the server."
status=0
wait "$server" || status=$?
stop "The server stopped by itself (status $status)."
