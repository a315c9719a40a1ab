#!/usr/bin/env bash
# Starlark in Rust writes seven digits of a large float, and Starlark in Go writes all.
#
# Versions: starlark-pyo3 2026.1.3 (Facebook's starlark-rust), starlark-go 1.0.1 (go.starlark.net of 2023-03-02). Both
#           are Python packages.
# Guess:    str, `%s` and format write a float so that float() reads the same number, as go.starlark.net does.
# Seen:     Rust writes seven digits from a million on: 16777217.0 becomes 1.677722e+07, which is 16777220.0. Smaller
#           floats keep their digits, and json.encode keeps those of all.
# Matters:  a division gives a float, so that `str(bytes / 2)` writes another size into a manifest.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check starlark-pyo3==2026.1.3 starlark-go==1.0.1
cat > main.py <<'PYTHON'
import starlark
import starlark_go


def rust(text):
    library = starlark.Globals.extended_by([starlark.LibraryExtension.Json])
    return starlark.eval(starlark.Module(), starlark.parse("main.star", text), library)


def go(text):
    return starlark_go.Starlark().eval(text)


for text in (
    "str(0.1 + 0.2)",
    "str(33554434 / 2)",
    "'%s' % 16777217.0",
    "'{}'.format(16777217.0)",
    "float(str(16777217.0)) == 16777217.0",
):
    print(f"{text}: rust {rust(text)}, go {go(text)}")
print(f"json.encode(16777217.0): rust {rust('json.encode(16777217.0)')}")
PYTHON
seen=$(venv/bin/python main.py)
echo "$seen"
[ "$seen" = "str(0.1 + 0.2): rust 0.30000000000000004, go 0.30000000000000004
str(33554434 / 2): rust 1.677722e+07, go 1.6777217e+07
'%s' % 16777217.0: rust 1.677722e+07, go 1.6777217e+07
'{}'.format(16777217.0): rust 1.677722e+07, go 1.6777217e+07
float(str(16777217.0)) == 16777217.0: rust False, go True
json.encode(16777217.0): rust 16777217.0" ]
