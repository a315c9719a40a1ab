#!/usr/bin/env bash
# kpt's update brings back a file that the local package deleted, although upstream did not change it.
#
# Version: github.com/kptdev/kpt v1.0.0-beta.61 (pkg/lib/update, strategy resource-merge).
# Guess:   a deletion is a local change like others: README.md and the ConfigMap that both left stay deleted.
# Seen:    the ConfigMap stays deleted, and README.md is there again. Files that are no objects are copied from upstream
#          where the local package has none.
# Matters: whoever removes a sample, a script or a licence from a clone finds it again after each update.
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
	"fmt"
	"os"
	"path/filepath"

	"github.com/kptdev/kpt/pkg/lib/update"
	"github.com/kptdev/kpt/pkg/lib/update/updatetypes"
)

const kptfile = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: shop\n"

func object(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\ndata:\n  a: b\n"
}

func write(folder string, files map[string]string) {
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			panic(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			panic(err)
		}
	}
}

func main() {
	whole := map[string]string{"Kptfile": kptfile, "README.md": "read\n", "one.yaml": object("one"), "two.yaml": object("two")}
	write("origin", whole)
	write("upstream", whole)
	write("local", map[string]string{"Kptfile": kptfile, "one.yaml": object("one")})
	root, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	folder := func(name string) string { return filepath.Join(root, name) }
	options := updatetypes.Options{
		RelPackagePath: ".", LocalPath: folder("local"), OriginPath: folder("origin"), UpdatedPath: folder("upstream"), IsRoot: true,
	}
	if err := update.GetUpdater("resource-merge").Update(options); err != nil {
		panic(err)
	}
	for _, name := range []string{"README.md", "one.yaml", "two.yaml"} {
		_, err := os.Stat(filepath.Join("local", name))
		fmt.Printf("%s is there: %v\n", name, err == nil)
	}
}
GO
go get github.com/kptdev/kpt/pkg/lib/update@v1.0.0-beta.61 2>/dev/null
go get sigs.k8s.io/kustomize/kyaml@v0.20.1 2>/dev/null
seen=$(go run -mod=mod .)
echo "$seen"
[ "$seen" = 'README.md is there: true
one.yaml is there: true
two.yaml is there: false' ]
