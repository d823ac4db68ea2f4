# A project of several files with make: a program, a static and a shared
# library, a plugin loaded at run time, threads, a debugger's symbols.
set -eu
trap 'echo "line $LINENO failed"' ERR
fails() { if "$@"; then echo "no failure: $*"; exit 1; fi; }
mkdir src
cd src
cat > add.c <<'C'
int add(int a, int b) { return a + b; }
C
cat > mul.c <<'C'
int mul(int a, int b) { return a * b; }
C
cat > plugin.c <<'C'
const char *name(void) { return "plugin"; }
C
cat > main.c <<'C'
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
int add(int, int);
int mul(int, int);
static atomic_int total;
static __thread int mine;
static void *work(void *arg) {
  for (mine = 0; mine < 1000; mine++) atomic_fetch_add(&total, 1);
  return arg;
}
int main(void) {
  pthread_t t[8];
  for (int i = 0; i < 8; i++) if (pthread_create(&t[i], 0, work, 0)) return 1;
  for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
  void *h = dlopen("./plugin.so", RTLD_NOW);
  if (!h) return 2;
  const char *(*name)(void) = (const char *(*)(void))dlsym(h, "name");
  if (!name || strcmp(name(), "plugin")) return 3;
  if (total != 8000 || add(2, 3) != 5 || mul(2, 3) != 6 || sqrt(49) != 7) return 4;
  puts("built");
  return 0;
}
C
printf '%s\n' 'CFLAGS = -O2 -g -Wall -Werror' \
  'all: app plugin.so' \
  'app: main.o libadd.a libmul.so' \
  '	gcc -o $@ main.o -L. -ladd -lmul -lm -lpthread -ldl -Wl,-rpath,.' \
  'libadd.a: add.o' \
  '	ar rcs $@ $^' \
  'libmul.so: mul.c' \
  '	gcc -shared -fPIC -o $@ $^' \
  'plugin.so: plugin.c' \
  '	gcc -shared -fPIC -o $@ $^' > Makefile
make -s -j4
[ "$(./app)" = built ]
touch add.c
grep -q add.o <(make -n) # make sees by time that only this is stale
fails grep main.c <(make -n)
gcc -static -O1 -o static main.c add.c mul.c -lm 2>/dev/null
[ "$(./static)" = built ]
grep -q ' T main' <(nm app)
grep -q __linux__ <(cpp -dM /dev/null)
echo ok
