#!/usr/bin/env bash
# KCL's units.to_n makes 999999999n of 1, and units.to_Gi makes 1Gi of one and a half.
#
# Version: kcl-lib 0.13.2, the Python package of KCL.
# Guess:   an integer in a smaller unit is exact, so that to_n(1) is 1000000000n. A size that is no whole number of a
#          larger unit is an error, or keeps its fraction.
# Seen:    to_n of 1, 2, 4 and 8 is one nano too small, and to_n of 3 is exact. to_u and to_m are exact from 1 to 40.
#          to_Gi drops the fraction: 1Gi for 1610612736, and 0Gi for a byte less than 1Gi.
# Matters: Kubernetes reads both as quantities. A limit that to_Gi writes is up to a gibibyte smaller than asked.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check kcl-lib==0.13.2
cat > main.py <<'PYTHON'
import json
from pathlib import Path

from kcl_lib import api


def run(text):
    Path("main.k").write_text("import units\n" + text)
    arguments = api.ExecProgramArgs(k_filename_list=["main.k"])
    return json.loads(api.API().exec_program(arguments).json_result)


print(run("n = [units.to_n(i) for i in [1, 2, 3, 4, 8]]\n"))
for unit, scale in ("u", 10**6), ("m", 10**3):
    results = run(f"results = [units.to_{unit}(i) for i in range(1, 41)]\n")["results"]
    print(f"to_{unit} is exact:", results == [f"{i * scale}{unit}" for i in range(1, 41)])
print(run("Gi = [units.to_Gi(i) for i in [1610612736, 1073741823]]\n"))
PYTHON
seen=$(venv/bin/python main.py)
echo "$seen"
[ "$seen" = "{'n': ['999999999n', '1999999999n', '3000000000n', '3999999999n', '7999999999n']}
to_u is exact: True
to_m is exact: True
{'Gi': ['1Gi', '0Gi']}" ]
