import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource
from tfrecords_tools.writing import worker

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

worker.set_up()
bytearray(40 << 20)
before = faults()
for _ in range(5):
    bytearray(40 << 20)  # 10,240 pages
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's mallopt")
def test_memory_of_deleted_arrays_is_used_again():
    environment = {**os.environ, "GLIBC_TUNABLES": ""}
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(result.stdout) < 1000, result.stderr
