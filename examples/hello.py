"""Says where it runs: sunaba run examples/hello.py"""

import os
import platform

print("hello from Python", platform.python_version())
print("kernel:", platform.release(), " user:", os.getuid(), " cpus:", os.cpu_count())
