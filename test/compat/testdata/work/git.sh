# A day with git in a fresh account: nothing is configured but name and mail.
set -eu
trap 'echo "line $LINENO failed"' ERR
fails() { if "$@"; then echo "no failure: $*"; exit 1; fi; }
git config --global user.name Somebody
git config --global user.email somebody@example.com
git config --global init.defaultBranch main
git init -q repo
cd repo
for i in $(seq 40); do mkdir -p "d$((i % 7))"; echo "line $i" > "d$((i % 7))/f$i"; done
ln -s d1/f1 link
printf '#!/bin/sh\n' > run
chmod +x run
git add -A
git commit -qm first
[ "$(git log --oneline | wc -l)" = 1 ]
git checkout -qb side
echo more >> d1/f1
git commit -qam side
git checkout -q main
echo other >> d2/f2
git commit -qam other
git merge -q -m merged side
git tag -a v1 -m one
[ "$(git describe)" = v1 ]
echo dirty >> d1/f1
git stash -q
[ -z "$(git status --porcelain)" ]
git stash pop -q
git checkout -q -- .
git gc -q
git fsck --strict --no-dangling
cd ..
git clone -q repo copy
git clone -q --bare repo bare.git
cd copy
[ -x run ]
[ -L link ]
[ "$(git log --oneline | wc -l)" = 4 ]
git remote set-url origin ../bare.git
echo pushed > new
git add new
git commit -qm new
git push -q origin main
[ "$(git -C ../bare.git log -1 --format=%s)" = new ]
git worktree add -q ../tree v1
git bundle create -q ../all.bundle --all
git clone -q ../all.bundle ../third
grep -q d1/f1 <(git archive v1 | tar -t)
git rebase -q --onto v1~1 v1 main
git bisect start HEAD HEAD~2 > /dev/null
git bisect run sh -c '! [ -e new ]' > /dev/null
[ "$(git show -s --format=%s refs/bisect/bad)" = new ]
git bisect reset > /dev/null 2>&1
git log -p --stat > /dev/null
echo ok
