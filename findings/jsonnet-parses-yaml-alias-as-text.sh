#!/usr/bin/env bash
# Jsonnet in C++ and in Go, of one version, differ on a YAML alias, a null and a tag.
#
# Versions: jsonnet 0.22.0 (C++) and gojsonnet 0.22.0 (go-jsonnet, which Argo CD uses), Python packages of one project.
# Guess:    std.parseYaml is a function of the standard library, so both evaluators give the same values.
# Seen:     the C++ one gives the text `*limits` for an alias, the text `~` for a null, and the number 8 for `!!str 8`.
#           The Go one follows the alias, and gives null and the text "8".
# Matters:  a library that reads a file of values renders other manifests in Argo CD than with the C++ command.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check jsonnet==0.22.0 gojsonnet==0.22.0
cat > values.yaml <<'YAML'
requests: &limits {cpu: 2}
limits: *limits
class: ~
build: !!str 8
YAML
cat > main.py <<'PYTHON'
import json

import _gojsonnet
import _jsonnet

for name, module in ("c++", _jsonnet), ("go", _gojsonnet):
    result = module.evaluate_snippet("main.jsonnet", "std.parseYaml(importstr 'values.yaml')")
    print(f"{name}: {json.dumps(json.loads(result), sort_keys=True)}")
PYTHON
seen=$(venv/bin/python main.py)
echo "$seen"
[ "$seen" = 'c++: {"build": 8, "class": "~", "limits": "*limits", "requests": {"cpu": 2}}
go: {"build": "8", "class": null, "limits": {"cpu": 2}, "requests": {"cpu": 2}}' ]
