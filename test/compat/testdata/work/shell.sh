# bash as people use it: 100 MB through pipes, jobs, traps, substitution.
set -eu
trap 'echo "line $LINENO failed"' ERR
fails() { if "$@"; then echo "no failure: $*"; exit 1; fi; }
lines=$(yes 'the quick brown fox jumps over the lazy dog' | head -c 100M | tee >(wc -c > bytes) | tr a-z A-Z | sed 's/FOX/CAT/' | grep -c CAT || true)
[ "$lines" = 2383127 ]
until [ -s bytes ]; do sleep 0.1; done # nobody waits for a process that is substituted
[ "$(cat bytes)" = 104857600 ]
mkfifo pipe
(echo through > pipe &)
[ "$(cat pipe)" = through ]
diff <(seq 5) <(printf '1\n2\n3\n4\n5\n')
trap 'echo term > trapped' TERM
kill -TERM $$
[ "$(cat trapped)" = term ]
sleep 100 &
kill $!
fails wait $!
declare -A map=([a]=1 [b]=2)
[ $((map[a] + map[b])) = 3 ]
coproc cat
echo hello >&"${COPROC[1]}"
read -r got <&"${COPROC[0]}"
[ "$got" = hello ]
{ sleep 0.1; echo one; } | timeout 5 cat | grep -q one
fails timeout 0.2 sleep 5
[ "$(printf 'b\na\n' | sort | head -1)" = a ]
[ "$(find /usr/bin -name bash)" = /usr/bin/bash ]
[ "$(echo 'a:b:c' | awk -F: '{print $2}')" = b ]
[ "$(xargs -n1 -P4 echo < <(seq 20) | wc -l)" = 20 ]
[ "$(date -u -d @0 +%F)" = 1970-01-01 ]
[ "$(ps -o comm= -p $$)" = bash ]
[ "$(cat /proc/$$/comm)" = bash ]
fails stty size < /dev/null 2> /dev/null
[ "$(id -un)" = "$USER" ]
[ -w ~ ]
echo ok
