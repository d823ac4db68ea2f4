# C++: exceptions across a shared library, threads, futures, the file system.
set -eu
trap 'echo "line $LINENO failed"' ERR
fails() { if "$@"; then echo "no failure: $*"; exit 1; fi; }
cat > lib.cc <<'C'
#include <stdexcept>
void fail() { throw std::runtime_error("thrown in a library"); }
C
cat > main.cc <<'C'
#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <mutex>
#include <regex>
#include <thread>
#include <vector>
void fail();
int main() {
  try { fail(); return 1; } catch (const std::exception &e) {
    if (std::string(e.what()) != "thrown in a library") return 2;
  }
  std::mutex m; std::condition_variable cv; int left = 8;
  std::vector<std::thread> ts;
  for (int i = 0; i < 8; i++) ts.emplace_back([&] { std::lock_guard<std::mutex> l(m); if (!--left) cv.notify_all(); });
  { std::unique_lock<std::mutex> l(m); cv.wait(l, [&] { return left == 0; }); }
  for (auto &t : ts) t.join();
  auto f = std::async(std::launch::async, [] { return 42; });
  if (f.get() != 42) return 3;
  auto p = std::async(std::launch::async, []() -> int { throw 7; });
  try { p.get(); return 4; } catch (int n) { if (n != 7) return 5; }
  namespace fs = std::filesystem;
  fs::create_directories("a/b/c");
  std::ofstream("a/b/c/f") << "text";
  if (fs::file_size("a/b/c/f") != 4) return 6;
  fs::rename("a/b/c/f", "a/g");
  fs::copy("a", "d", fs::copy_options::recursive);
  if (fs::remove_all("d") != 4) return 7;
  if (!std::regex_search("box 42", std::regex("([0-9]+)$"))) return 8;
  std::cout << "ok" << std::endl;
}
C
g++ -std=c++17 -O1 -shared -fPIC -o libfail.so lib.cc
g++ -std=c++17 -O1 -o main main.cc -L. -lfail -pthread -Wl,-rpath,.
./main
