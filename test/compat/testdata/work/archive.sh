# Archives, compression and a sort of 100 MB.
set -eu
trap 'echo "line $LINENO failed"' ERR
fails() { if "$@"; then echo "no failure: $*"; exit 1; fi; }
mkdir tree
for i in $(seq 300); do echo "$i" > "tree/$i"; done
mkdir -p tree/deep/er
ln -s ../1 tree/deep/link
ln tree/1 tree/hard
truncate -s 10M tree/sparse
chmod 640 tree/2
touch -d 2001-02-03T04:05:06Z tree/3
for z in z J j ''; do
  tar "c${z}f" "t$z.tar" --sparse tree
  mkdir "out$z"
  tar "x${z}f" "t$z.tar" -C "out$z"
  diff -r tree "out$z/tree"
  [ "$(stat -c %a "out$z/tree/2")" = 640 ]
  [ "$(stat -c %Y "out$z/tree/3")" = 981173106 ]
  [ "$(stat -c %h "out$z/tree/1")" = 2 ]
done
python3 - <<'P'
import random
r = random.Random(1)
with open("big", "w") as f:
    for _ in range(1600):
        f.writelines("%016x %048d\n" % (r.getrandbits(64), i) for i in range(1000))
P
[ "$(stat -c %s big)" -gt 100000000 ]
sort -S 64M -o sorted big
sort -c sorted
split -n l/4 sorted part.
cat part.* | cmp - sorted
dd if=big of=copy bs=1M conv=fsync status=none
cmp big copy
cp --reflink=auto --sparse=always -a tree again
diff -r tree again
echo ok
