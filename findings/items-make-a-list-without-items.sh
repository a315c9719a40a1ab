#!/usr/bin/env bash
# apimachinery takes a custom object with an array `items` for a list, and then refuses to read it as one.
#
# Version: k8s.io/apimachinery v0.36.3.
# Guess:   meta.IsListType and meta.ExtractList agree: what is a list can be taken apart, and an object with a name is none.
# Seen:    IsListType answers true for an *unstructured.Unstructured with `items`, whatever its kind and name. ExtractList
#          answers "is not a list: no Items field in this object", since it looks for a Go field.
# Matters: kube-apiserver 1.36.3 asks both for each answer about one object. A definition with a field `items` at its top is
#          accepted, and so is a write; the answer is a 500 with these words. A client that retries a 500 has written already.
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

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	for _, kind := range []string{"AllowList", "Menu"} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": kind,
			"metadata": map[string]any{"name": "users"},
			"items":    []any{map[string]any{"user": "ann"}},
		}}
		_, err := meta.ExtractList(object)
		fmt.Printf("%s: IsListType %v, ExtractList %v\n", kind, meta.IsListType(object), err)
	}
}
GO
go get k8s.io/apimachinery@v0.36.3 2>/dev/null
go mod tidy 2>/dev/null
seen=$(go run .)
echo "$seen"
[ "$seen" = 'AllowList: IsListType true, ExtractList *unstructured.Unstructured is not a list: no Items field in this object
Menu: IsListType true, ExtractList *unstructured.Unstructured is not a list: no Items field in this object' ]
