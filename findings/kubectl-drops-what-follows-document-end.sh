#!/usr/bin/env bash
# The YAML decoder of kubectl drops a document that follows the end marker `...`, without an error.
#
# Version: k8s.io/apimachinery v0.36.3 (pkg/util/yaml, which kubectl reads manifests with).
# Guess:   `...` ends a document as YAML says, so that a document behind it is read, as behind `---`.
# Seen:    the decoder splits at lines of `---` alone and reads the first document of each part. Of three ConfigMaps it
#          returns two and no error.
# Matters: `cat a.yaml b.yaml`, where a.yaml ends with `...` and b.yaml has no `---`, deploys a.yaml alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > go.mod <<'MOD'
module finding

go 1.26.0
MOD
cat > main.go <<'GO'
package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
)

const text = `kind: ConfigMap
metadata: {name: first}
...
kind: ConfigMap
metadata: {name: second}
---
kind: ConfigMap
metadata: {name: third}
`

func main() {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var object struct {
			Metadata struct{ Name string }
		}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return
		}
		fmt.Println(object.Metadata.Name, err)
	}
}
GO
go get k8s.io/apimachinery@v0.36.3 2>/dev/null
go mod tidy 2>/dev/null
seen=$(go run .)
echo "$seen"
[ "$seen" = 'first <nil>
third <nil>' ]
